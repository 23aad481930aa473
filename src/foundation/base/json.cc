#include "base/json.h"

#include <algorithm>

#include "base/nearest_name.h"

namespace yard {

Result<Json> parse_json(std::string_view text, std::string_view what) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    size_t line = 1, column = 1;
    const size_t end = std::min(text.size(), error.byte == 0 ? 0 : error.byte - 1);
    for (size_t i = 0; i < end; ++i) {
      column = text[i] == '\n' ? 1 : column + 1;
      line += text[i] == '\n' ? 1 : 0;
    }
    return Error{Code::kInvalidArgument, std::string(what) + ":" + std::to_string(line) + ":" +
                                             std::to_string(column) + ": not JSON"};
  }
}

namespace json_internal {

Error missing(std::string_view what, std::string_view key) {
  return {Code::kInvalidArgument, std::string(what) + ": '" + std::string(key) + "' is missing"};
}

Error wrong_type(std::string_view what, std::string_view key, std::string_view wanted,
                 const Json& got) {
  std::string shown = got.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (shown.size() > 60) shown = shown.substr(0, 57) + "...";
  return {Code::kInvalidArgument, std::string(what) + ": '" + std::string(key) + "' must be " +
                                      std::string(wanted) + ", not " + shown};
}

}  // namespace json_internal

Status refuse_unknown_keys(const Json& object, const std::vector<std::string_view>& known,
                           std::string_view what) {
  if (!object.is_object()) {
    return Error{Code::kInvalidArgument, std::string(what) + ": not an object"};
  }
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return Error{Code::kInvalidArgument,
                   std::string(what) + ": unknown key '" + key + "'" + suggestion(key, known)};
    }
  }
  return Ok{};
}

}  // namespace yard
