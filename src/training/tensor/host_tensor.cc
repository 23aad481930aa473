#include "tensor/host_tensor.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "base/result.h"

namespace yard::tensor {
namespace {

template <typename T>
at::Tensor copy(std::span<const T> values, at::IntArrayRef shape, at::ScalarType type) {
  at::Tensor out = at::empty(shape, type);
  YARD_CHECK(static_cast<size_t>(out.numel()) == values.size());
  std::copy(values.begin(), values.end(), out.mutable_data_ptr<T>());
  return out;
}

}  // namespace

at::Tensor copy_of(std::span<const float> values, at::IntArrayRef shape) {
  return copy(values, shape, at::kFloat);
}

at::Tensor copy_of(std::span<const int64_t> values, at::IntArrayRef shape) {
  return copy(values, shape, at::kLong);
}

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  YARD_CHECK(tensor.device().is_cpu() && tensor.is_contiguous());
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

std::span<float> floats_of(const at::Tensor& tensor) {
  YARD_CHECK(tensor.device().is_cpu() && tensor.is_contiguous());
  return {tensor.mutable_data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

}  // namespace yard::tensor
