#include "mount/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>

#include "base/file.h"
#include "base/result.h"

namespace yard::mount {
namespace {

constexpr uint64_t kSmallest = 16 << 10;
constexpr uint64_t kHugePage = 2 << 20;
constexpr uint64_t kKeptBytesMax = 64 << 20;  // an idle mount gives the rest back

int class_of(uint64_t size_bytes) {
  return std::countr_zero(std::bit_ceil(std::max(size_bytes, kSmallest))) -
         std::countr_zero(kSmallest);
}

uint64_t class_bytes(int size_class) {
  return kSmallest << size_class;
}

}  // namespace

Memory::Buffer& Memory::Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  reset();
  memory_ = std::exchange(other.memory_, nullptr);
  bytes_ = std::exchange(other.bytes_, nullptr);
  size_class_ = other.size_class_;
  return *this;
}

void Memory::Buffer::reset() {
  if (memory_ != nullptr) memory_->give(size_class_, bytes_);
  memory_ = nullptr;
}

Memory::~Memory() {
  YARD_CHECK(used_bytes_ == 0);
  unmap_kept(0);
}

uint64_t Memory::charge_bytes(uint64_t size_bytes) {
  return class_bytes(class_of(size_bytes));
}

uint64_t Memory::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

Memory::Buffer Memory::take(uint64_t size_bytes) {
  const int size_class = class_of(size_bytes);
  YARD_CHECK(size_class < kClassCount);
  const uint64_t bytes = class_bytes(size_class);
  Buffer buffer;
  const std::lock_guard lock(mutex_);
  if (bytes > budget_bytes_ - used_bytes_) return buffer;
  auto& kept = kept_[static_cast<size_t>(size_class)];
  if (!kept.empty()) {
    buffer.bytes_ = kept.back();
    kept.pop_back();
  } else {
    unmap_kept(budget_bytes_ - bytes);
    void* const mapped =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return buffer;
    // Advice: the faults of small pages cost as much as the copy into them.
    if (bytes >= kHugePage) ::madvise(mapped, bytes, MADV_HUGEPAGE);
    buffer.bytes_ = static_cast<std::byte*>(mapped);
    mapped_bytes_ += bytes;
  }
  used_bytes_ += bytes;
  buffer.memory_ = this;
  buffer.size_class_ = size_class;
  return buffer;
}

void Memory::give(int size_class, std::byte* bytes) {
  const std::lock_guard lock(mutex_);
  used_bytes_ -= class_bytes(size_class);
  if (mapped_bytes_ - used_bytes_ > kKeptBytesMax) {
    ::munmap(bytes, class_bytes(size_class));
    mapped_bytes_ -= class_bytes(size_class);
    return;
  }
  kept_[static_cast<size_t>(size_class)].push_back(bytes);
}

// Of the largest first: one of them makes room for many.
void Memory::unmap_kept(uint64_t until_bytes) {
  for (int size_class = kClassCount - 1; size_class >= 0; --size_class) {
    auto& kept = kept_[static_cast<size_t>(size_class)];
    while (mapped_bytes_ > until_bytes && !kept.empty()) {
      ::munmap(kept.back(), class_bytes(size_class));
      kept.pop_back();
      mapped_bytes_ -= class_bytes(size_class);
    }
  }
}

uint64_t default_budget_bytes() {
  const auto pages = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES));
  uint64_t bytes = pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  // Control groups of version 2 and 1, as a container sees its own.
  for (const char* const path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"})
    if (const auto text = read_file(path)) {
      const uint64_t limit = std::strtoull(text->c_str(), nullptr, 10);  // "max": 0
      if (limit > 0) bytes = std::min(bytes, limit);
    }
  return std::clamp<uint64_t>(bytes / 8, uint64_t{64} << 20, uint64_t{4} << 30);
}

}  // namespace yard::mount
