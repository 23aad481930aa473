// Where a save copies the state to, so that training can change it at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "storage/work_queue.h"

namespace yard::checkpoint {

// Memory that is there before it is written: in huge pages where the kernel has them, and every
// page faulted in. It is kept for the next save. Not thread-safe.
class StagingBuffer {
 public:
  StagingBuffer() = default;
  StagingBuffer(StagingBuffer&& other) noexcept;
  StagingBuffer& operator=(StagingBuffer&& other) noexcept;
  ~StagingBuffer();

  // At least so many bytes; what was in it is lost where it has to grow. kExhausted: the machine
  // has no such memory.
  Status reserve(uint64_t size_bytes);
  std::span<std::byte> bytes() const { return {data_, capacity_}; }
  uint64_t capacity() const { return capacity_; }

 private:
  void release();

  std::byte* data_ = nullptr;
  uint64_t capacity_ = 0;
};

struct CopyTask {
  std::span<const std::byte> from;
  std::byte* to = nullptr;
};

// Copies by several threads at once, past the caches: nobody reads the copy soon. Not thread-safe.
class ParallelCopier {
 public:
  // 0: a thread for each core, at most 8: by then memory is the limit.
  explicit ParallelCopier(int thread_count = 0);
  // Returns when all is copied. The caller's thread copies too.
  void copy(std::span<const CopyTask> tasks);

 private:
  const int thread_count_;
  storage::WorkQueue helpers_;
};

}  // namespace yard::checkpoint
