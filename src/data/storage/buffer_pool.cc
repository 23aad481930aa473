#include "storage/buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/result.h"

namespace yard::storage {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = 2 << 20;
constexpr size_t kKeptMin = 1 << 20;  // malloc is good at smaller ones

std::byte* allocate(size_t capacity) {
  const bool is_huge = capacity >= kHugePage;
  void* const bytes = std::aligned_alloc(is_huge ? kHugePage : kAlignment, capacity);
  YARD_CHECK(bytes != nullptr);
  // Advice: without it the memory is as good, only slower.
  if (is_huge) ::madvise(bytes, capacity, MADV_HUGEPAGE);
  return static_cast<std::byte*>(bytes);
}

}  // namespace

BufferPool::Buffer& BufferPool::Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  reset();
  pool_ = std::exchange(other.pool_, nullptr);
  bytes_ = std::move(other.bytes_);
  capacity_ = std::exchange(other.capacity_, 0);
  size_bytes_ = std::exchange(other.size_bytes_, 0);
  return *this;
}

void BufferPool::Buffer::reset() {
  if (pool_ != nullptr) pool_->give(capacity_, std::move(bytes_));
  pool_ = nullptr;
  size_bytes_ = 0;
}

BufferPool::Buffer BufferPool::take(size_t size_bytes) {
  Buffer buffer;
  buffer.pool_ = this;
  buffer.size_bytes_ = size_bytes;
  buffer.capacity_ = std::bit_ceil(std::max(size_bytes, kAlignment));
  if (buffer.capacity_ >= kKeptMin) {
    const std::lock_guard lock(mutex_);
    if (buffer.capacity_ != kept_capacity_) {
      kept_.clear();
      kept_capacity_ = buffer.capacity_;
    } else if (!kept_.empty()) {
      buffer.bytes_ = std::move(kept_.back());
      kept_.pop_back();
      return buffer;
    }
  }
  buffer.bytes_.reset(allocate(buffer.capacity_));
  return buffer;
}

void BufferPool::give(size_t capacity, Bytes bytes) {
  const std::lock_guard lock(mutex_);
  if (capacity == kept_capacity_) kept_.push_back(std::move(bytes));
}

}  // namespace yard::storage
