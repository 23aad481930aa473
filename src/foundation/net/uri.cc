#include "net/uri.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "net/encoding.h"

namespace yard {
namespace {

constexpr std::array<bool, 256> unreserved() {
  std::array<bool, 256> table{};
  for (int c = 0; c < 256; ++c)
    table[static_cast<size_t>(c)] = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                                    (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' ||
                                    c == '~';
  return table;
}

constexpr auto kUnreserved = unreserved();

std::string encode(std::string_view bytes, std::string_view also_kept) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string text;
  text.reserve(bytes.size() + bytes.size() / 4);
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    if (kUnreserved[byte] || also_kept.find(c) != std::string_view::npos) {
      text += c;
    } else {
      text += '%';
      text += digits[byte >> 4];
      text += digits[byte & 15];
    }
  }
  return text;
}

bool is_allowed_in_target(char c) {
  const auto byte = static_cast<uint8_t>(c);
  return byte > 0x20 && byte != 0x7F && byte != '#';
}

// "host/path" split before the '/' or '?' that ends the authority.
Result<RequestTarget> split_absolute(std::string_view rest) {
  const size_t end = std::min(rest.find_first_of("/?"), rest.size());
  RequestTarget target;
  target.authority = rest.substr(0, end);
  if (target.authority.empty())
    return Error{Code::kInvalidArgument, "request target: no host after '://'"};
  rest.remove_prefix(end);
  const size_t question = std::min(rest.find('?'), rest.size());
  target.raw_path = question == 0 ? "/" : rest.substr(0, question);
  if (question < rest.size()) target.raw_query = rest.substr(question + 1);
  return target;
}

}  // namespace

std::string percent_encode(std::string_view bytes) {
  return encode(bytes, "");
}
std::string percent_encode_path(std::string_view bytes) {
  return encode(bytes, "/");
}

Result<std::string> percent_decode(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      bytes += text[i];
      continue;
    }
    const auto byte = i + 2 < text.size() ? hex_decode(text.substr(i + 1, 2)) : std::nullopt;
    if (!byte)
      return Error{Code::kInvalidArgument,
                   "'%' without two hexadecimal digits at byte " + std::to_string(i)};
    bytes += *byte;
    i += 2;
  }
  return bytes;
}

Result<std::vector<QueryPair>> parse_query(std::string_view raw_query) {
  std::vector<QueryPair> pairs;
  while (!raw_query.empty()) {
    const size_t end = std::min(raw_query.find('&'), raw_query.size());
    const std::string_view piece = raw_query.substr(0, end);
    raw_query.remove_prefix(std::min(end + 1, raw_query.size()));
    if (piece.empty()) continue;
    const size_t equals = std::min(piece.find('='), piece.size());
    YARD_ASSIGN(auto name, percent_decode(piece.substr(0, equals)));
    YARD_ASSIGN(auto value, percent_decode(piece.substr(std::min(equals + 1, piece.size()))));
    pairs.push_back({std::move(name), std::move(value)});
  }
  return pairs;
}

std::string format_query(const std::vector<QueryPair>& query) {
  std::string text;
  for (const auto& [name, value] : query) {
    if (!text.empty()) text += '&';
    text += percent_encode(name) + '=' + percent_encode(value);
  }
  return text;
}

Result<RequestTarget> split_target(std::string_view raw_target) {
  if (raw_target.empty()) return Error{Code::kInvalidArgument, "request target: empty"};
  if (!std::ranges::all_of(raw_target, is_allowed_in_target))
    return Error{Code::kInvalidArgument,
                 "request target: a space, a control character or '#' inside"};
  if (raw_target == "*") return RequestTarget{.raw_path = "*"};
  if (raw_target.starts_with('/')) {
    const size_t question = std::min(raw_target.find('?'), raw_target.size());
    return RequestTarget{
        .raw_path = std::string(raw_target.substr(0, question)),
        .raw_query = std::string(raw_target.substr(std::min(question + 1, raw_target.size())))};
  }
  for (const std::string_view scheme : {"http://", "https://"})
    if (raw_target.starts_with(scheme)) return split_absolute(raw_target.substr(scheme.size()));
  return Error{Code::kInvalidArgument, "request target: neither a path nor an http URL"};
}

std::string normalize_path(std::string_view path) {
  std::vector<std::string_view> parts;
  const bool ends_with_slash = path.ends_with('/');
  while (!path.empty()) {
    const size_t end = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, end);
    path.remove_prefix(std::min(end + 1, path.size()));
    if (part == "..") {
      if (!parts.empty()) parts.pop_back();
    } else if (!part.empty() && part != ".") {
      parts.push_back(part);
    }
  }
  std::string normal;
  for (const std::string_view part : parts) normal.append("/").append(part);
  if (ends_with_slash || parts.empty()) normal += '/';
  return normal;
}

}  // namespace yard
