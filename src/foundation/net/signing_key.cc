#include "net/signing_key.h"

#include <algorithm>
#include <initializer_list>
#include <mutex>

#include "net/checksums.h"
#include "net/encoding.h"

namespace yard {
namespace {

constexpr size_t kBlockBytes = 64;  // of SHA-256
constexpr std::string_view kEmptySha256 =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// SHA-256 of the key's block, each byte XORed with `pad`, and of `text` behind it.
Sha256Digest padded_digest(const std::array<std::byte, kBlockBytes>& block, std::byte pad,
                           std::string_view text) {
  std::string message;
  message.reserve(kBlockBytes + text.size());
  for (const std::byte byte : block) message += static_cast<char>(byte ^ pad);
  message += text;
  return sha256(bytes_of(message));
}

std::string joined(std::initializer_list<std::string_view> parts, char separator) {
  std::string text;
  for (const std::string_view part : parts) text.append(part) += separator;
  text.pop_back();
  return text;
}

}  // namespace

std::array<std::byte, 32> hmac_sha256(std::span<const std::byte> key, std::string_view text) {
  std::array<std::byte, kBlockBytes> block{};
  Sha256Digest shortened;
  if (key.size() > kBlockBytes) {
    shortened = sha256(key);
    key = shortened;
  }
  std::copy(key.begin(), key.end(), block.begin());
  const Sha256Digest inner = padded_digest(block, std::byte{0x36}, text);
  return padded_digest(block, std::byte{0x5C}, text_of(inner));
}

SigningKey SigningKey::derive(std::string_view secret_key, std::string_view date,
                              std::string_view region, std::string_view service) {
  auto key = hmac_sha256(bytes_of("AWS4" + std::string(secret_key)), date);
  key = hmac_sha256(key, region);
  key = hmac_sha256(key, service);
  return SigningKey(hmac_sha256(key, "aws4_request"));
}

std::string SigningKey::sign(std::string_view text) const {
  return hex_encode(hmac_sha256(key_, text));
}

SigningKey SigningKeyCache::get(std::string_view secret_key, std::string_view date,
                                std::string_view region, std::string_view service) {
  const std::string name = joined({secret_key, date, region, service}, '\0');
  {
    std::shared_lock lock(mutex_);
    if (const auto found = keys_.find(name); found != keys_.end()) return found->second;
  }
  const SigningKey key = SigningKey::derive(secret_key, date, region, service);
  std::unique_lock lock(mutex_);
  if (keys_.size() >= key_count_max_) keys_.clear();
  keys_.emplace(name, key);
  return key;
}

size_t SigningKeyCache::key_count() const {
  std::shared_lock lock(mutex_);
  return keys_.size();
}

const std::string& ChunkSigner::sign_chunk(std::string_view data_sha256) {
  previous_ = key_.sign(
      joined({"AWS4-HMAC-SHA256-PAYLOAD", timestamp_, scope_, previous_, kEmptySha256, data_sha256},
             '\n'));
  return previous_;
}

const std::string& ChunkSigner::sign_trailers(std::string_view trailers_sha256) {
  previous_ = key_.sign(
      joined({"AWS4-HMAC-SHA256-TRAILER", timestamp_, scope_, previous_, trailers_sha256}, '\n'));
  return previous_;
}

}  // namespace yard
