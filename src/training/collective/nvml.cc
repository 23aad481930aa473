#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <memory>

#include "collective/nvml_internal.h"

namespace yard::collective {
namespace {

using Device = void*;
constexpr int kSuccess = 0;
constexpr unsigned kLinksMax = 18;

struct Memory {
  unsigned long long total, free, used;
};

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

// Calls functions by name; a missing one fails.
class Library {
 public:
  explicit Library(const ResolveSymbol& resolve) : resolve_(resolve) {}
  template <typename... Arguments>
  int call(const char* name, Arguments... arguments) const {
    void* symbol = resolve_(name);
    return symbol ? reinterpret_cast<int (*)(Arguments...)>(symbol)(arguments...) : -1;
  }

 private:
  const ResolveSymbol& resolve_;
};

// sysfs writes "0000:3b:00.0" where the library writes "00000000:3B:00.0".
std::string sysfs_bus_id(std::string id) {
  std::transform(id.begin(), id.end(), id.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return id.size() > 12 ? id.substr(id.size() - 12) : id;
}

Gpu read_gpu(const Library& nvml, int index, Device device) {
  Gpu gpu;
  gpu.index = index;
  std::array<char, 128> text{};
  if (nvml.call("nvmlDeviceGetName", device, text.data(), 96u) == kSuccess) gpu.name = text.data();
  if (nvml.call("nvmlDeviceGetUUID", device, text.data(), 96u) == kSuccess) gpu.uuid = text.data();
  PciInfo pci{};
  if (nvml.call("nvmlDeviceGetPciInfo_v3", device, &pci) == kSuccess)
    gpu.bus_id = sysfs_bus_id(pci.bus_id);
  Memory memory{};
  if (nvml.call("nvmlDeviceGetMemoryInfo", device, &memory) == kSuccess)
    gpu.memory_bytes = memory.total;
  return gpu;
}

// Bus ids of what the active links of a GPU lead to. Two GPUs that lead to the same switch reach
// each other through it.
std::vector<std::string> link_ends(const Library& nvml, Device device) {
  std::vector<std::string> ends;
  for (unsigned link = 0; link < kLinksMax; ++link) {
    unsigned is_active = 0;
    PciInfo pci{};
    if (nvml.call("nvmlDeviceGetNvLinkState", device, link, &is_active) != kSuccess ||
        is_active == 0 ||
        nvml.call("nvmlDeviceGetNvLinkRemotePciInfo_v2", device, link, &pci) != kSuccess)
      continue;
    ends.push_back(sysfs_bus_id(pci.bus_id));
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

bool meet(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::any_of(a.begin(), a.end(), [&](const std::string& end) {
    return std::binary_search(b.begin(), b.end(), end);
  });
}

}  // namespace

std::vector<Gpu> read_gpus() {
  const std::unique_ptr<void, int (*)(void*)> library(
      ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL),
      [](void* handle) { return handle ? ::dlclose(handle) : 0; });
  if (!library) return {};
  return read_gpus([&](const char* name) { return ::dlsym(library.get(), name); });
}

std::vector<Gpu> read_gpus(const ResolveSymbol& resolve) {
  const Library nvml(resolve);
  if (nvml.call("nvmlInit_v2") != kSuccess) return {};
  unsigned count = 0;
  std::vector<Gpu> gpus;
  std::vector<std::vector<std::string>> ends;
  if (nvml.call("nvmlDeviceGetCount_v2", &count) == kSuccess) {
    for (unsigned index = 0; index < count; ++index) {
      Device device = nullptr;
      if (nvml.call("nvmlDeviceGetHandleByIndex_v2", index, &device) != kSuccess) continue;
      gpus.push_back(read_gpu(nvml, static_cast<int>(index), device));
      ends.push_back(link_ends(nvml, device));
    }
  }
  for (size_t a = 0; a < gpus.size(); ++a)
    for (size_t b = 0; b < gpus.size(); ++b)
      if (a != b && (std::binary_search(ends[a].begin(), ends[a].end(), gpus[b].bus_id) ||
                     meet(ends[a], ends[b])))
        gpus[a].linked_to.push_back(gpus[b].index);
  nvml.call("nvmlShutdown");
  return gpus;
}

}  // namespace yard::collective
