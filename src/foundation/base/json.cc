#include "base/json.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/nearest_name.h"

namespace yard {
namespace {

struct Position {
  size_t line = 1;
  size_t column = 1;
};

Position position_of(std::string_view text, size_t byte) {
  const auto before = text.substr(0, byte == 0 ? 0 : byte - 1);  // the parser counts from 1
  const auto line_start = before.rfind('\n') + 1;                // npos + 1 is 0
  return {.line = 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n')),
          .column = before.size() - line_start + 1};
}

// Drops the library's "[json.exception...] parse error at line 1, column 2: ".
std::string reason_of(std::string_view message) {
  const auto colon = message.find(": ");
  return std::string(colon == std::string_view::npos ? message : message.substr(colon + 2));
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view what) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    const auto [line, column] = position_of(text, error.byte);
    return Error{Code::kInvalidArgument, fmt::format("{}: line {}, column {}: {}", what, line,
                                                     column, reason_of(error.what()))};
  } catch (const Json::exception& error) {
    return Error{Code::kInvalidArgument, fmt::format("{}: {}", what, reason_of(error.what()))};
  }
}

namespace json_internal {

Error missing(std::string_view what, std::string_view key) {
  return {Code::kInvalidArgument, fmt::format("{}: '{}' is missing", what, key)};
}

Error wrong_type(std::string_view what, std::string_view key, std::string_view wanted,
                 const Json& got) {
  constexpr size_t kShownMax = 60;
  std::string shown = got.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (shown.size() > kShownMax) shown = shown.substr(0, kShownMax) + "...";
  return {Code::kInvalidArgument, fmt::format("{}: '{}' is {}, not {}", what, key, shown, wanted)};
}

}  // namespace json_internal

Status refuse_unknown_keys(const Json& object, const std::vector<std::string_view>& known,
                           std::string_view what) {
  if (!object.is_object())
    return Error{Code::kInvalidArgument, std::string(what) + ": not an object"};
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: unknown key '{}'{}", what, key, suggestion(key, known))};
  }
  return Ok{};
}

}  // namespace yard
