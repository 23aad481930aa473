#include "api/timestamp.h"

#include <charconv>
#include <chrono>
#include <cmath>

#include "base/clock.h"

namespace yard::api {
namespace {

// Takes a number of exactly `digits` digits off the front.
std::optional<int> take_number(std::string_view& text, size_t digits) {
  int value = 0;
  if (text.size() < digits) return std::nullopt;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + digits, value);
  if (failed != std::errc{} || end != text.data() + digits || text[0] == '-') return std::nullopt;
  text.remove_prefix(digits);
  return value;
}

bool take(std::string_view& text, char c) {
  if (text.empty() || text[0] != c) return false;
  text.remove_prefix(1);
  return true;
}

// "05:16:27", as seconds.
std::optional<double> take_time_of_day(std::string_view& text) {
  const auto hour = take_number(text, 2);
  if (!hour || !take(text, ':')) return std::nullopt;
  const auto minute = take_number(text, 2);
  if (!minute || !take(text, ':')) return std::nullopt;
  const auto second = take_number(text, 2);
  if (!second || *hour > 23 || *minute > 59 || *second > 60) return std::nullopt;
  return *hour * 3600.0 + *minute * 60.0 + *second;
}

double take_fraction(std::string_view& text) {
  if (!take(text, '.')) return 0;
  double fraction = 0;
  for (double place = 0.1; !text.empty() && text[0] >= '0' && text[0] <= '9'; place /= 10) {
    fraction += (text[0] - '0') * place;
    text.remove_prefix(1);
  }
  return fraction;
}

// "Z", "+01:00", "-0530", or nothing, which is UTC.
std::optional<double> take_offset(std::string_view& text) {
  if (text.empty() || take(text, 'Z')) return 0;
  const bool is_west = text[0] == '-';
  if (!take(text, '+') && !take(text, '-')) return std::nullopt;
  const auto hours = take_number(text, 2);
  (void)take(text, ':');
  const auto minutes = take_number(text, 2);
  if (!hours || !minutes) return std::nullopt;
  return (is_west ? -1 : 1) * (*hours * 3600.0 + *minutes * 60.0);
}

std::optional<double> take_date(std::string_view& text) {
  const auto year = take_number(text, 4);
  if (!year || !take(text, '-')) return std::nullopt;
  const auto month = take_number(text, 2);
  if (!month || !take(text, '-')) return std::nullopt;
  const auto day = take_number(text, 2);
  if (!day) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(*year), std::chrono::month(*month),
                                         std::chrono::day(*day)};
  if (!date.ok()) return std::nullopt;
  return double(std::chrono::sys_days(date).time_since_epoch().count()) * 86400;
}

std::optional<double> parse_iso8601(std::string_view text) {
  const auto date = take_date(text);
  if (!date) return std::nullopt;
  if (text.empty()) return date;
  if (!take(text, 'T') && !take(text, ' ')) return std::nullopt;
  const auto time = take_time_of_day(text);
  if (!time) return std::nullopt;
  const double fraction = take_fraction(text);
  const auto offset = take_offset(text);
  if (!offset || !text.empty()) return std::nullopt;
  return *date + *time + fraction - *offset;
}

}  // namespace

std::optional<double> parse_timestamp(std::string_view text) {
  if (const auto seconds = parse_iso8601(text)) return seconds;
  double seconds = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (failed != std::errc{} || end != text.data() + text.size() || !std::isfinite(seconds))
    return std::nullopt;
  return seconds;
}

std::string format_timestamp(double unix_s) {
  const auto ms = std::chrono::milliseconds(std::llround(unix_s * 1000));
  return to_rfc3339(Clock::Wall(std::chrono::duration_cast<Clock::Wall::duration>(ms)));
}

double rounded_to_ms(double unix_s) {
  return std::round(unix_s * 1000) / 1000;
}

}  // namespace yard::api
