// PixelBuffer: the memory of a batch's images, not initialised, aligned for the CPU's vectors.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <utility>

namespace yard::loader {

// Memory from somewhere else, such as the pages that a GPU reads by itself; it goes back with the
// last copy of the pointer. Called on any thread, several at once. Aligned to
// PixelBuffer::kAlignment. Throws std::bad_alloc, or what says more.
using PixelAllocator = std::function<std::shared_ptr<std::byte>(size_t size_bytes)>;

// Move-only.
class PixelBuffer {
 public:
  static constexpr size_t kAlignment = 64;

  PixelBuffer() = default;
  explicit PixelBuffer(size_t size_bytes) { resize(size_bytes); }
  explicit PixelBuffer(PixelAllocator allocator) : allocator_(std::move(allocator)) {}
  PixelBuffer(PixelBuffer&& other) noexcept { *this = std::move(other); }
  PixelBuffer& operator=(PixelBuffer&& other) noexcept {
    allocator_ = std::move(other.allocator_);
    bytes_ = std::move(other.bytes_);
    capacity_ = std::exchange(other.capacity_, 0);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  // What was in it is lost, unless the size stays. Throws std::bad_alloc, or as the allocator.
  void resize(size_t size_bytes) {
    if (size_bytes > capacity_) {
      bytes_.reset();
      capacity_ = size_ = 0;
      const size_t rounded = (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
      bytes_ = allocator_ ? allocator_(rounded) : allocate(rounded);
      capacity_ = rounded;
    }
    size_ = size_bytes;
  }

  bool empty() const { return size_ == 0; }
  std::span<std::byte> bytes() { return {bytes_.get(), size_}; }
  std::span<const std::byte> bytes() const { return {bytes_.get(), size_}; }
  // Contract: RenderOptions::type is kFloat32.
  std::span<const float> floats() const {
    return {reinterpret_cast<const float*>(bytes_.get()), size_ / sizeof(float)};
  }
  // What keeps bytes() where they are.
  const std::shared_ptr<std::byte>& memory() const { return bytes_; }

 private:
  static std::shared_ptr<std::byte> allocate(size_t size_bytes) {
    auto* bytes = static_cast<std::byte*>(std::aligned_alloc(kAlignment, size_bytes));
    if (bytes == nullptr) throw std::bad_alloc();
    return {bytes, [](std::byte* memory) { std::free(memory); }};
  }

  PixelAllocator allocator_;
  std::shared_ptr<std::byte> bytes_;
  size_t capacity_ = 0;
  size_t size_ = 0;
};

}  // namespace yard::loader
