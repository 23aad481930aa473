// GpuHealth: whether GPUs can be trusted with a job, asked of NVIDIA's management library, which is
// opened at run time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/host_health.h"

namespace yard::host {

// Not thread-safe. The library stays open as long as it lives.
class GpuHealth {
 public:
  using FindSymbol = std::function<void*(const char* name)>;  // null: there is no such function

  // `library`: what dlopen() takes. Nothing is found wrong where there is none.
  explicit GpuHealth(const std::string& library = "libnvidia-ml.so.1");
  explicit GpuHealth(FindSymbol find);
  ~GpuHealth();
  GpuHealth(const GpuHealth&) = delete;
  GpuHealth& operator=(const GpuHealth&) = delete;

  // One check of each GPU, by the driver's numbers: it answers, has no uncorrected memory errors,
  // no pages or rows that wait for a reset or could not be replaced, is not slowed down by heat or
  // power, and has as many NVLinks as the best of them.
  std::vector<HealthCheck> check(const std::vector<int>& gpu_indices) const;

  // From here on faults of these GPUs are heard by fault().
  void watch(const std::vector<int>& gpu_indices);
  // What the hardware has reported since watch(): "gpu 3: Xid 79 (it has fallen off the bus)", or
  // one that does not answer any more. Errors that a program can cause do not count. Never waits.
  std::optional<std::string> fault();

 private:
  struct Device {
    int index = 0;
    void* handle = nullptr;
  };
  HealthCheck check_one(int index, int links_max) const;
  int link_count(int index) const;

  std::unique_ptr<void, int (*)(void*)> library_;
  FindSymbol find_;
  bool is_open_ = false;
  std::vector<Device> watched_;
  void* events_ = nullptr;
};

// What an Xid says of the hardware; empty: it may be the program's own fault. Pure.
// Source: NVIDIA, XID Errors.
std::string hardware_xid(uint64_t xid);

}  // namespace yard::host
