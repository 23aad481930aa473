#include "base/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

namespace yard {
namespace {

struct SizeUnit {
  std::string_view name;
  double bytes;
};

constexpr double kKi = 1024.0;
constexpr std::array kSizeUnits = {
    SizeUnit{"", 1},
    SizeUnit{"b", 1},
    SizeUnit{"k", kKi},
    SizeUnit{"ki", kKi},
    SizeUnit{"kib", kKi},
    SizeUnit{"kb", 1e3},
    SizeUnit{"m", kKi* kKi},
    SizeUnit{"mi", kKi* kKi},
    SizeUnit{"mib", kKi* kKi},
    SizeUnit{"mb", 1e6},
    SizeUnit{"g", kKi* kKi* kKi},
    SizeUnit{"gi", kKi* kKi* kKi},
    SizeUnit{"gib", kKi* kKi* kKi},
    SizeUnit{"gb", 1e9},
    SizeUnit{"t", kKi* kKi* kKi* kKi},
    SizeUnit{"ti", kKi* kKi* kKi* kKi},
    SizeUnit{"tib", kKi* kKi* kKi* kKi},
    SizeUnit{"tb", 1e12},
};

struct DurationUnit {
  std::string_view name;
  double milliseconds;
};

constexpr std::array kDurationUnits = {
    DurationUnit{"ms", 1},       DurationUnit{"s", 1000},      DurationUnit{"m", 60'000},
    DurationUnit{"min", 60'000}, DurationUnit{"h", 3'600'000}, DurationUnit{"d", 86'400'000},
};

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return result;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Takes digits with at most one fraction off the front; no sign, no exponent, no "inf".
std::optional<double> take_number(std::string_view& text) {
  if (text.empty() || !is_digit(text.front())) return std::nullopt;
  double value = 0;
  const auto [end, failed] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (failed != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

std::string_view take_letters(std::string_view& text) {
  const auto end =
      std::find_if(text.begin(), text.end(), [](char c) { return is_digit(c) || c == ' '; });
  const auto letters = text.substr(0, static_cast<size_t>(end - text.begin()));
  text.remove_prefix(letters.size());
  return letters;
}

Error bad(std::string_view text, std::string_view wanted) {
  return {Code::kInvalidArgument, fmt::format("'{}': {}", text, wanted)};
}

}  // namespace

Result<uint64_t> parse_size_bytes(std::string_view text) {
  constexpr std::string_view kWanted = "not a size such as 512MiB or 1.5GB";
  std::string_view rest = text;
  const auto number = take_number(rest);
  if (!number) return bad(text, kWanted);
  if (rest.size() > 1 && rest.front() == ' ') rest.remove_prefix(1);
  const auto unit =
      std::find_if(kSizeUnits.begin(), kSizeUnits.end(),
                   [name = lower(rest)](const SizeUnit& u) { return u.name == name; });
  if (unit == kSizeUnits.end()) return bad(text, kWanted);
  // A plain count of bytes keeps all its digits, which a double does not above 2^53.
  uint64_t exact = 0;
  const auto digits = text.substr(0, text.size() - rest.size());
  const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), exact);
  constexpr double kTooMany = 9223372036854775808.0;  // 2^63
  const double size_bytes = *number * unit->bytes;
  if (size_bytes >= kTooMany) return bad(text, "a size over 2^63 bytes");
  const bool whole = failed == std::errc() && (end == digits.data() + digits.size() || *end == ' ');
  if (whole) return exact * static_cast<uint64_t>(unit->bytes);
  return static_cast<uint64_t>(std::llround(size_bytes));
}

std::string format_size_bytes(uint64_t size_bytes) {
  constexpr std::array<std::string_view, 6> kNames = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (size_bytes < 1024) return fmt::format("{} B", size_bytes);
  double value = static_cast<double>(size_bytes) / kKi;
  size_t unit = 0;
  // 1023.95 would print as "1024.0": the next unit says it better.
  while (value >= 1023.95 && unit + 1 < kNames.size()) {
    value /= kKi;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kNames[unit]);
}

Result<std::chrono::milliseconds> parse_duration(std::string_view text) {
  constexpr std::string_view kWanted = "not a duration such as 90s, 2m, 1h30m or 250ms";
  std::string_view rest = text;
  double total_milliseconds = 0;
  do {
    const auto number = take_number(rest);
    if (!number) return bad(text, kWanted);
    const auto unit =
        std::find_if(kDurationUnits.begin(), kDurationUnits.end(),
                     [name = take_letters(rest)](const DurationUnit& u) { return u.name == name; });
    if (unit == kDurationUnits.end()) return bad(text, kWanted);
    total_milliseconds += *number * unit->milliseconds;
  } while (!rest.empty());
  // A hundred years: clocks add to it without overflow.
  constexpr double kMillisecondsMax = 100.0 * 365 * 86'400'000;
  if (total_milliseconds > kMillisecondsMax) return bad(text, "a duration over 100 years");
  return std::chrono::milliseconds(std::llround(total_milliseconds));
}

std::string format_duration(std::chrono::nanoseconds duration) {
  const double seconds = std::chrono::duration<double>(duration).count();
  if (seconds < 0) return "-" + format_duration(-duration);
  if (seconds < 0.9995) return fmt::format("{:.0f}ms", seconds * 1e3);
  if (seconds < 59.95) return fmt::format("{:.1f}s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole % 3600 / 60);
}

}  // namespace yard
