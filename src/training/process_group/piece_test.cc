#include "process_group/piece.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstring>

namespace yard::process_group {
namespace {

const float* floats(const Piece& piece) {
  return reinterpret_cast<const float*>(piece.bytes().data());
}

TEST(PieceTest, AContiguousTensorIsItsOwnPiece) {
  at::Tensor tensor = at::arange(6, at::kFloat).view({2, 3});
  const Piece piece({tensor}, Content::kKept);
  EXPECT_FALSE(piece.is_temporary());
  EXPECT_EQ(static_cast<void*>(piece.bytes().data()), tensor.data_ptr());
  EXPECT_EQ(piece.bytes().size(), 24u);
}

TEST(PieceTest, NeighboursInMemoryAreOnePiece) {
  at::Tensor whole = at::arange(12, at::kFloat);
  const Piece piece({whole.narrow(0, 0, 4), whole.narrow(0, 4, 0), whole.narrow(0, 4, 8)},
                    Content::kKept);
  EXPECT_FALSE(piece.is_temporary());
  EXPECT_EQ(piece.bytes().size(), 48u);
  const Piece swapped({whole.narrow(0, 6, 6), whole.narrow(0, 0, 6)}, Content::kKept);
  EXPECT_TRUE(swapped.is_temporary());
  EXPECT_EQ(floats(swapped)[0], 6);
  EXPECT_EQ(floats(swapped)[6], 0);
}

TEST(PieceTest, AStridedTensorGoesThroughATemporaryInTheOrderOfItsElements) {
  at::Tensor tensor = at::arange(6, at::kFloat).view({2, 3}).t();
  Piece piece({tensor}, Content::kKept);
  ASSERT_TRUE(piece.is_temporary());
  EXPECT_EQ(floats(piece)[1], 3);
  at::Tensor(piece.temporary()).mul_(10);
  EXPECT_EQ(tensor[0][1].item<float>(), 3);
  piece.spread();
  EXPECT_EQ(tensor[0][1].item<float>(), 30);
}

TEST(PieceTest, AConjugatedViewIsResolved) {
  at::Tensor real = at::arange(2, at::kFloat);
  at::Tensor tensor = at::complex(real, real).conj();
  const Piece piece({tensor}, Content::kKept);
  ASSERT_TRUE(piece.is_temporary());
  EXPECT_EQ(floats(piece)[3], -1);
}

TEST(PieceTest, ADetachedPieceLeavesTheTensorAlone) {
  at::Tensor tensor = at::arange(4, at::kFloat);
  const Piece piece({tensor}, Content::kDetached);
  ASSERT_TRUE(piece.is_temporary());
  EXPECT_TRUE(at::equal(piece.temporary(), tensor));
  std::memset(piece.bytes().data(), 0, piece.bytes().size());
  EXPECT_EQ(tensor[3].item<float>(), 3);
}

TEST(PieceTest, ALeafThatWantsGradientsIsWritten) {
  at::Tensor tensor = at::zeros({2, 3}).set_requires_grad(true);
  const Piece piece({tensor.detach().t()}, Content::kUnset);
  at::Tensor(piece.temporary()).fill_(1);
  piece.spread();
  EXPECT_EQ(tensor.sum().item<float>(), 6);
}

TEST(PieceTest, NothingIsAPieceToo) {
  EXPECT_TRUE(Piece({}, Content::kKept).bytes().empty());
  EXPECT_TRUE(Piece({at::empty({0, 3})}, Content::kKept).bytes().empty());
  const Piece piece({at::empty({0, 3}).t()}, Content::kUnset);
  piece.spread();
  EXPECT_TRUE(piece.bytes().empty());
}

TEST(PieceTest, SpansOverlapWhenTheyShareAByte) {
  std::byte bytes[8];
  const std::span<const std::byte> all(bytes);
  EXPECT_TRUE(overlap(all.first(5), all.subspan(4)));
  EXPECT_FALSE(overlap(all.first(4), all.subspan(4)));
  EXPECT_FALSE(overlap(all.subspan(2, 0), all));
  EXPECT_TRUE(overlap(all, all.subspan(7)));
}

}  // namespace
}  // namespace yard::process_group
