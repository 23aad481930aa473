#include "loop/npy.h"

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <vector>

namespace yard::loop {
namespace {

Result<at::Tensor> read(const std::string& bytes) {
  return tensor_of_npy(std::as_bytes(std::span(bytes)), "x.npy");
}

TEST(NpyTest, ArraysComeBack) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2, 3, 4}, {24}}) {
    const at::Tensor values = at::arange(24, at::kFloat).reshape(shape);
    EXPECT_TRUE(read(npy_bytes(values))->equal(values));
    EXPECT_TRUE(read(npy_bytes(values.to(at::kHalf)))->equal(values));
  }
}

TEST(NpyTest, WhatIsNoSuchArrayIsCorrupt) {
  const std::string good = npy_bytes(at::arange(6, at::kFloat).reshape({2, 3}));
  EXPECT_EQ(good.size() % 64, 24u) << "the header is padded";
  const auto replaced = [&](std::string_view from, std::string_view to) {
    std::string bad = good;
    return bad.replace(bad.find(from), from.size(), to);
  };
  for (const std::string& bad :
       {std::string(), good.substr(0, 9), good.substr(0, 40), good.substr(0, good.size() - 1),
        good + "x", replaced("<f4", "<i4"), replaced("False", "True "),
        replaced("(2, 3)", "(2, 4)"), replaced("(2, 3)", "(-2,3)"), replaced("(2, 3)", "[2, 3]"),
        replaced("NUMPY", "numpy"), replaced("(2, 3), }", "(4294967296,4294967296")}) {
    const auto got = read(bad);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, Code::kCorrupt) << got.error().message;
    EXPECT_TRUE(got.error().message.starts_with("x.npy: "));
  }
}

}  // namespace
}  // namespace yard::loop
