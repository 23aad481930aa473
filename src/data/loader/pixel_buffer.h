// PixelBuffer: the memory of a batch's images, not initialised, aligned for the CPU's vectors.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

namespace yard::loader {

// Move-only.
class PixelBuffer {
 public:
  static constexpr size_t kAlignment = 64;

  PixelBuffer() = default;
  explicit PixelBuffer(size_t size_bytes) { resize(size_bytes); }

  // What was in it is lost, unless the size stays. Throws std::bad_alloc.
  void resize(size_t size_bytes) {
    if (size_bytes > capacity_) {
      bytes_.reset();
      capacity_ = (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
      bytes_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, capacity_)));
      if (bytes_ == nullptr) {
        capacity_ = size_ = 0;
        throw std::bad_alloc();
      }
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

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<std::byte, Free> bytes_;
  size_t capacity_ = 0;
  size_t size_ = 0;
};

}  // namespace yard::loader
