#include "base/ids.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <iterator>

#include "base/result.h"

namespace yard {
namespace {

constexpr size_t kJobNameSizeMax = 63;

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// At most 256: then the kernel gives all of them.
template <size_t kCount>
std::array<uint8_t, kCount> random_bytes() {
  std::array<uint8_t, kCount> bytes{};
  ssize_t got = 0;
  do {
    got = ::getrandom(bytes.data(), kCount, 0);
  } while (got < 0 && errno == EINTR);
  YARD_CHECK(got == ssize_t{kCount});
  return bytes;
}

// Letters and digits, and between them '-' for everything else.
std::string clean_prefix(const std::string& prefix, size_t size_max) {
  std::string cleaned;
  for (const char c : prefix) {
    if (is_letter_or_digit(c))
      cleaned += c;
    else if (!cleaned.empty() && cleaned.back() != '-')
      cleaned += '-';
  }
  cleaned.resize(std::min(cleaned.size(), size_max));
  while (!cleaned.empty() && cleaned.back() == '-') cleaned.pop_back();
  return cleaned.empty() ? "job" : cleaned;
}

}  // namespace

std::string make_job_name(const std::string& prefix, Clock::Wall time) {
  const std::time_t unix_seconds = std::chrono::system_clock::to_time_t(time);
  std::tm utc{};
  gmtime_r(&unix_seconds, &utc);
  const std::string suffix =
      fmt::format("-{:04}{:02}{:02}-{:02}{:02}{:02}-{}", utc.tm_year + 1900, utc.tm_mon + 1,
                  utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, random_name(4));
  return clean_prefix(prefix, kJobNameSizeMax - suffix.size()) + suffix;
}

std::string random_name(size_t length) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  constexpr uint8_t kFair = 256 / kLetters.size() * kLetters.size();  // above it: draw again
  std::string name;
  while (name.size() < length) {
    if (const uint8_t byte = random_bytes<1>()[0]; byte < kFair)
      name += kLetters[byte % kLetters.size()];
  }
  return name;
}

std::string random_uuid() {
  auto bytes = random_bytes<16>();
  bytes[6] = static_cast<uint8_t>((bytes[6] & 0x0f) | 0x40);  // version 4
  bytes[8] = static_cast<uint8_t>((bytes[8] & 0x3f) | 0x80);  // variant of RFC 9562
  std::string uuid;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) uuid += '-';
    fmt::format_to(std::back_inserter(uuid), "{:02x}", bytes[i]);
  }
  return uuid;
}

}  // namespace yard
