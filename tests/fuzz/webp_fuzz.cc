// Any bytes after the signature through the WebP reader.
#include "picture_fuzz_internal.h"

using namespace yard::images;
using namespace yard::images::testing;

namespace {

constexpr uint8_t kSignature[] = {'R', 'I', 'F', 'F'};

std::vector<std::vector<std::byte>> make_seeds() {
  const Picture picture = sample_picture(20, 12);
  const auto lossless = encode_webp_lossless(picture);
  return {lossless, encode_webp_lossy(picture), encode_webp_alpha(picture, 20),
          webp_with_exif(lossless, picture, tiff_orientation(6, true)),
          webp_animation(lossless, 2, 4, {20, 12}, {30, 24})};
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  static const auto seeds = make_seeds();
  return mutate_picture(data, size, max_size, seed, seeds, sizeof(kSignature));
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  read_fuzzed({data, size}, kSignature);
  return 0;
}
