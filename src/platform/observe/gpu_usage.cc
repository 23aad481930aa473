#include "observe/gpu_usage.h"

#include <dlfcn.h>

namespace yard::observe {
namespace {

// Of the NVML API reference.
constexpr int kNvmlSuccess = 0;
struct NvmlUtilization {
  unsigned gpu, memory;  // percent
};
struct NvmlMemory {
  unsigned long long total, free, used;
};

int close_library(void* handle) {
  return handle == nullptr ? 0 : ::dlclose(handle);
}

// A function that is missing fails.
template <typename... Arguments>
bool succeeds(const GpuMeter::FindSymbol& find, const char* name, Arguments... arguments) {
  void* const symbol = find(name);
  return symbol != nullptr &&
         reinterpret_cast<int (*)(Arguments...)>(symbol)(arguments...) == kNvmlSuccess;
}

}  // namespace

GpuMeter::GpuMeter()
    : library_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL), &close_library) {
  find_ = [handle = library_.get()](const char* name) {
    return handle == nullptr ? nullptr : ::dlsym(handle, name);
  };
  is_open_ = succeeds(find_, "nvmlInit_v2");
}

GpuMeter::GpuMeter(FindSymbol find)
    : library_(nullptr, &close_library),
      find_(std::move(find)),
      is_open_(succeeds(find_, "nvmlInit_v2")) {}

GpuMeter::~GpuMeter() {
  if (is_open_) succeeds(find_, "nvmlShutdown");
}

std::optional<GpuUsage> GpuMeter::look(int gpu_index) const {
  void* device = nullptr;
  if (!is_open_ || gpu_index < 0 ||
      !succeeds(find_, "nvmlDeviceGetHandleByIndex_v2", static_cast<unsigned>(gpu_index), &device))
    return std::nullopt;
  NvmlUtilization load{};
  NvmlMemory memory{};
  if (!succeeds(find_, "nvmlDeviceGetUtilizationRates", device, &load) ||
      !succeeds(find_, "nvmlDeviceGetMemoryInfo", device, &memory))
    return std::nullopt;
  GpuUsage usage{.busy_percent = double(load.gpu), .memory_bytes = double(memory.used)};
  if (memory.total > 0) usage.memory_percent = 100.0 * double(memory.used) / double(memory.total);
  unsigned milliwatts = 0;
  if (succeeds(find_, "nvmlDeviceGetPowerUsage", device, &milliwatts))
    usage.power_watts = milliwatts / 1000.0;
  return usage;
}

std::optional<GpuUsage> GpuMeter::look(const std::vector<int>& gpu_indices) const {
  GpuUsage sum;
  int count = 0;
  for (const int index : gpu_indices) {
    const auto one = look(index);
    if (!one) continue;
    ++count;
    sum.busy_percent += one->busy_percent;
    sum.memory_bytes += one->memory_bytes;
    sum.memory_percent += one->memory_percent;
    sum.power_watts += one->power_watts;
  }
  if (count == 0) return std::nullopt;
  sum.busy_percent /= count;
  sum.memory_percent /= count;
  return sum;
}

}  // namespace yard::observe
