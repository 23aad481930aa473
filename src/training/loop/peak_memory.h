// PeakMemory: how much memory the tensors that this thread makes take at once.
//
// Counts what libtorch's CPU and device allocators give out while it lives, and what of that is
// given back. One at a time per thread; not with a profiler.
#pragma once

#include <cstdint>
#include <memory>

namespace yard::loop {

class PeakMemory {
 public:
  PeakMemory();
  ~PeakMemory();
  PeakMemory(const PeakMemory&) = delete;
  PeakMemory& operator=(const PeakMemory&) = delete;

  uint64_t peak_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yard::loop
