// Any bytes after the signature through the JPEG reader.
#include "picture_fuzz_internal.h"

using namespace yard::images;
using namespace yard::images::testing;

namespace {

constexpr uint8_t kSignature[] = {0xff, 0xd8, 0xff};

std::vector<std::vector<std::byte>> make_seeds() {
  const Picture picture = sample_picture(40, 24);
  std::vector<std::vector<std::byte>> seeds;
  for (const bool progressive : {false, true}) {
    seeds.push_back(encode_jpeg_kind(picture, {2, 2, progressive, 3}));
    seeds.push_back(encode_jpeg_kind(picture, {1, 1, progressive, 3}));
    seeds.push_back(encode_jpeg_kind(picture, {2, 1, progressive, 1}));
    seeds.push_back(encode_jpeg_kind(picture, {2, 1, progressive, 4}));
  }
  seeds.push_back(jpeg_with_orientation(seeds[0], 6, true));
  return seeds;
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
