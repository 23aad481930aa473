// What the picture targets share: the first bytes choose the view, the rest is the file after its
// signature. Real pictures, of which mutation makes the rest, come from a mutator of our own: from
// nothing libFuzzer would not find a Huffman table in a minute.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "images/picture_reader.h"
#include "images/picture_size.h"
#include "images/testing/sample_pictures.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace yard::images {

constexpr size_t kChoiceBytes = 4;

// Now and then starts anew with one of `seeds`, without its first `prefix_bytes`; else mutates.
inline size_t mutate_picture(uint8_t* data, size_t size, size_t max_size, unsigned seed,
                             std::span<const std::vector<std::byte>> seeds, size_t prefix_bytes) {
  const std::vector<std::byte>& picture = seeds[seed / 32 % seeds.size()];
  const size_t tail = picture.size() - prefix_bytes;
  if ((size < 64 || seed % 32 == 0) && tail + kChoiceBytes <= max_size) {
    for (size_t i = 0; i < kChoiceBytes; ++i) data[i] = uint8_t(seed >> 8 * i);
    std::memcpy(data + kChoiceBytes, picture.data() + prefix_bytes, tail);
    size = tail + kChoiceBytes;
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

// `prefix` is put before the file, so that a target stays with its format. Errors are expected;
// what is looked for is what the sanitizers see, endless work and pixels written beside the output.
inline void read_fuzzed(std::span<const uint8_t> data, std::span<const uint8_t> prefix) {
  if (data.size() < kChoiceBytes) return;
  const uint32_t choice = data[0] | data[1] << 8 | data[2] << 16 | uint32_t{data[3]} << 24;
  std::vector<uint8_t> file(prefix.begin(), prefix.end());
  file.insert(file.end(), data.begin() + kChoiceBytes, data.end());
  const auto encoded = std::as_bytes(std::span(file));

  // One reader for all inputs: what a bad picture leaves behind must not hurt the next.
  static PictureReader reader({.pixel_count_max = 1 << 18});
  const auto info = reader.open(encoded);
  if (!info) return;
  // Of a WebP its container decides how much of the file counts, which the finder does not ask.
  if (const auto size = picture_size(encoded); size && info->format != Format::kWebp)
    YARD_CHECK(*size == info->size);
  const Size output = {1 + int(choice % 40), 1 + int(choice / 40 % 40)};
  const View view = choice & 1 << 20   ? random_resized_view(info->size, output, {}, choice)
                    : choice & 1 << 21 ? stretched_view(info->size, output)
                                       : random_view(info->size, output, 0.5, choice);
  const RenderOptions options = {
      .filter = choice & 1 << 22 ? Filter::kBicubic : Filter::kBilinear,
      .layout = choice & 1 << 23 ? Layout::kInterleaved : Layout::kPlanar,
      .type = PixelType((choice >> 24) % 3),
      .dct_scaling = (choice & 1 << 27) != 0};
  std::vector<std::byte> out(size_t(output.width * output.height) * 3 * size_bytes(options.type));
  (void)reader.render(view, options, out);

  if (choice & 1 << 28) {
    const auto picture = decode(encoded, {.pixel_count_max = 1 << 18, .shorter_side_min = 16});
    if (picture)
      YARD_CHECK(picture->pixels.size() == size_t(picture->width) * size_t(picture->height) * 3);
  }
}

}  // namespace yard::images
