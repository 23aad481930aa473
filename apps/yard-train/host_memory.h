// Memory of this host that is free, for what is sized by it.
#pragma once

#include <cstdint>

// What a process of this host may take yet: /proc/meminfo's MemAvailable, or what is left under the
// limits of its control groups (version 2) where that is less. 0: neither can be read.
uint64_t free_host_memory_bytes();
