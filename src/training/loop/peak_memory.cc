#include "loop/peak_memory.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <atomic>

namespace yard::loop {
namespace {

// Other threads that work for this one may report too.
class Meter final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t alloc_size, size_t, size_t, c10::Device) override {
    const int64_t now = current_.fetch_add(alloc_size) + alloc_size;
    int64_t peak = peak_.load();
    while (peak < now && !peak_.compare_exchange_weak(peak, now)) {
    }
  }
  bool memoryProfilingEnabled() const override { return true; }
  uint64_t peak_bytes() const { return static_cast<uint64_t>(peak_.load()); }

 private:
  std::atomic<int64_t> current_ = 0, peak_ = 0;
};

}  // namespace

struct PeakMemory::Impl {
  std::shared_ptr<Meter> meter = std::make_shared<Meter>();
  c10::DebugInfoGuard guard{c10::DebugInfoKind::PROFILER_STATE, meter};
};

PeakMemory::PeakMemory() : impl_(std::make_unique<Impl>()) {}
PeakMemory::~PeakMemory() = default;

uint64_t PeakMemory::peak_bytes() const {
  return impl_->meter->peak_bytes();
}

}  // namespace yard::loop
