#include "base/ids.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <ctime>

#include "base/result.h"

namespace yard {

std::string random_name(size_t length) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::string name;
  while (name.size() < length) {
    unsigned char byte = 0;
    if (getrandom(&byte, 1, 0) != 1) continue;                 // interrupted by a signal
    if (byte < 252) name += kLetters[byte % kLetters.size()];  // 252 = 7 * 36: no bias
  }
  return name;
}

std::string make_job_name(const std::string& prefix, Clock::Wall time) {
  constexpr size_t kLengthMax = 63;  // SageMaker's limit
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  const std::string suffix =
      fmt::format("-{:04}{:02}{:02}-{:02}{:02}{:02}-{}", utc.tm_year + 1900, utc.tm_mon + 1,
                  utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, random_name(4));
  return prefix.substr(0, kLengthMax - suffix.size()) + suffix;
}

}  // namespace yard
