#include "loop/flop_counter.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <memory>
#include <string_view>
#include <unordered_map>

namespace yard::loop {
namespace {

using Operands = c10::ArrayRef<const c10::IValue>;

at::Tensor tensor_at(const Operands& operands, size_t index) {
  return index < operands.size() && operands[index].isTensor() ? operands[index].toTensor()
                                                               : at::Tensor();
}

// [.., M, K] times [.., K, N]; `first`: which operand is the left one.
double product(const Operands& operands, size_t first) {
  const at::Tensor a = tensor_at(operands, first), b = tensor_at(operands, first + 1);
  if (!a.defined() || !b.defined()) return 0;
  return 2.0 * static_cast<double>(a.numel()) * static_cast<double>(b.size(-1));
}

double matmul_flops(const Operands& operands) {
  return product(operands, 0);
}

double added_matmul_flops(const Operands& operands) {
  return product(operands, 1);
}

// For each value of an output, by each weight that one output channel has.
double convolution_flops_of(double output_values, const at::Tensor& weight) {
  return 2 * output_values * static_cast<double>(weight.numel()) /
         static_cast<double>(weight.size(0));
}

// input, weight, bias, stride, padding, dilation, transposed, output padding, groups
double convolution_flops(const Operands& operands) {
  const at::Tensor input = tensor_at(operands, 0), weight = tensor_at(operands, 1);
  if (!input.defined() || !weight.defined() || operands.size() < 9) return 0;
  const auto stride = operands[3].toIntVector(), padding = operands[4].toIntVector();
  const auto dilation = operands[5].toIntVector();
  // A transposed one spreads each input value over the weights instead.
  if (operands[6].toBool()) return convolution_flops_of(static_cast<double>(input.numel()), weight);
  auto values = static_cast<double>(input.size(0) * weight.size(0));
  for (int64_t d = 2; d < input.dim(); ++d) {
    const auto k = static_cast<size_t>(d - 2);
    const auto at = [&](const std::vector<int64_t>& of) { return of[std::min(k, of.size() - 1)]; };
    const int64_t reach = at(dilation) * (weight.size(d) - 1) + 1;
    values *= static_cast<double>((input.size(d) + 2 * at(padding) - reach) / at(stride) + 1);
  }
  return convolution_flops_of(values, weight);
}

// gradient of the output, input, weight, ..., which of three gradients are wanted
double convolution_backward_flops(const Operands& operands) {
  const at::Tensor gradient = tensor_at(operands, 0), weight = tensor_at(operands, 2);
  if (!gradient.defined() || !weight.defined() || !operands.back().isList()) return 0;
  const auto wanted = operands.back().toBoolList();
  const double each = convolution_flops_of(static_cast<double>(gradient.numel()), weight);
  return each * (static_cast<double>(wanted.get(0)) + static_cast<double>(wanted.get(1)));
}

// q [B, H, L, D], k [B, H, S, D]: two products forward, five backward.
double attention_flops(const Operands& operands, size_t first, double products) {
  const at::Tensor q = tensor_at(operands, first), k = tensor_at(operands, first + 1);
  if (!q.defined() || !k.defined()) return 0;
  return products * 2 * static_cast<double>(q.numel()) * static_cast<double>(k.size(-2));
}

double attention_forward_flops(const Operands& operands) {
  return attention_flops(operands, 0, 2);
}

double attention_backward_flops(const Operands& operands) {
  return attention_flops(operands, 1, 5);
}

using Formula = double (*)(const Operands&);

Formula formula_of(std::string_view operation) {
  static const std::unordered_map<std::string_view, Formula> kFormulas = {
      {"aten::mm", matmul_flops},
      {"aten::bmm", matmul_flops},
      {"aten::addmm", added_matmul_flops},
      {"aten::baddbmm", added_matmul_flops},
      {"aten::convolution", convolution_flops},
      {"aten::convolution_backward", convolution_backward_flops},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", attention_forward_flops},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward_flops},
      {"aten::_scaled_dot_product_flash_attention", attention_forward_flops},
      {"aten::_scaled_dot_product_flash_attention_backward", attention_backward_flops},
      {"aten::_scaled_dot_product_efficient_attention", attention_forward_flops},
      {"aten::_scaled_dot_product_efficient_attention_backward", attention_backward_flops},
  };
  const auto it = kFormulas.find(operation);
  return it == kFormulas.end() ? nullptr : it->second;
}

// libtorch calls a plain function: where its counts go.
thread_local double* sum_of_thread = nullptr;

std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& call) {
  if (sum_of_thread == nullptr) return nullptr;
  if (const Formula formula = formula_of(call.name())) *sum_of_thread += formula(call.inputs());
  return nullptr;
}

}  // namespace

FlopCounter::FlopCounter() {
  sum_of_thread = &flops_;
  callback_ = at::addThreadLocalCallback(at::RecordFunctionCallback(count).needsInputs(true).scopes(
      {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

FlopCounter::~FlopCounter() {
  at::removeCallback(callback_);
  sum_of_thread = nullptr;
}

}  // namespace yard::loop
