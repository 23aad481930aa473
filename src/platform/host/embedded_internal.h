// What CMake builds into the module, see yard_embed().
#pragma once

#include <string_view>

namespace yard::host {

// "fork_server.py"; empty when there is none of that name.
std::string_view embedded_program(std::string_view name);

}  // namespace yard::host
