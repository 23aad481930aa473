#include "host/gpu_health.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace yard::host {
namespace {

// Of the NVML API reference.
constexpr int kSuccess = 0;
constexpr int kGpuIsLost = 15;
constexpr int kResetRequired = 16;
constexpr int kNoFunction = -1;
constexpr unsigned kUncorrected = 1;  // nvmlMemoryErrorType_t
constexpr unsigned kVolatile = 0;     // nvmlEccCounterType_t: since the driver was loaded
constexpr unsigned kLinksMax = 18;
constexpr unsigned long long kXidEvent = 0x8;
struct EventData {
  void* device;
  unsigned long long event_type, event_data;
  unsigned gpu_instance_id, compute_instance_id;
};

constexpr std::array<std::pair<unsigned long long, std::string_view>, 4> kSlowdowns = {
    {{0x8, "the hardware slows it down"},
     {0x20, "it is slowed down by heat"},
     {0x40, "the hardware slows it down by heat"},
     {0x80, "its power supply slows it down"}}};

constexpr std::array<std::pair<uint64_t, std::string_view>, 13> kHardwareXids = {
    {{48, "an uncorrectable memory error"},
     {62, "its microcontroller has halted"},
     {64, "broken memory could not be replaced"},
     {74, "an NVLink error"},
     {79, "it has fallen off the bus"},
     {92, "too many memory errors"},
     {94, "a contained memory error"},
     {95, "an uncontained memory error"},
     {110, "a security fault"},
     {119, "its system processor does not answer"},
     {120, "an error of its system processor"},
     {140, "an unrecovered memory error"},
     {144, "an NVLink error"}}};

// A function that is missing does not succeed.
template <typename... Arguments>
int call(const GpuHealth::FindSymbol& find, const char* name, Arguments... arguments) {
  void* const symbol = find(name);
  return symbol == nullptr ? kNoFunction
                           : reinterpret_cast<int (*)(Arguments...)>(symbol)(arguments...);
}

int close_library(void* handle) {
  return handle == nullptr ? 0 : ::dlclose(handle);
}

void add(std::string& faults, std::string_view fault) {
  faults += (faults.empty() ? "" : ", ") + std::string(fault);
}

void add_memory_faults(const GpuHealth::FindSymbol& find, void* device, std::string& faults) {
  unsigned long long errors = 0;
  if (call(find, "nvmlDeviceGetTotalEccErrors", device, kUncorrected, kVolatile, &errors) ==
          kSuccess &&
      errors > 0)
    add(faults, fmt::format("{} uncorrected memory errors", errors));
  unsigned is_pending = 0;
  if (call(find, "nvmlDeviceGetRetiredPagesPendingStatus", device, &is_pending) == kSuccess &&
      is_pending != 0)
    add(faults, "memory pages wait for a reset to be retired");
  unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
  if (call(find, "nvmlDeviceGetRemappedRows", device, &corrected, &uncorrected, &pending,
           &failed) != kSuccess)
    return;
  if (failed != 0) add(faults, "broken memory could not be replaced");
  if (pending != 0) add(faults, "memory rows wait for a reset to be replaced");
}

void add_slowdowns(const GpuHealth::FindSymbol& find, void* device, std::string& faults) {
  unsigned long long reasons = 0;
  if (call(find, "nvmlDeviceGetCurrentClocksThrottleReasons", device, &reasons) == kSuccess)
    for (const auto& [bit, text] : kSlowdowns)
      if ((reasons & bit) != 0) add(faults, text);
}

std::string_view lost_text(int code) {
  if (code == kGpuIsLost) return "it has fallen off the bus";
  if (code == kResetRequired) return "it needs a reset";
  return {};
}

}  // namespace

std::string hardware_xid(uint64_t xid) {
  for (const auto& [number, text] : kHardwareXids)
    if (number == xid) return std::string(text);
  return {};
}

GpuHealth::GpuHealth(const std::string& library)
    : library_(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL), &close_library) {
  find_ = [handle = library_.get()](const char* name) {
    return handle == nullptr ? nullptr : ::dlsym(handle, name);
  };
  is_open_ = call(find_, "nvmlInit_v2") == kSuccess;
}

GpuHealth::GpuHealth(FindSymbol find)
    : library_(nullptr, &close_library),
      find_(std::move(find)),
      is_open_(call(find_, "nvmlInit_v2") == kSuccess) {}

GpuHealth::~GpuHealth() {
  if (events_ != nullptr) call(find_, "nvmlEventSetFree", events_);
  if (is_open_) call(find_, "nvmlShutdown");
}

int GpuHealth::link_count(int index) const {
  void* device = nullptr;
  if (call(find_, "nvmlDeviceGetHandleByIndex_v2", static_cast<unsigned>(index), &device) !=
      kSuccess)
    return 0;
  int count = 0;
  for (unsigned link = 0; link < kLinksMax; ++link) {
    unsigned is_active = 0;
    if (call(find_, "nvmlDeviceGetNvLinkState", device, link, &is_active) == kSuccess)
      count += is_active != 0 ? 1 : 0;
  }
  return count;
}

HealthCheck GpuHealth::check_one(int index, int links_max) const {
  HealthCheck check{.name = fmt::format("gpu {}", index), .limit = 1, .message = {}};
  std::string faults;
  void* device = nullptr;
  int answer = call(find_, "nvmlDeviceGetHandleByIndex_v2", static_cast<unsigned>(index), &device);
  unsigned degrees = 0;
  // The handle of a GPU that is lost can still be had; what it is asked fails.
  if (answer == kSuccess) answer = call(find_, "nvmlDeviceGetTemperature", device, 0u, &degrees);
  const std::string_view lost = lost_text(answer);
  if (!lost.empty()) {
    add(faults, lost);
  } else if (device == nullptr) {
    add(faults, "the driver does not know it");
  } else {
    add_memory_faults(find_, device, faults);
    add_slowdowns(find_, device, faults);
    if (const int links = link_count(index); links < links_max)
      add(faults, fmt::format("{} of {} NVLinks are there", links, links_max));
  }
  check.passed = faults.empty();
  check.value = check.passed ? 1 : 0;
  if (!check.passed) check.message = fmt::format("gpu {}: {}", index, faults);
  return check;
}

std::vector<HealthCheck> GpuHealth::check(const std::vector<int>& gpu_indices) const {
  if (!is_open_) return {};
  int links_max = 0;
  for (const int index : gpu_indices) links_max = std::max(links_max, link_count(index));
  std::vector<HealthCheck> checks;
  for (const int index : gpu_indices) checks.push_back(check_one(index, links_max));
  return checks;
}

void GpuHealth::watch(const std::vector<int>& gpu_indices) {
  if (!is_open_) return;
  watched_.clear();
  if (events_ == nullptr) call(find_, "nvmlEventSetCreate", &events_);
  for (const int index : gpu_indices) {
    Device device{.index = index};
    if (call(find_, "nvmlDeviceGetHandleByIndex_v2", static_cast<unsigned>(index),
             &device.handle) != kSuccess)
      continue;
    if (events_ != nullptr)
      call(find_, "nvmlDeviceRegisterEvents", device.handle, kXidEvent, events_);
    watched_.push_back(device);
  }
}

std::optional<std::string> GpuHealth::fault() {
  EventData event{};
  while (events_ != nullptr &&
         call(find_, "nvmlEventSetWait_v2", events_, &event, 0u) == kSuccess) {
    const auto device = std::ranges::find(watched_, event.device, &Device::handle);
    const std::string what = hardware_xid(event.event_data);
    if (event.event_type == kXidEvent && device != watched_.end() && !what.empty())
      return fmt::format("gpu {}: Xid {} ({})", device->index, event.event_data, what);
  }
  for (const Device& device : watched_) {
    unsigned degrees = 0;
    const int answer = call(find_, "nvmlDeviceGetTemperature", device.handle, 0u, &degrees);
    if (const std::string_view lost = lost_text(answer); !lost.empty())
      return fmt::format("gpu {}: {}", device.index, lost);
  }
  return std::nullopt;
}

}  // namespace yard::host
