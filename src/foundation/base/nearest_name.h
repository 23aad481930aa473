// For error messages: the name that was probably meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace yard {

// The member of `names` with the smallest edit distance to `name`, if that is at most a third of
// its length plus one; else empty.
std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& names);

// ", did you mean 'x'?" or, when nothing is near, " (known: a, b, c)".
std::string suggestion(std::string_view name, const std::vector<std::string_view>& names);

}  // namespace yard
