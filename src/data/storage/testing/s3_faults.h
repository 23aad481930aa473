// Faults of an S3 server for tests: which call fails, and how.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "base/testing/fake_clock.h"
#include "storage/testing/fake_s3.h"

namespace yard::storage::testing {

// Bytes that do not repeat soon.
inline std::string bytes_text(size_t size_bytes, unsigned seed = 1) {
  std::string text(size_bytes, '\0');
  for (size_t i = 0; i < size_bytes; ++i)
    text[i] = static_cast<char>((i * 2654435761U + seed) >> 13);
  return text;
}

inline const std::string& six_mib() {
  static const std::string text = bytes_text(6 << 20);  // six parts
  return text;
}

inline std::span<const std::byte> bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

inline bool is_range(const S3Call& call) {
  return call.method == "GET" && !call.range.empty();
}

// Fails the n-th call that `which` picks, once; or every one from the n-th on.
inline FakeS3::Fate fault_at(int number, S3Fault fault, std::function<bool(const S3Call&)> which,
                             bool forever = false) {
  auto count = std::make_shared<std::atomic<int>>(0);
  return [=](const S3Call& call) -> S3Fault {
    if (!which(call)) return {};
    const int index = (*count)++;
    return index == number || (forever && index > number) ? fault : S3Fault();
  };
}

inline S3Fault answer(int status, std::string code) {
  return {.status = status, .body = "<Error><Code>" + code + "</Code><Message>m</Message></Error>"};
}

// A server and a clock for its client.
class Clocked {
 public:
  explicit Clocked(FakeS3::Fate fate = nullptr) : server(std::move(fate), clock) {}
  S3Store store() { return server.store(server.options(), clock); }

  FakeClock clock;  // sleeps of retries take no time
  FakeS3 server;
};

}  // namespace yard::storage::testing
