// Any bytes after the signature through the PNG reader.
#include "picture_fuzz_internal.h"

using namespace yard::images;
using namespace yard::images::testing;

namespace {

constexpr uint8_t kSignature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

std::vector<std::vector<std::byte>> make_seeds() {
  const auto plain = *encode_png(sample_picture(20, 12));
  return {plain, png_with_chunk(plain, "eXIf", tiff_orientation(6, true)),
          png_with_chunk(plain, "zTXt", "words")};
}

// Right checksums, else nothing gets past them.
std::vector<uint8_t> with_checksums(std::span<const uint8_t> data) {
  constexpr size_t kFrameBytes = 12;  // length, type, checksum
  std::vector<uint8_t> fixed(data.begin(), data.end());
  for (size_t at = kChoiceBytes; at + kFrameBytes <= fixed.size();) {
    const uint8_t* length = &fixed[at];
    const size_t size = size_t{length[0]} << 24 | length[1] << 16 | length[2] << 8 | length[3];
    if (size > fixed.size() - at - kFrameBytes) break;
    const uint32_t crc = crc32({reinterpret_cast<const char*>(&fixed[at + 4]), size + 4});
    for (size_t i = 0; i < 4; ++i) fixed[at + 8 + size + i] = uint8_t(crc >> (24 - 8 * i));
    at += kFrameBytes + size;
  }
  return fixed;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  static const auto seeds = make_seeds();
  return mutate_picture(data, size, max_size, seed, seeds, sizeof(kSignature));
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  read_fuzzed(with_checksums({data, size}), kSignature);
  if (size % 16 == 0) read_fuzzed({data, size}, kSignature);
  return 0;
}
