#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "base/result.h"
#include "kernels/attention.h"
#include "models/cpu_attention_internal.h"

namespace yard::models::internal {
namespace {

using kernels::ConstRows;
using kernels::Rows;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What a head's rows are inside [B, L, heads*d].
class Heads {
 public:
  Heads(const at::Tensor& q, const at::Tensor& k, int64_t heads)
      : heads_(heads), batch_(q.size(0)), width_(q.size(2) / heads), shape_() {
    shape_.queries = static_cast<size_t>(q.size(1));
    shape_.keys = static_cast<size_t>(k.size(1));
    shape_.width = static_cast<size_t>(width_);
    shape_.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(width_)));
    shape_.element =
        q.scalar_type() == at::kFloat ? kernels::Element::kF32 : kernels::Element::kBf16;
  }

  const kernels::HeadShape& shape() const { return shape_; }

  // Calls body(head, scratch) for all heads of the batch, on torch's threads.
  void for_each(const auto& body) const {
    at::parallel_for(0, batch_ * heads_, 1, [&](int64_t begin, int64_t end) {
      kernels::Scratch scratch;
      for (int64_t head = begin; head < end; ++head) body(head, scratch);
    });
  }

  ConstRows rows(const at::Tensor& of, int64_t head) const {
    return {.data = place(of, head), .stride = of.size(2)};
  }
  Rows rows(at::Tensor& of, int64_t head) const {
    return {.data = place(of, head), .stride = of.size(2)};
  }

 private:
  void* place(const at::Tensor& of, int64_t head) const {
    const int64_t at = head / heads_ * of.size(1) * of.size(2) + head % heads_ * width_;
    return static_cast<char*>(of.data_ptr()) + at * of.element_size();
  }

  int64_t heads_, batch_, width_;
  kernels::HeadShape shape_;
};

class CpuAttention final : public torch::autograd::Function<CpuAttention> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q_in,
                            const at::Tensor& k_in, const at::Tensor& v_in, int64_t heads) {
    const at::Tensor q = q_in.contiguous(), k = k_in.contiguous(), v = v_in.contiguous();
    const Heads in(q, k, heads);
    at::Tensor out = at::empty_like(q);
    const at::Tensor log_sums =
        at::empty({q.size(0), heads, q.size(1)}, q.options().dtype(at::kFloat));
    auto* const sums = log_sums.mutable_data_ptr<float>();
    in.for_each([&](int64_t head, kernels::Scratch& scratch) {
      kernels::attention_forward(in.shape(), in.rows(q, head), in.rows(k, head), in.rows(v, head),
                                 in.rows(out, head), sums + head * q.size(1), scratch);
    });
    context->save_for_backward({q, k, v, log_sums});
    context->saved_data["heads"] = heads;
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    const at::Tensor gradient = gradients[0].to(q.scalar_type()).contiguous();
    const Heads in(q, k, context->saved_data["heads"].toInt());
    at::Tensor dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(v);
    const auto* const sums = saved[3].const_data_ptr<float>();
    in.for_each([&](int64_t head, kernels::Scratch& scratch) {
      kernels::attention_backward(
          in.shape(), in.rows(q, head), in.rows(k, head), in.rows(v, head), in.rows(gradient, head),
          sums + head * q.size(1),
          {.q = in.rows(dq, head), .k = in.rows(dk, head), .v = in.rows(dv, head)}, scratch);
    });
    return {dq, dk, dv, at::Tensor()};
  }
};

}  // namespace

bool cpu_attention_takes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const auto type = q.scalar_type();
  return q.device().is_cpu() && (type == at::kFloat || type == at::kBFloat16) &&
         k.scalar_type() == type && v.scalar_type() == type && q.numel() > 0 && k.numel() > 0;
}

at::Tensor cpu_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         int64_t heads) {
  YARD_CHECK(q.dim() == 3 && k.dim() == 3 && k.sizes() == v.sizes() && q.size(2) == k.size(2) &&
             q.size(0) == k.size(0) && q.size(2) % heads == 0);
  return CpuAttention::apply(q, k, v, heads);
}

}  // namespace yard::models::internal
