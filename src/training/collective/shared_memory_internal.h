// SharedMemory: anonymous memory that several processes map. It has no name anywhere: when the
// last process that holds it ends, however it ends, it is gone.
#pragma once

#include <cstddef>

#include "base/file.h"
#include "base/result.h"

namespace yard::collective {

// Move-only; unmaps at the end. The memory starts zeroed.
class SharedMemory {
 public:
  // kExhausted when the machine has not so much memory left: it is reserved here, because running
  // out later would be a SIGBUS in the middle of an operation.
  static Result<SharedMemory> create(size_t size_bytes);
  // Maps what another process created; kCorrupt when it is not `size_bytes` large.
  static Result<SharedMemory> map(UniqueFd fd, size_t size_bytes);

  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  int fd() const { return fd_.get(); }
  void close_fd() { fd_.reset(); }  // the mapping stays

 private:
  UniqueFd fd_;
  std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
};

size_t round_up(size_t size, size_t multiple);

}  // namespace yard::collective
