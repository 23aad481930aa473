#include "checkpoint/staging.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <latch>
#include <memory>
#include <thread>
#include <utility>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace yard::checkpoint {
namespace {

constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;
constexpr int kCopyThreadsMax = 8;
// What a thread takes at once: its cost is far above that of taking it, and no thread ends long
// after the others.
constexpr size_t kPortionBytes = size_t{1} << 20;

// Ordinary stores would first read each line of the target that they overwrite.
void copy_past_caches(std::byte* to, const std::byte* from, size_t size_bytes) {
#if defined(__x86_64__)
  constexpr size_t kLineBytes = 64;
  if (size_bytes >= 4 * kLineBytes) {
    const size_t head = (kLineBytes - reinterpret_cast<uintptr_t>(to) % kLineBytes) % kLineBytes;
    std::memcpy(to, from, head);
    to += head;
    from += head;
    size_bytes -= head;
    for (; size_bytes >= kLineBytes;
         to += kLineBytes, from += kLineBytes, size_bytes -= kLineBytes) {
      const auto* in = reinterpret_cast<const __m128i*>(from);
      auto* out = reinterpret_cast<__m128i*>(to);
      const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
      const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
      _mm_stream_si128(out, a);
      _mm_stream_si128(out + 1, b);
      _mm_stream_si128(out + 2, c);
      _mm_stream_si128(out + 3, d);
    }
    _mm_sfence();
  }
#endif
  if (size_bytes > 0) std::memcpy(to, from, size_bytes);
}

std::vector<CopyTask> cut_into_portions(std::span<const CopyTask> tasks) {
  std::vector<CopyTask> portions;
  for (CopyTask task : tasks) {
    while (!task.from.empty()) {
      const size_t size_bytes = std::min(kPortionBytes, task.from.size());
      portions.push_back({task.from.first(size_bytes), task.to});
      task.from = task.from.subspan(size_bytes);
      task.to += size_bytes;
    }
  }
  return portions;
}

}  // namespace

StagingBuffer::StagingBuffer(StagingBuffer&& other) noexcept {
  *this = std::move(other);
}

StagingBuffer& StagingBuffer::operator=(StagingBuffer&& other) noexcept {
  if (this == &other) return *this;
  release();
  data_ = std::exchange(other.data_, nullptr);
  capacity_ = std::exchange(other.capacity_, 0);
  return *this;
}

StagingBuffer::~StagingBuffer() {
  release();
}

void StagingBuffer::release() {
  if (data_ != nullptr) ::munmap(data_, capacity_);
  data_ = nullptr;
  capacity_ = 0;
}

Status StagingBuffer::reserve(uint64_t size_bytes) {
  if (size_bytes <= capacity_) return Ok{};
  release();
  const uint64_t capacity = (size_bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  void* const data =
      ::mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return errno_error(fmt::format("memory for a copy of {} bytes", size_bytes), errno);
  data_ = static_cast<std::byte*>(data);
  capacity_ = capacity;
  static_cast<void>(::madvise(data, capacity, MADV_HUGEPAGE));  // only a hint
#ifdef MADV_POPULATE_WRITE
  if (::madvise(data, capacity, MADV_POPULATE_WRITE) == 0) return Ok{};
#endif
  constexpr uint64_t kPageBytes = 4096;  // the smallest there is
  for (uint64_t at = 0; at < capacity; at += kPageBytes) data_[at] = std::byte{0};
  return Ok{};
}

ParallelCopier::ParallelCopier(int thread_count)
    : thread_count_(thread_count > 0
                        ? thread_count
                        : std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1,
                                     kCopyThreadsMax)),
      helpers_(std::max(1, thread_count_ - 1)) {}

void ParallelCopier::copy(std::span<const CopyTask> tasks) {
  const std::vector<CopyTask> portions = cut_into_portions(tasks);
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < portions.size(); i = next++)
      copy_past_caches(portions[i].to, portions[i].from.data(), portions[i].from.size());
  };
  const auto helper_count = std::min<ptrdiff_t>(thread_count_ - 1, std::ssize(portions) - 1);
  if (helper_count <= 0) return work();
  // Shared: the last helper may still be inside count_down() when the wait is over.
  const auto done = std::make_shared<std::latch>(helper_count);
  for (ptrdiff_t i = 0; i < helper_count; ++i)
    helpers_.push([&work, done] {
      work();
      done->count_down();
    });
  work();
  done->wait();
}

}  // namespace yard::checkpoint
