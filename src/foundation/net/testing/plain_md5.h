// Bytes and their digests by OpenSSL, for tests of MD5 in vector lanes.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "net/checksums.h"

namespace yard {

inline std::vector<std::byte> noise(size_t size, uint64_t seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = std::byte(random_u64(seed, 0, i));
  return bytes;
}

inline std::string openssl_md5(std::span<const std::byte> bytes) {
  Checksum md5(ChecksumAlgorithm::kMd5);
  md5.update(bytes);
  return md5.digest();
}

}  // namespace yard
