#include "images/arena_internal.h"

#include <gtest/gtest.h>

#include <cstring>

namespace yard::images {
namespace {

TEST(Arena, PiecesAreAlignedAndDoNotOverlap) {
  Arena arena;
  std::vector<std::pair<uint8_t*, size_t>> pieces;
  for (size_t size = 0; size < 3000; size += 7) {
    auto* piece = static_cast<uint8_t*>(arena.allocate(size));
    ASSERT_EQ(reinterpret_cast<uintptr_t>(piece) % Arena::kAlignment, 0U);
    std::memset(piece, int(size % 251), size);
    pieces.emplace_back(piece, size);
  }
  for (const auto& [piece, size] : pieces) {
    for (size_t i = 0; i < size; ++i) ASSERT_EQ(piece[i], size % 251);
  }
}

TEST(Arena, TheThirdRoundTakesTheSameMemoryAsTheSecond) {
  Arena arena;
  const auto take = [&] {
    std::vector<void*> pieces;
    for (const size_t size : {100UL, 200000UL, 64UL, 70000UL})
      pieces.push_back(arena.allocate(size));
    arena.reset();
    return pieces;
  };
  take();
  const auto second = take();
  EXPECT_EQ(take(), second);
}

TEST(Arena, ImpossibleSizesAreRefused) {
  Arena arena;
  EXPECT_EQ(arena.allocate(SIZE_MAX), nullptr);
  EXPECT_EQ(arena.allocate(SIZE_MAX / 1024), nullptr);
  EXPECT_NE(arena.allocate(1), nullptr);
}

}  // namespace
}  // namespace yard::images
