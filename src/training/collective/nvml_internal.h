// The GPUs that NVIDIA's management library knows, opened at run time with our own prototypes, so
// that nothing of CUDA is needed to build.
// Source of the interface: NVML API reference.
#pragma once

#include <vector>

#include "collective/hardware.h"
#include "collective/symbols.h"

namespace yard::collective {

// Empty where the library, the driver or a GPU is missing.
std::vector<Gpu> read_gpus();
// With another way of finding the functions.
std::vector<Gpu> read_gpus(const ResolveSymbol& resolve);

}  // namespace yard::collective
