// Memory: the one budget of a mount. Every byte read from the store lies in a buffer of it until it
// has been handed to the kernel.
//
// Buffers are mapped by powers of two from 16 KiB on and used again; what is mapped, in use or
// kept, never exceeds the budget, so that the process's size does not depend on what malloc keeps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace yard::mount {

// Thread-safe. Outlives its buffers.
class Memory {
 public:
  // Uninitialised bytes; given back by the destructor. Move-only.
  class Buffer {
   public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept { *this = std::move(other); }
    Buffer& operator=(Buffer&& other) noexcept;
    ~Buffer() { reset(); }
    explicit operator bool() const { return memory_ != nullptr; }
    std::byte* data() const { return bytes_; }
    void reset();

   private:
    friend class Memory;
    Memory* memory_ = nullptr;
    std::byte* bytes_ = nullptr;
    int size_class_ = 0;
  };

  explicit Memory(uint64_t budget_bytes) : budget_bytes_(budget_bytes) {}
  ~Memory();

  // No buffer when the budget does not allow one, or when there is no memory at all.
  Buffer take(uint64_t size_bytes);
  // What take(size_bytes) costs of the budget.
  static uint64_t charge_bytes(uint64_t size_bytes);

  uint64_t budget_bytes() const { return budget_bytes_; }
  uint64_t used_bytes() const;

 private:
  static constexpr int kClassCount = 14;  // 16 KiB .. 128 MiB
  void give(int size_class, std::byte* bytes);
  void unmap_kept(uint64_t until_bytes);

  const uint64_t budget_bytes_;
  mutable std::mutex mutex_;
  uint64_t used_bytes_ = 0;
  uint64_t mapped_bytes_ = 0;  // used and kept
  std::array<std::vector<std::byte*>, kClassCount> kept_;
};

// An eighth of the machine's memory, or of the control group's limit where that is less; 64 MiB at
// least, 4 GiB at most.
uint64_t default_budget_bytes();

}  // namespace yard::mount
