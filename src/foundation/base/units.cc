#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace yard {
namespace {

constexpr std::array<std::pair<std::string_view, uint64_t>, 13> kSizeUnits = {{
    {"", 1},
    {"B", 1},
    {"k", 1ULL << 10},
    {"KiB", 1ULL << 10},
    {"MiB", 1ULL << 20},
    {"GiB", 1ULL << 30},
    {"TiB", 1ULL << 40},
    {"M", 1ULL << 20},
    {"G", 1ULL << 30},
    {"kB", 1000},
    {"MB", 1'000'000},
    {"GB", 1'000'000'000},
    {"TB", 1'000'000'000'000},
}};

Error bad(std::string_view kind, std::string_view text, std::string_view example) {
  return {Code::kInvalidArgument,
          fmt::format("'{}' is not a {} (write it as {})", text, kind, example)};
}

// Splits a leading decimal number off `text`.
bool take_number(std::string_view& text, double& number) {
  const auto [end, ec] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (ec != std::errc{} || end == text.data() || number < 0) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

}  // namespace

Result<uint64_t> parse_size_bytes(std::string_view text) {
  std::string_view rest = text;
  double number = 0;
  if (!take_number(rest, number)) return bad("size", text, "512MiB, 1GiB or 5GB");
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  for (const auto& [unit, factor] : kSizeUnits) {
    if (rest != unit) continue;
    const double size = number * static_cast<double>(factor);
    if (size >= 0x1p63) return bad("size below 2^63 bytes", text, "512MiB, 1GiB or 5GB");
    return static_cast<uint64_t>(std::llround(size));
  }
  return bad("size", text, "512MiB, 1GiB or 5GB");
}

std::string format_size_bytes(uint64_t size_bytes) {
  constexpr std::array<std::string_view, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(size_bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kNames.size(); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", size_bytes)
                   : fmt::format("{:.1f} {}", value, kNames[unit]);
}

Result<std::chrono::milliseconds> parse_duration(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 5> kUnits = {
      {{"ms", 1}, {"s", 1e3}, {"m", 6e4}, {"h", 3.6e6}, {"d", 8.64e7}}};
  std::string_view rest = text;
  double total_ms = 0;
  if (rest.empty()) return bad("duration", text, "90s, 2m or 1h30m");
  while (!rest.empty()) {
    double number = 0;
    if (!take_number(rest, number)) return bad("duration", text, "90s, 2m or 1h30m");
    size_t letters = 0;
    while (letters < rest.size() && rest[letters] >= 'a' && rest[letters] <= 'z') ++letters;
    bool found = false;
    for (const auto& [unit, factor] : kUnits) {
      if (rest.substr(0, letters) != unit) continue;
      total_ms += number * factor;
      found = true;
    }
    if (!found || total_ms >= 0x1p62) return bad("duration", text, "90s, 2m or 1h30m");
    rest.remove_prefix(letters);
  }
  return std::chrono::milliseconds(std::llround(total_ms));
}

std::string format_duration(std::chrono::nanoseconds duration) {
  const double seconds = std::chrono::duration<double>(duration).count();
  if (seconds < 60) return fmt::format("{:.1f}s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole % 3600 / 60);
}

}  // namespace yard
