#include "net/sigv4_internal.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "net/checksums.h"
#include "net/uri.h"

namespace yard::sigv4_internal {
namespace {

using EncodedPair = std::pair<std::string, std::string>;

// Names are compared first, then values: "a=..." stands before "a-b=...", although '-' < '='.
std::string sorted_query(std::vector<EncodedPair> pairs) {
  std::ranges::sort(pairs);
  std::string text;
  for (const auto& [name, value] : pairs) {
    if (!text.empty()) text += '&';
    text.append(name).append("=").append(value);
  }
  return text;
}

std::optional<std::string> query_encoded(std::string_view raw_query) {
  auto query = parse_query(raw_query);
  if (!query) return std::nullopt;
  std::vector<EncodedPair> pairs;
  for (const auto& [name, value] : *query)
    if (name != "X-Amz-Signature") pairs.emplace_back(percent_encode(name), percent_encode(value));
  return sorted_query(std::move(pairs));
}

bool is_s3(std::string_view service) {
  return service == "s3";
}

std::vector<std::string> distinct(std::string first, std::string second) {
  if (first == second) return {std::move(first)};
  return {std::move(first), std::move(second)};
}

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

void append_squeezed(std::string& text, std::string_view value) {
  bool is_first = true;
  for (size_t i = 0; i < value.size();) {
    if (is_space(value[i])) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < value.size() && !is_space(value[end])) ++end;
    if (!std::exchange(is_first, false)) text += ' ';
    text += value.substr(i, end - i);
    i = end;
  }
}

// The decimal number that fills `text`.
std::optional<int> number(std::string_view text) {
  int value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

}  // namespace

std::string format_timestamp(Clock::Wall time) {
  using namespace std::chrono;
  const auto seconds_only = floor<seconds>(time);
  const auto day = floor<days>(seconds_only);
  const year_month_day date(day);
  const hh_mm_ss clock(seconds_only - day);
  char text[40];
  std::snprintf(text, sizeof text, "%04d%02u%02uT%02d%02d%02dZ", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
                static_cast<int>(clock.seconds().count()));
  return text;
}

std::optional<Clock::Wall> parse_timestamp(std::string_view text) {
  using namespace std::chrono;
  if (text.size() != 16 || text[8] != 'T' || text[15] != 'Z') return std::nullopt;
  const auto y = number(text.substr(0, 4)), mo = number(text.substr(4, 2)),
             d = number(text.substr(6, 2)), h = number(text.substr(9, 2)),
             mi = number(text.substr(11, 2)), s = number(text.substr(13, 2));
  if (!y || !mo || !d || !h || !mi || !s) return std::nullopt;
  const year_month_day date(year(*y), month(static_cast<unsigned>(*mo)),
                            day(static_cast<unsigned>(*d)));
  // The clock counts nanoseconds in 64 bits, which end in 2262.
  if (!date.ok() || *y < 1970 || *y > 2200 || *h > 23 || *mi > 59 || *s > 59) return std::nullopt;
  return Clock::Wall(sys_days(date)) + hours(*h) + minutes(*mi) + seconds(*s);
}

std::string canonical_path_as_sent(std::string_view raw_path, std::string_view service) {
  return is_s3(service) ? std::string(raw_path) : percent_encode_path(normalize_path(raw_path));
}

std::string canonical_query_as_sent(std::string_view raw_query) {
  std::vector<EncodedPair> pairs;
  while (!raw_query.empty()) {
    const size_t end = std::min(raw_query.find('&'), raw_query.size());
    const std::string_view piece = raw_query.substr(0, end);
    raw_query.remove_prefix(std::min(end + 1, raw_query.size()));
    const size_t equals = std::min(piece.find('='), piece.size());
    const std::string_view name = piece.substr(0, equals);
    if (piece.empty() || name == "X-Amz-Signature") continue;
    pairs.emplace_back(name, piece.substr(std::min(equals + 1, piece.size())));
  }
  return sorted_query(std::move(pairs));
}

std::vector<std::string> canonical_paths(std::string_view raw_path, std::string_view service) {
  const auto path = percent_decode(raw_path);
  if (!path) return {};
  std::string as_sent = canonical_path_as_sent(raw_path, service);
  if (!is_s3(service)) return {std::move(as_sent)};
  return distinct(percent_encode_path(*path), std::move(as_sent));
}

std::vector<std::string> canonical_queries(std::string_view raw_query) {
  auto encoded = query_encoded(raw_query);
  if (!encoded) return {};
  return distinct(*std::move(encoded), canonical_query_as_sent(raw_query));
}

std::optional<std::string> canonical_headers(const Headers& headers,
                                             std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) {
    text.append(name) += ':';
    bool found = false;
    for (const auto field : headers) {
      if (!equals_ignoring_case(field.name, name)) continue;
      if (std::exchange(found, true)) text += ',';
      append_squeezed(text, field.value);
    }
    if (!found) return std::nullopt;
    text += '\n';
  }
  return text;
}

std::string canonical_request(std::string_view method, std::string_view canonical_path,
                              std::string_view canonical_query, std::string_view canonical_headers,
                              std::string_view signed_headers, std::string_view payload) {
  const std::string_view parts[] = {
      method, canonical_path, canonical_query, canonical_headers, signed_headers, payload};
  return join(parts, '\n');
}

std::string credential_scope(std::string_view date, std::string_view region,
                             std::string_view service) {
  const std::string_view parts[] = {date, region, service, "aws4_request"};
  return join(parts, '/');
}

std::string string_to_sign(std::string_view timestamp, std::string_view scope,
                           std::string_view canonical_request) {
  const std::string hash = sha256_hex(canonical_request);
  const std::string_view parts[] = {kAlgorithm, timestamp, scope, hash};
  return join(parts, '\n');
}

std::string join(std::span<const std::string_view> parts, char separator) {
  std::string text;
  size_t size = parts.size();
  for (const std::string_view part : parts) size += part.size();
  text.reserve(size);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += separator;
    text += parts[i];
  }
  return text;
}

std::string to_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

}  // namespace yard::sigv4_internal
