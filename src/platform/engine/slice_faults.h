// SliceFaults: slices that were declared faulty while the platform runs: hosts on them fail their
// next health check.
#pragma once

#include <mutex>
#include <set>
#include <utility>

namespace yard::engine {

// Thread-safe. Forgotten with the process.
class SliceFaults {
 public:
  void add(int slice_number) {
    const std::lock_guard lock(mutex_);
    numbers_.insert(slice_number);
  }
  // How many there were.
  int clear() {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(std::exchange(numbers_, {}).size());
  }
  bool contains(int slice_number) const {
    const std::lock_guard lock(mutex_);
    return numbers_.contains(slice_number);
  }

 private:
  mutable std::mutex mutex_;
  std::set<int> numbers_;
};

}  // namespace yard::engine
