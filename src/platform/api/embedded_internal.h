// What CMake builds into the module, see yard_embed().
#pragma once

#include <string_view>

namespace yard::api {

// shapes/NAME; empty when there is none of that name.
std::string_view shapes_text(std::string_view name);

}  // namespace yard::api
