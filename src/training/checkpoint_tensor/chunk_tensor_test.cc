#include "checkpoint_tensor/chunk_tensor.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "storage/memory_store.h"

namespace yard::checkpoint {
namespace {

TEST(ChunkTensor, RowsAndColumnsThatWereSavedApartAreLoadedWhole) {
  storage::MemoryStore store;
  const CheckpointStore checkpoints(store, "run");
  const auto group = collective::single_rank_group();
  const auto exchange = exchange_over(*group);
  Saver saver(checkpoints, *exchange);

  const at::Tensor whole = at::arange(24, at::kFloat).view({4, 6});
  const at::Tensor rows = whole.narrow(0, 0, 2).contiguous();
  const at::Tensor left = whole.narrow(0, 2, 2).narrow(1, 0, 1).contiguous();
  const at::Tensor right = whole.narrow(0, 2, 2).narrow(1, 1, 5).contiguous();
  const at::Tensor half = at::arange(5, at::kBFloat16);
  const std::vector<TensorView> views{
      *chunk_view("w", rows, {4, 6}, Region::flat(0, 12)),
      *chunk_view("w", left, {4, 6}, Region::box({{2, 4}, {0, 1}})),
      *chunk_view("w", right, {4, 6}, Region::box({{2, 4}, {1, 6}})), *chunk_view("half", half)};
  ASSERT_TRUE(saver.save(1, views));
  ASSERT_TRUE(saver.wait());

  at::Tensor loaded = at::zeros({4, 6});
  at::Tensor loaded_half = at::zeros({5}, at::kBFloat16);
  const std::vector<TensorTarget> targets{*chunk_target("w", loaded),
                                          *chunk_target("half", loaded_half)};
  ASSERT_TRUE(load(checkpoints, *checkpoints.read(1), targets));
  EXPECT_TRUE(at::equal(loaded, whole));
  EXPECT_TRUE(at::equal(loaded_half, half));
}

TEST(ChunkTensor, WhatIsNoChunkIsRefusedByName) {
  const at::Tensor whole = at::zeros({4, 6});
  const auto message = [](const auto& result) {
    return result ? std::string() : result.error().message;
  };
  EXPECT_NE(message(chunk_view("a.b", whole.t())).find("tensor 'a.b': is not contiguous"),
            std::string::npos);
  EXPECT_NE(message(chunk_view("c", at::zeros({2}, at::kComplexDouble))).find("cannot be stored"),
            std::string::npos);
  EXPECT_NE(message(chunk_view("w", whole, {4, 7}, Region::all())).find("elements"),
            std::string::npos);
  EXPECT_NE(message(chunk_view("w", whole, {4, 6}, Region::flat(2, 26))).find("region"),
            std::string::npos);
  EXPECT_FALSE(chunk_view("u", at::Tensor()));
}

}  // namespace
}  // namespace yard::checkpoint
