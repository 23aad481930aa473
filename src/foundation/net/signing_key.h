// The keys of AWS Signature Version 4: derived from a secret for one day, region and service.
#pragma once

#include <array>
#include <cstddef>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace yard {

// HMAC-SHA-256 (RFC 2104). Pure.
std::array<std::byte, 32> hmac_sha256(std::span<const std::byte> key, std::string_view text);

// A derived key; signs any number of texts. Immutable.
class SigningKey {
 public:
  // date: "20130524". Four HMACs; SigningKeyCache remembers them.
  static SigningKey derive(std::string_view secret_key, std::string_view date,
                           std::string_view region, std::string_view service);
  // 64 lower-case hexadecimal digits.
  std::string sign(std::string_view text) const;

 private:
  explicit SigningKey(std::array<std::byte, 32> key) : key_(key) {}
  std::array<std::byte, 32> key_;
};

// Thread-safe. Holds at most `key_count_max` keys and drops them all when it would hold more: they
// change every day anyway, and a day's working set is small.
class SigningKeyCache {
 public:
  explicit SigningKeyCache(size_t key_count_max = 1024) : key_count_max_(key_count_max) {}

  SigningKey get(std::string_view secret_key, std::string_view date, std::string_view region,
                 std::string_view service);
  size_t key_count() const;

 private:
  const size_t key_count_max_;
  mutable std::shared_mutex mutex_;
  std::unordered_map<std::string, SigningKey> keys_;
};

// The chain of signatures in an `aws-chunked` body: each covers the one before it, the first that
// of the request. Not thread-safe.
class ChunkSigner {
 public:
  // timestamp: "20130524T000000Z"; scope: "20130524/us-east-1/s3/aws4_request".
  ChunkSigner(SigningKey key, std::string timestamp, std::string scope, std::string seed_signature)
      : key_(key),
        timestamp_(std::move(timestamp)),
        scope_(std::move(scope)),
        previous_(std::move(seed_signature)) {}

  // The signature of the next chunk out of the hexadecimal SHA-256 of its data.
  const std::string& sign_chunk(std::string_view data_sha256);
  // The signature of the trailers, after the last chunk, out of the SHA-256 of their lines, each
  // "name:value\n".
  const std::string& sign_trailers(std::string_view trailers_sha256);
  const std::string& signature() const { return previous_; }  // the latest

 private:
  SigningKey key_;
  std::string timestamp_;
  std::string scope_;
  std::string previous_;
};

}  // namespace yard
