#include "images/arena_internal.h"

#include <algorithm>

namespace yard::images {
namespace {

constexpr size_t kBlockBytesMin = size_t{64} << 10;
// What no picture needs is a size that overflowed or was invented.
constexpr size_t kPieceBytesMax = size_t{1} << 38;

size_t round_up(size_t size_bytes) {
  return (size_bytes + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
}

}  // namespace

bool Arena::add_block(size_t size_bytes) {
  auto* bytes = static_cast<std::byte*>(std::aligned_alloc(kAlignment, size_bytes));
  if (bytes == nullptr) return false;
  blocks_.push_back({std::unique_ptr<std::byte, Free>(bytes), size_bytes});
  used_bytes_ = 0;
  return true;
}

void* Arena::allocate(size_t size_bytes) {
  if (size_bytes > kPieceBytesMax) return nullptr;
  const size_t size = std::max(round_up(size_bytes), kAlignment);
  const bool fits = !blocks_.empty() && size <= blocks_.back().size_bytes - used_bytes_;
  if (!fits && !add_block(std::max(size, kBlockBytesMin))) return nullptr;
  std::byte* at = blocks_.back().bytes.get() + used_bytes_;
  used_bytes_ += size;
  return at;
}

void Arena::reset() {
  size_t total = 0;
  for (const Block& block : blocks_) total += block.size_bytes;
  if (total > kKeepBytesMax) {
    blocks_.clear();
  } else if (blocks_.size() > 1) {
    blocks_.clear();
    add_block(total);
  }
  used_bytes_ = 0;
}

}  // namespace yard::images
