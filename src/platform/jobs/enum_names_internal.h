// Words of enumerations: stored and shown by name, in the order of their enumerators.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace yard::jobs::internal {

// The enumerator whose word it is.
template <typename Enum>
std::optional<Enum> from_name(std::span<const std::string_view> names, std::string_view name) {
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return static_cast<Enum>(i);
  return std::nullopt;
}

}  // namespace yard::jobs::internal
