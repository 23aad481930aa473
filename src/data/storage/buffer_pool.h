// BufferPool: memory of transfers that is used again, in huge pages where the kernel has them. The
// faults of fresh small pages cost as much as copying the bytes into them.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace yard::storage {

// Thread-safe. Outlives its buffers. Keeps what was given back last, of one size only, so that it
// never holds more than was in use at once.
class BufferPool {
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  using Bytes = std::unique_ptr<std::byte[], Free>;

 public:
  // Uninitialised bytes, given back by the destructor. Move-only.
  class Buffer {
   public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept { *this = std::move(other); }
    Buffer& operator=(Buffer&& other) noexcept;
    ~Buffer() { reset(); }

    explicit operator bool() const { return pool_ != nullptr; }
    std::span<std::byte> span() const { return {bytes_.get(), size_bytes_}; }
    void reset();

   private:
    friend class BufferPool;
    BufferPool* pool_ = nullptr;
    Bytes bytes_;
    size_t capacity_ = 0;
    size_t size_bytes_ = 0;
  };

  Buffer take(size_t size_bytes);

 private:
  void give(size_t capacity, Bytes bytes);

  std::mutex mutex_;
  size_t kept_capacity_ = 0;
  std::vector<Bytes> kept_;
};

}  // namespace yard::storage
