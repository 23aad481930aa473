#include "net/checksums.h"

#include <openssl/evp.h>

#include "base/crc32c.h"
#include "base/result.h"
#include "net/crc.h"
#include "net/encoding.h"
#include "net/http_message.h"

namespace yard {
namespace {

struct Row {
  ChecksumAlgorithm algorithm;
  std::string_view name;
  std::string_view header;
  size_t size_bytes;
  const char* evp_name;  // null: a CRC
};

constexpr Row kRows[] = {
    {ChecksumAlgorithm::kCrc32, "CRC32", "x-amz-checksum-crc32", 4, nullptr},
    {ChecksumAlgorithm::kCrc32c, "CRC32C", "x-amz-checksum-crc32c", 4, nullptr},
    {ChecksumAlgorithm::kCrc64Nvme, "CRC64NVME", "x-amz-checksum-crc64nvme", 8, nullptr},
    {ChecksumAlgorithm::kSha1, "SHA1", "x-amz-checksum-sha1", 20, "SHA1"},
    {ChecksumAlgorithm::kSha256, "SHA256", "x-amz-checksum-sha256", 32, "SHA256"},
    {ChecksumAlgorithm::kSha512, "SHA512", "x-amz-checksum-sha512", 64, "SHA512"},
    {ChecksumAlgorithm::kMd5, "MD5", "content-md5", 16, "MD5"},
};

const Row& row(ChecksumAlgorithm algorithm) {
  return kRows[static_cast<size_t>(algorithm)];
}

// Looked up once: OpenSSL's search by name costs more than a small digest. Never freed, for
// digests may be made while the process ends.
const EVP_MD* message_digest(ChecksumAlgorithm algorithm) {
  static const auto digests = [] {
    std::array<const EVP_MD*, std::size(kRows)> found{};
    for (size_t i = 0; i < found.size(); ++i)
      if (kRows[i].evp_name != nullptr)
        found[i] = EVP_MD_fetch(nullptr, kRows[i].evp_name, nullptr);
    return found;
  }();
  const EVP_MD* digest = digests[static_cast<size_t>(algorithm)];
  YARD_CHECK(digest != nullptr);
  return digest;
}

std::string big_endian(uint64_t value, size_t size_bytes) {
  std::string bytes(size_bytes, '\0');
  for (size_t i = size_bytes; i-- > 0; value >>= 8) bytes[i] = static_cast<char>(value & 0xFF);
  return bytes;
}

uint64_t from_big_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

uint64_t extend_crc(ChecksumAlgorithm algorithm, std::span<const std::byte> bytes,
                    uint64_t previous) {
  if (algorithm == ChecksumAlgorithm::kCrc32) return crc32(bytes, static_cast<uint32_t>(previous));
  if (algorithm == ChecksumAlgorithm::kCrc32c)
    return crc32c(bytes, static_cast<uint32_t>(previous));
  return crc64_nvme(bytes, previous);
}

}  // namespace

struct Checksum::EvpState {
  EvpState() : context(EVP_MD_CTX_new()) { YARD_CHECK(context != nullptr); }
  ~EvpState() { EVP_MD_CTX_free(context); }
  EvpState(const EvpState&) = delete;
  EvpState& operator=(const EvpState&) = delete;

  EVP_MD_CTX* const context;
};

std::string_view to_string(ChecksumAlgorithm algorithm) {
  return row(algorithm).name;
}

std::optional<ChecksumAlgorithm> parse_checksum_algorithm(std::string_view name) {
  for (const Row& row : kRows)
    if (equals_ignoring_case(row.name, name)) return row.algorithm;
  return std::nullopt;
}

std::string_view checksum_header(ChecksumAlgorithm algorithm) {
  return row(algorithm).header;
}

std::optional<ChecksumAlgorithm> checksum_of_header(std::string_view header) {
  for (const Row& row : kRows)
    if (equals_ignoring_case(row.header, header)) return row.algorithm;
  return std::nullopt;
}

size_t checksum_size_bytes(ChecksumAlgorithm algorithm) {
  return row(algorithm).size_bytes;
}

bool is_crc(ChecksumAlgorithm algorithm) {
  return row(algorithm).evp_name == nullptr;
}

Checksum::Checksum(ChecksumAlgorithm algorithm) : algorithm_(algorithm) {
  if (is_crc(algorithm)) return;
  evp_ = std::make_unique<EvpState>();
  YARD_CHECK(EVP_DigestInit_ex2(evp_->context, message_digest(algorithm), nullptr) == 1);
}

Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;
Checksum::~Checksum() = default;

void Checksum::update(std::span<const std::byte> bytes) {
  if (evp_ == nullptr)
    crc_ = extend_crc(algorithm_, bytes, crc_);
  else
    YARD_CHECK(EVP_DigestUpdate(evp_->context, bytes.data(), bytes.size()) == 1);
}

std::string Checksum::digest() const {
  const size_t size_bytes = checksum_size_bytes(algorithm_);
  if (evp_ == nullptr) return big_endian(crc_, size_bytes);
  const EvpState copy;
  YARD_CHECK(EVP_MD_CTX_copy_ex(copy.context, evp_->context) == 1);
  std::string bytes(size_bytes, '\0');
  YARD_CHECK(EVP_DigestFinal_ex(copy.context, reinterpret_cast<unsigned char*>(bytes.data()),
                                nullptr) == 1);
  return bytes;
}

std::string Checksum::base64() const {
  return base64_encode(bytes_of(digest()));
}
std::string Checksum::hex() const {
  return hex_encode(bytes_of(digest()));
}

std::string checksum_base64(ChecksumAlgorithm algorithm, std::span<const std::byte> bytes) {
  Checksum checksum(algorithm);
  checksum.update(bytes);
  return checksum.base64();
}

std::string combine_crc_digests(ChecksumAlgorithm algorithm, std::string_view first,
                                std::string_view second, uint64_t second_size_bytes) {
  const size_t size_bytes = checksum_size_bytes(algorithm);
  YARD_CHECK(is_crc(algorithm) && first.size() == size_bytes && second.size() == size_bytes);
  const uint64_t a = from_big_endian(first), b = from_big_endian(second);
  const auto a32 = static_cast<uint32_t>(a), b32 = static_cast<uint32_t>(b);
  if (algorithm == ChecksumAlgorithm::kCrc32)
    return big_endian(crc32_combine(a32, b32, second_size_bytes), size_bytes);
  if (algorithm == ChecksumAlgorithm::kCrc32c)
    return big_endian(crc32c_combine(a32, b32, second_size_bytes), size_bytes);
  return big_endian(crc64_nvme_combine(a, b, second_size_bytes), size_bytes);
}

Sha256Digest sha256(std::span<const std::byte> bytes) {
  Sha256Digest digest;
  YARD_CHECK(EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()),
                        nullptr, message_digest(ChecksumAlgorithm::kSha256), nullptr) == 1);
  return digest;
}

std::string sha256_hex(std::string_view bytes) {
  return hex_encode(sha256(bytes_of(bytes)));
}

}  // namespace yard
