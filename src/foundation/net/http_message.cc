#include "net/http_message.h"

#include <time.h>

#include <algorithm>
#include <array>

namespace yard {
namespace {

char to_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

constexpr std::array<std::string_view, 7> kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                      "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

constexpr std::pair<int, std::string_view> kStatusReasons[] = {
    {100, "Continue"},
    {101, "Switching Protocols"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {203, "Non-Authoritative Information"},
    {204, "No Content"},
    {205, "Reset Content"},
    {206, "Partial Content"},
    {300, "Multiple Choices"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {402, "Payment Required"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {417, "Expectation Failed"},
    {421, "Misdirected Request"},
    {422, "Unprocessable Content"},
    {425, "Too Early"},
    {426, "Upgrade Required"},
    {428, "Precondition Required"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"},
};

void append_two_digits(std::string& text, int number) {
  text += static_cast<char>('0' + number / 10);
  text += static_cast<char>('0' + number % 10);
}

// The number in text[at, at + count), digits only; -1 for anything else.
int digits_at(std::string_view text, size_t at, size_t count) {
  int number = 0;
  for (const char c : text.substr(at, count)) {
    if (c < '0' || c > '9') return -1;
    number = number * 10 + (c - '0');
  }
  return number;
}

template <size_t N>
int index_of(const std::array<std::string_view, N>& names, std::string_view name) {
  const auto found = std::ranges::find(names, name);
  return found == names.end() ? -1 : static_cast<int>(found - names.begin());
}

}  // namespace

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) {
           return x == y || to_lower(x) == to_lower(y);
         });
}

bool is_header_name(std::string_view text) {
  constexpr std::string_view kTokenMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return (to_lower(c) >= 'a' && to_lower(c) <= 'z') || (c >= '0' && c <= '9') ||
           kTokenMarks.find(c) != std::string_view::npos;
  });
}

bool is_header_value(std::string_view text) {
  return text.find_first_of(std::string_view("\r\n\0", 3)) == std::string_view::npos;
}

Headers::Headers(std::initializer_list<std::pair<std::string_view, std::string_view>> fields) {
  for (const auto& [name, value] : fields) add(name, value);
}

void Headers::add(std::string_view name, std::string_view value) {
  const Entry entry{text_.size(), name.size(), text_.size() + name.size(), value.size()};
  const size_t needed = text_.size() + name.size() + value.size();
  if (needed > text_.capacity()) {
    // `name` and `value` may be views of our own text, so the old one must live until the copy.
    std::string grown;
    grown.reserve(std::max<size_t>(needed * 2, 256));
    grown.append(text_).append(name).append(value);
    text_.swap(grown);
  } else {
    text_.append(name).append(value);
  }
  entries_.push_back(entry);
}

void Headers::set(std::string_view name, std::string_view value) {
  const size_t before = entries_.size();
  const std::string owned_name(name);  // add() may move the text that `name` is a view of
  add(name, value);
  const Entry added = entries_.back();
  entries_.pop_back();
  for (size_t i = 0; i < before; ++i) {
    if (!equals_ignoring_case((*this)[i].name, owned_name)) continue;
    entries_[i] = added;  // keeps its place in the order
    for (size_t j = entries_.size(); j-- > i + 1;)
      if (equals_ignoring_case((*this)[j].name, owned_name))
        entries_.erase(entries_.begin() + static_cast<ptrdiff_t>(j));
    return;
  }
  entries_.push_back(added);
}

void Headers::remove(std::string_view name) {
  std::erase_if(entries_, [&](const Entry& entry) {
    return equals_ignoring_case(std::string_view(text_).substr(entry.name_at, entry.name_bytes),
                                name);
  });
}

void Headers::clear() {
  text_.clear();
  entries_.clear();
}

std::optional<std::string_view> Headers::find(std::string_view name) const {
  for (const Field field : *this)
    if (equals_ignoring_case(field.name, name)) return field.value;
  return std::nullopt;
}

std::string_view Headers::value_or(std::string_view name, std::string_view otherwise) const {
  return find(name).value_or(otherwise);
}

std::string Headers::joined(std::string_view name) const {
  std::string values;
  bool first = true;
  for (const Field field : *this) {
    if (!equals_ignoring_case(field.name, name)) continue;
    if (!first) values += ", ";
    values += field.value;
    first = false;
  }
  return values;
}

Headers::Field Headers::operator[](size_t index) const {
  const Entry& entry = entries_[index];
  const std::string_view text = text_;
  return {text.substr(entry.name_at, entry.name_bytes),
          text.substr(entry.value_at, entry.value_bytes)};
}

std::string_view status_reason(int status) {
  const auto* found =
      std::ranges::find(kStatusReasons, status, &std::pair<int, std::string_view>::first);
  return found == std::end(kStatusReasons) ? std::string_view() : found->second;
}

std::string format_http_date(std::chrono::system_clock::time_point time) {
  using std::chrono::floor, std::chrono::seconds;
  const time_t unix_seconds = std::chrono::system_clock::to_time_t(floor<seconds>(time));
  tm parts{};
  ::gmtime_r(&unix_seconds, &parts);
  std::string text(kDays[static_cast<size_t>(parts.tm_wday)]);
  text += ", ";
  append_two_digits(text, parts.tm_mday);
  text += ' ';
  text += kMonths[static_cast<size_t>(parts.tm_mon)];
  text += ' ' + std::to_string(parts.tm_year + 1900) + ' ';
  append_two_digits(text, parts.tm_hour);
  text += ':';
  append_two_digits(text, parts.tm_min);
  text += ':';
  append_two_digits(text, parts.tm_sec);
  return text + " GMT";
}

Result<std::chrono::system_clock::time_point> parse_http_date(std::string_view text) {
  // Whole years that fit into the clock's nanoseconds.
  constexpr int kYearMin = 1678, kYearMax = 2261;
  const Error malformed{Code::kInvalidArgument, "not an HTTP date: '" + std::string(text) + "'"};
  constexpr std::string_view kShape = "Sun, 06 Nov 1994 08:49:37 GMT";
  if (text.size() != kShape.size()) return malformed;
  for (const size_t at : {3, 4, 7, 11, 16, 19, 22, 25, 26, 27, 28})
    if (text[at] != kShape[at]) return malformed;
  tm parts{};
  parts.tm_mday = digits_at(text, 5, 2);
  parts.tm_mon = index_of(kMonths, text.substr(8, 3));
  const int year = digits_at(text, 12, 4);
  parts.tm_year = year - 1900;
  parts.tm_hour = digits_at(text, 17, 2);
  parts.tm_min = digits_at(text, 20, 2);
  parts.tm_sec = digits_at(text, 23, 2);
  const bool in_range = index_of(kDays, text.substr(0, 3)) >= 0 && parts.tm_mon >= 0 &&
                        parts.tm_mday >= 1 && parts.tm_mday <= 31 && year >= kYearMin &&
                        year <= kYearMax && parts.tm_hour >= 0 && parts.tm_hour <= 23 &&
                        parts.tm_min >= 0 && parts.tm_min <= 59 && parts.tm_sec >= 0 &&
                        parts.tm_sec <= 60;
  if (!in_range) return malformed;
  return std::chrono::system_clock::from_time_t(::timegm(&parts));
}

}  // namespace yard
