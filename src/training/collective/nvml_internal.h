// The GPUs that NVIDIA's management library knows, opened at run time with our own prototypes, so
// that nothing of CUDA is needed to build.
// Source of the interface: NVML API reference.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collective/hardware.h"

namespace yard::collective {

// The address of the library's function of that name, null for none.
using ResolveNvml = std::function<void*(const char* name)>;

// Empty where the library, the driver or a GPU is missing.
std::vector<Gpu> read_gpus();
// With another way of finding the functions.
std::vector<Gpu> read_gpus(const ResolveNvml& resolve);

}  // namespace yard::collective
