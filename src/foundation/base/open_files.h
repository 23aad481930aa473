// How many files a process may have open: RLIMIT_NOFILE.
#pragma once

#include <cstddef>

namespace yard {

// The soft limit, which open() and accept() keep to.
size_t open_files_max();

// Raises the soft limit, which is 1,024 on most machines for the sake of programs that use
// select(), to the hard one or 65,536, whichever is less; never lowers it. Child processes inherit
// it. Returns what it is then. Call at the start of a program that holds many connections.
size_t raise_open_files_max();

}  // namespace yard
