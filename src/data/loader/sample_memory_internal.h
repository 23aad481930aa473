// SampleMemory: the memory of raw samples, used again from sample to sample. The faults of fresh
// pages would cost more than reading the bytes into them.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace yard::loader {

// Thread-safe. What it gives may outlive it.
class SampleMemory {
 public:
  // Not initialised. Comes back with the last copy of the pointer.
  std::shared_ptr<std::byte[]> take(size_t size_bytes);

 private:
  // Of sizes that are powers of two; no more than kKeptBytesMax in all.
  struct Shelf {
    static constexpr size_t kKeptBytesMax = size_t{64} << 20;

    std::unique_ptr<std::byte[]> take(unsigned size_bits);
    void give(unsigned size_bits, std::unique_ptr<std::byte[]> bytes);

    std::mutex mutex;
    std::array<std::vector<std::unique_ptr<std::byte[]>>, 64> kept;  // by the power of two
    size_t kept_bytes = 0;
  };

  const std::shared_ptr<Shelf> shelf_ = std::make_shared<Shelf>();
};

}  // namespace yard::loader
