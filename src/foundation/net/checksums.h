// The checksums and digests that S3 objects carry, by name: computed piece by piece, written as
// base64 in headers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace yard {

enum class ChecksumAlgorithm { kCrc32, kCrc32c, kCrc64Nvme, kSha1, kSha256, kSha512, kMd5 };

// As S3 spells it: "CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256", "SHA512", "MD5".
std::string_view to_string(ChecksumAlgorithm algorithm);
// The same names in either case.
std::optional<ChecksumAlgorithm> parse_checksum_algorithm(std::string_view name);
// "x-amz-checksum-crc64nvme"; for MD5 "content-md5".
std::string_view checksum_header(ChecksumAlgorithm algorithm);
// The other way, in either case; nothing for other headers.
std::optional<ChecksumAlgorithm> checksum_of_header(std::string_view header);
size_t checksum_size_bytes(ChecksumAlgorithm algorithm);
// Whether the checks of parts can be joined into that of the whole (multipart FULL_OBJECT).
bool is_crc(ChecksumAlgorithm algorithm);

// A checksum being computed. Not thread-safe. Moved from, it may only be assigned to or destroyed.
class Checksum {
 public:
  explicit Checksum(ChecksumAlgorithm algorithm);
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;
  ~Checksum();

  ChecksumAlgorithm algorithm() const { return algorithm_; }
  void update(std::span<const std::byte> bytes);
  // Of the bytes so far; update() may go on afterwards. CRCs are big-endian, as S3 writes them.
  std::string digest() const;
  std::string base64() const;
  std::string hex() const;

 private:
  struct EvpState;
  ChecksumAlgorithm algorithm_;
  uint64_t crc_ = 0;
  std::unique_ptr<EvpState> evp_;  // null for CRCs
};

std::string checksum_base64(ChecksumAlgorithm algorithm, std::span<const std::byte> bytes);

// The digest of a whole object out of the CRC digests of its two parts (big-endian bytes, as
// digest() gives them). Contract: is_crc(algorithm), digests of its size.
std::string combine_crc_digests(ChecksumAlgorithm algorithm, std::string_view first,
                                std::string_view second, uint64_t second_size_bytes);

using Sha256Digest = std::array<std::byte, 32>;
Sha256Digest sha256(std::span<const std::byte> bytes);
std::string sha256_hex(std::string_view bytes);

}  // namespace yard
