#include "host/gpu_health.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>

namespace yard::host {
namespace {

// A driver of two GPUs, as the test says.
struct Gpu {
  int answer = 0;
  unsigned long long ecc_errors = 0;
  unsigned rows_failed = 0;
  unsigned long long slowdowns = 0x1 | 0x4;  // idle, and within its power limit: both are usual
  unsigned links = 4;
};
struct Driver {
  Gpu gpus[2];
  std::deque<std::pair<int, unsigned long long>> xids;
  int watched = 0;
};
Driver driver;

Gpu& gpu_of(void* device) {
  return *static_cast<Gpu*>(device);
}
int nvml_ok() {
  return 0;
}
int handle_by_index(unsigned index, void** device) {
  if (index >= 2) return 2;
  *device = &driver.gpus[index];
  return 0;
}
int temperature(void* device, unsigned, unsigned* degrees) {
  *degrees = 40;
  return gpu_of(device).answer;
}
int ecc_errors(void* device, unsigned type, unsigned counter, unsigned long long* count) {
  if (type != 1 || counter != 0) return 2;
  *count = gpu_of(device).ecc_errors;
  return 0;
}
int remapped_rows(void* device, unsigned*, unsigned*, unsigned* pending, unsigned* failed) {
  *pending = 0;
  *failed = gpu_of(device).rows_failed;
  return 0;
}
int throttle_reasons(void* device, unsigned long long* reasons) {
  *reasons = gpu_of(device).slowdowns;
  return 0;
}
int link_state(void* device, unsigned link, unsigned* is_active) {
  if (link >= 4) return 2;
  *is_active = link < gpu_of(device).links ? 1 : 0;
  return 0;
}
int event_set_create(void** set) {
  *set = &driver;
  return 0;
}
int event_set_free(void*) {
  return 0;
}
int register_events(void*, unsigned long long types, void*) {
  if (types == 8) ++driver.watched;
  return 0;
}
struct EventData {
  void* device;
  unsigned long long type, data;
  unsigned a, b;
};
int event_set_wait(void*, EventData* data, unsigned timeout_ms) {
  if (driver.xids.empty() || timeout_ms != 0) return 10;
  const auto [gpu, xid] = driver.xids.front();
  driver.xids.pop_front();
  *data = {.device = &driver.gpus[gpu], .type = 8, .data = xid, .a = 0, .b = 0};
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
  if (wanted == "nvmlDeviceGetTemperature") return address(&temperature);
  if (wanted == "nvmlDeviceGetTotalEccErrors") return address(&ecc_errors);
  if (wanted == "nvmlDeviceGetRemappedRows") return address(&remapped_rows);
  if (wanted == "nvmlDeviceGetCurrentClocksThrottleReasons") return address(&throttle_reasons);
  if (wanted == "nvmlDeviceGetNvLinkState") return address(&link_state);
  if (wanted == "nvmlEventSetCreate") return address(&event_set_create);
  if (wanted == "nvmlEventSetFree") return address(&event_set_free);
  if (wanted == "nvmlDeviceRegisterEvents") return address(&register_events);
  if (wanted == "nvmlEventSetWait_v2") return address(&event_set_wait);
  return nullptr;
}

class GpuHealthTest : public testing::Test {
 protected:
  GpuHealthTest() { driver = {}; }
  // What is said of the two GPUs.
  std::string complaint() {
    const Status judged = judge_health(GpuHealth(find_in_driver).check({0, 1}));
    return judged ? "" : judged.error().message;
  }
};

TEST_F(GpuHealthTest, GpusThatIdleAreWell) {
  EXPECT_EQ(complaint(), "");
  EXPECT_EQ(GpuHealth(find_in_driver).check({1}).at(0).name, "gpu 1");
}

TEST_F(GpuHealthTest, EachFaultIsNamedWithItsGpu) {
  driver.gpus[1].answer = 15;
  EXPECT_EQ(complaint(), "gpu 1: it has fallen off the bus");
  driver.gpus[1] = {.answer = 16};
  EXPECT_EQ(complaint(), "gpu 1: it needs a reset");
  driver.gpus[1] = {.ecc_errors = 3};
  EXPECT_EQ(complaint(), "gpu 1: 3 uncorrected memory errors");
  driver.gpus[1] = {.rows_failed = 1, .slowdowns = 0x40};
  EXPECT_EQ(complaint(),
            "gpu 1: broken memory could not be replaced, the hardware slows it down by heat");
  driver.gpus[1] = {.links = 3};
  EXPECT_EQ(complaint(), "gpu 1: 3 of 4 NVLinks are there");
  const auto unknown = GpuHealth(find_in_driver).check({7});
  EXPECT_EQ(unknown.at(0).message, "gpu 7: the driver does not know it");
}

TEST_F(GpuHealthTest, WhatTheHardwareReportsLaterIsHeardOnce) {
  GpuHealth health(find_in_driver);
  health.watch({0, 1});
  EXPECT_EQ(driver.watched, 2);
  EXPECT_EQ(health.fault(), std::nullopt);
  driver.xids = {{0, 13}, {1, 79}};  // 13: a program's own
  EXPECT_EQ(health.fault(), "gpu 1: Xid 79 (it has fallen off the bus)");
  EXPECT_EQ(health.fault(), std::nullopt);
  driver.gpus[0].answer = 15;
  EXPECT_EQ(health.fault(), "gpu 0: it has fallen off the bus");
}

TEST_F(GpuHealthTest, WithoutALibraryNothingIsFound) {
  GpuHealth none("libyard-no-such-library.so");
  EXPECT_TRUE(none.check({0, 1}).empty());
  none.watch({0});
  EXPECT_EQ(none.fault(), std::nullopt);
  // An old one does not know what to ask.
  driver.gpus[0] = {.answer = 0, .ecc_errors = 1, .rows_failed = 1};
  const GpuHealth old([](const char* name) {
    const bool is_known = std::string_view(name) == "nvmlInit_v2" ||
                          std::string_view(name) == "nvmlDeviceGetHandleByIndex_v2";
    return is_known ? find_in_driver(name) : nullptr;
  });
  EXPECT_TRUE(old.check({0}).at(0).passed);
}

TEST(HardwareXid, ErrorsThatAProgramCanCauseAreNotTheHardwares) {
  for (const uint64_t xid : {13, 31, 43, 45}) EXPECT_EQ(hardware_xid(xid), "") << xid;
  for (const uint64_t xid : {48, 79, 95, 119}) EXPECT_NE(hardware_xid(xid), "") << xid;
}

}  // namespace
}  // namespace yard::host
