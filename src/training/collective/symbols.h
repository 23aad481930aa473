// How functions of a library that is opened at run time are found.
#pragma once

#include <functional>

namespace yard::collective {

// The address of the library's function of that name, null for none.
using ResolveSymbol = std::function<void*(const char* name)>;

}  // namespace yard::collective
