// The one seam to nlohmann::json: parse without exceptions, read fields with errors that name them.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace yard {

using Json = nlohmann::json;

// kInvalidArgument with `what`, line and column for text that is not JSON.
Result<Json> parse_json(std::string_view text, std::string_view what);

namespace json_internal {
Error missing(std::string_view what, std::string_view key);
Error wrong_type(std::string_view what, std::string_view key, std::string_view wanted,
                 const Json& got);
// The library would wrap a number that T cannot hold and cut the fraction of one in a list.
template <std::integral T>
bool holds_integer(const Json& value) {
  if (value.is_number_unsigned()) return std::in_range<T>(value.get<uint64_t>());
  return value.is_number_integer() && std::in_range<T>(value.get<int64_t>());
}
template <typename T>
inline constexpr bool is_vector = false;
template <typename T>
inline constexpr bool is_vector<std::vector<T>> = true;

template <typename T>
bool holds(const Json& value) {
  if constexpr (std::same_as<T, bool>)
    return value.is_boolean();
  else if constexpr (std::integral<T>)
    return holds_integer<T>(value);
  else if constexpr (std::floating_point<T>)
    return value.is_number();
  else if constexpr (std::same_as<T, std::string>)
    return value.is_string();
  else if constexpr (is_vector<T>)
    return value.is_array() &&
           std::all_of(value.begin(), value.end(), holds<typename T::value_type>);
  else
    return true;
}
template <typename T>
constexpr std::string_view wanted() {
  if constexpr (std::same_as<T, bool>)
    return "true or false";
  else if constexpr (std::integral<T>)
    return std::unsigned_integral<T> ? "a whole number from 0" : "a whole number";
  else if constexpr (std::floating_point<T>)
    return "a number";
  else if constexpr (std::same_as<T, std::string>)
    return "a string";
  else if constexpr (is_vector<T>)
    return "a list of the documented kind";
  else
    return "a value of the documented shape";
}
}  // namespace json_internal

// object[key] as T (bool, integers, double, std::string, or a vector of those). `what` names the
// document: "config.json". kInvalidArgument when missing or of another type.
template <typename T>
Result<T> json_field(const Json& object, std::string_view key, std::string_view what) {
  if (!object.is_object())
    return Error{Code::kInvalidArgument, std::string(what) + ": not an object"};
  const auto it = object.find(key);
  if (it == object.end()) return json_internal::missing(what, key);
  if (!json_internal::holds<T>(*it))
    return json_internal::wrong_type(what, key, json_internal::wanted<T>(), *it);
  try {
    return it->template get<T>();
  } catch (const Json::exception&) {
    return json_internal::wrong_type(what, key, json_internal::wanted<T>(), *it);
  }
}

// Like json_field, `fallback` when the key is absent or null.
template <typename T>
Result<T> json_field_or(const Json& object, std::string_view key, T fallback,
                        std::string_view what) {
  if (object.is_object()) {
    const auto it = object.find(key);
    if (it == object.end() || it->is_null()) return fallback;
  }
  return json_field<T>(object, key, what);
}

// Refuses keys that are not in `known`: "recipe: unknown key 'leraning_rate', did you mean
// 'learning_rate'?"
Status refuse_unknown_keys(const Json& object, const std::vector<std::string_view>& known,
                           std::string_view what);

}  // namespace yard
