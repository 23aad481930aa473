#include "parallel/adamw.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <iterator>

#include "tensor/guard_torch.h"

namespace yard::parallel {
namespace {

// The tensors themselves where they are on `device` already.
std::vector<at::Tensor> on_device(const std::vector<at::Tensor>& tensors, at::Device device) {
  std::vector<at::Tensor> out;
  for (const at::Tensor& t : tensors) out.push_back(t.to(device));
  return out;
}

}  // namespace

Result<std::unique_ptr<AdamW>> AdamW::create(DataParallel& parallel, const AdamWOptions& options) {
  return tensor::guard_torch("making optimiser state", [&]() -> Result<std::unique_ptr<AdamW>> {
    auto made = std::unique_ptr<AdamW>(new AdamW(parallel, options));
    made->allocate();
    return made;
  });
}

void AdamW::allocate() {
  const std::vector<at::Tensor>& local = parallel_.local_parameters();
  const at::Device device =
      options_.state_device.value_or(local.empty() ? at::Device(at::kCPU) : local[0].device());
  exp_avg_ = parallel_.make_local(at::kFloat, device);
  exp_avg_sq_ = parallel_.make_local(at::kFloat, device);
  exp_avg_cuts_ = parallel_.cut(exp_avg_);
  exp_avg_sq_cuts_ = parallel_.cut(exp_avg_sq_);
  parameters_ = on_device(local, device);
  fused_steps_.assign(local.size(), at::zeros({}, exp_avg_.options()));
}

Result<double> AdamW::step(double learning_rate) {
  YARD_ASSIGN(const double norm, parallel_.gradient_norm());
  if (!std::isfinite(norm)) return norm;
  YARD_TRY(tensor::guard_torch("optimiser step", [&]() -> Status {
    update(learning_rate, norm);
    return parallel_.publish(step_count_);
  }));
  return norm;
}

void AdamW::update(double learning_rate, double norm) {
  ++step_count_;
  if (parameters_.empty()) return;
  c10::NoGradGuard no_grad;
  // The kernel divides gradients by grad_scale on the way: clipping costs no pass of its own.
  std::optional<at::Tensor> grad_scale;
  if (options_.clip > 0 && norm > options_.clip)
    grad_scale = at::full({}, (norm + 1e-6) / options_.clip, exp_avg_.options());
  fused_steps_[0].fill_(static_cast<double>(step_count_));
  at::_fused_adamw_(parameters_, on_device(parallel_.local_gradients(), exp_avg_.device()),
                    exp_avg_cuts_, exp_avg_sq_cuts_, {}, fused_steps_, learning_rate,
                    options_.beta1, options_.beta2, options_.weight_decay, options_.eps,
                    /*amsgrad=*/false, /*maximize=*/false, grad_scale, std::nullopt);
  const std::vector<at::Tensor>& local = parallel_.local_parameters();
  for (size_t i = 0; i < local.size(); ++i)
    if (!local[i].is_same(parameters_[i])) at::Tensor(local[i]).copy_(parameters_[i]);
}

std::vector<ShardedTensor> AdamW::sharded_tensors() const {
  std::vector<ShardedTensor> all = parallel_.sharded_parameters("");
  for (const auto& [prefix, moment] :
       {std::pair{"exp_avg.", exp_avg_}, {"exp_avg_sq.", exp_avg_sq_}}) {
    std::vector<ShardedTensor> some = parallel_.sharded(prefix, moment);
    all.insert(all.end(), std::make_move_iterator(some.begin()),
               std::make_move_iterator(some.end()));
  }
  return all;
}

Status AdamW::restored(int64_t step_count) {
  step_count_ = step_count;
  return tensor::guard_torch("taking up optimiser state", [&]() -> Status {
    c10::NoGradGuard no_grad;
    const std::vector<at::Tensor>& local = parallel_.local_parameters();
    for (size_t i = 0; i < local.size(); ++i)
      if (!local[i].is_same(parameters_[i])) parameters_[i].copy_(local[i]);
    return parallel_.publish(step_count_);
  });
}

}  // namespace yard::parallel
