#include "observe/gpu_usage.h"

#include <gtest/gtest.h>

#include <cstring>

namespace yard::observe {
namespace {

// A driver of two GPUs: number i is 10 * (i + 1) % busy, holds (i + 1) of 4 GiB, draws i + 100 W.
int nvml_ok() {
  return 0;
}
int handle_by_index(unsigned index, void** device) {
  static char devices[2];
  if (index >= 2) return 2;
  *device = &devices[index];
  devices[index] = char(index);
  return 0;
}
int utilization(void* device, unsigned* rates) {
  rates[0] = 10 * (unsigned(*static_cast<char*>(device)) + 1);
  rates[1] = 0;
  return 0;
}
int memory_info(void* device, unsigned long long* memory) {
  memory[0] = 4ull << 30;
  memory[2] = (static_cast<unsigned long long>(*static_cast<char*>(device)) + 1) << 30;
  memory[1] = memory[0] - memory[2];
  return 0;
}
int power_usage(void* device, unsigned* milliwatts) {
  *milliwatts = 1000 * (100 + unsigned(*static_cast<char*>(device)));
  return 0;
}

template <typename Function>
void* address(Function* function) {
  return reinterpret_cast<void*>(function);
}

void* find_in_driver(const char* name) {
  const std::string_view wanted = name;
  if (wanted == "nvmlInit_v2" || wanted == "nvmlShutdown") return address(&nvml_ok);
  if (wanted == "nvmlDeviceGetHandleByIndex_v2") return address(&handle_by_index);
  if (wanted == "nvmlDeviceGetUtilizationRates") return address(&utilization);
  if (wanted == "nvmlDeviceGetMemoryInfo") return address(&memory_info);
  if (wanted == "nvmlDeviceGetPowerUsage") return address(&power_usage);
  return nullptr;
}

TEST(GpuUsage, LoadIsAMeanAndMemoryASumOverTheGpusOfAHost) {
  const GpuMeter meter(find_in_driver);
  const auto both = meter.look(std::vector<int>{0, 1});
  ASSERT_TRUE(both);
  EXPECT_DOUBLE_EQ(both->busy_percent, 15);
  EXPECT_DOUBLE_EQ(both->memory_bytes, 3.0 * (1ull << 30));
  EXPECT_DOUBLE_EQ(both->memory_percent, 37.5);
  EXPECT_DOUBLE_EQ(both->power_watts, 201);
}

TEST(GpuUsage, AGpuThatIsNotThereHasNone) {
  const GpuMeter meter(find_in_driver);
  EXPECT_FALSE(meter.look(2));
  EXPECT_FALSE(meter.look(-1));
  EXPECT_FALSE(meter.look(std::vector<int>{}));
  EXPECT_DOUBLE_EQ(meter.look(std::vector<int>{1, 7})->busy_percent, 20);
}

TEST(GpuUsage, ADriverWithoutAFunctionTellsWhatItCan) {
  const GpuMeter no_power([](const char* name) {
    return std::string_view(name) == "nvmlDeviceGetPowerUsage" ? nullptr : find_in_driver(name);
  });
  EXPECT_EQ(no_power.look(0)->power_watts, 0);
  const GpuMeter none([](const char*) -> void* { return nullptr; });
  EXPECT_FALSE(none.look(0));
}

}  // namespace
}  // namespace yard::observe
