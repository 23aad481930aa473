// For tests: NCCL's entry points on host memory, between threads of this process. A stream is
// ignored; an operation is done when it returns.
#pragma once

#include "collective/device_group.h"

namespace yard::collective {

// Finds the functions of the stand-in, but not `missing`.
ResolveSymbol fake_nccl(const std::string& missing = "");
// From now on the stand-in reports that a remote process has ended.
void break_fake_nccl(bool is_broken);

}  // namespace yard::collective
