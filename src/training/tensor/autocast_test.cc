#include "tensor/autocast.h"

#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "tensor/host_tensor.h"

namespace yard::tensor {
namespace {

c10::ScalarType product_type() {
  return at::matmul(at::ones({2, 2}), at::ones({2, 2})).scalar_type();
}

TEST(AutocastTest, MatrixProductsAreBf16WhileItLives) {
  EXPECT_EQ(product_type(), at::kFloat);
  {
    const Autocast on(at::kCPU, true);
    EXPECT_EQ(product_type(), at::kBFloat16);
    {
      const Autocast off(at::kCPU, false);
      EXPECT_EQ(product_type(), at::kFloat);
    }
    EXPECT_EQ(product_type(), at::kBFloat16);
  }
  EXPECT_EQ(product_type(), at::kFloat);
}

TEST(HostTensorTest, CopiesValuesAndShowsTheirBytes) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const at::Tensor tensor = copy_of(std::span<const float>(values), {2, 3});
  EXPECT_EQ(tensor[1][0].item<float>(), 4);
  EXPECT_EQ(bytes_of(tensor).size(), 24u);
  floats_of(tensor)[5] = 9;
  EXPECT_EQ(tensor[1][2].item<float>(), 9);
}

}  // namespace
}  // namespace yard::tensor
