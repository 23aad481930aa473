#include <algorithm>
#include <bit>

#include "loader/sample_memory_internal.h"

namespace yard::loader {
namespace {

constexpr size_t kSizeMin = 4096;

}  // namespace

std::unique_ptr<std::byte[]> SampleMemory::Shelf::take(unsigned size_bits) {
  {
    const std::lock_guard lock(mutex);
    auto& kept_here = kept[size_bits];
    if (!kept_here.empty()) {
      auto bytes = std::move(kept_here.back());
      kept_here.pop_back();
      kept_bytes -= size_t{1} << size_bits;
      return bytes;
    }
  }
  return std::make_unique_for_overwrite<std::byte[]>(size_t{1} << size_bits);
}

void SampleMemory::Shelf::give(unsigned size_bits, std::unique_ptr<std::byte[]> bytes) {
  const size_t size_bytes = size_t{1} << size_bits;
  const std::lock_guard lock(mutex);
  if (kept_bytes + size_bytes > kKeptBytesMax) return;
  kept_bytes += size_bytes;
  kept[size_bits].push_back(std::move(bytes));
}

std::shared_ptr<std::byte[]> SampleMemory::take(size_t size_bytes) {
  const auto size_bits = static_cast<unsigned>(std::bit_width(std::max(size_bytes, kSizeMin) - 1));
  auto bytes = shelf_->take(size_bits);
  const auto give = [shelf = shelf_, size_bits](std::byte* memory) {
    shelf->give(size_bits, std::unique_ptr<std::byte[]>(memory));
  };
  return {bytes.release(), give};
}

}  // namespace yard::loader
