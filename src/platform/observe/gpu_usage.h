// What the GPUs of this machine are doing, asked of NVIDIA's management library, which is opened at
// run time: where it, the driver or a GPU is missing there are none.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace yard::observe {

struct GpuUsage {
  double busy_percent = 0;  // of the last sampling period in which a kernel ran
  double memory_bytes = 0;
  double memory_percent = 0;
  double power_watts = 0;  // 0: not told
};

// Not thread-safe. The library stays open as long as it lives.
class GpuMeter {
 public:
  using FindSymbol = std::function<void*(const char* name)>;  // null: there is no such function

  GpuMeter();
  explicit GpuMeter(FindSymbol find);  // another way of finding the functions
  ~GpuMeter();
  GpuMeter(const GpuMeter&) = delete;
  GpuMeter& operator=(const GpuMeter&) = delete;

  // By the driver's number. nullopt: there is none, or it does not answer.
  std::optional<GpuUsage> look(int gpu_index) const;
  // Of several at once: load and memory share are means, memory and power sums. nullopt: of none.
  std::optional<GpuUsage> look(const std::vector<int>& gpu_indices) const;

 private:
  std::unique_ptr<void, int (*)(void*)> library_;
  FindSymbol find_;
  bool is_open_ = false;
};

}  // namespace yard::observe
