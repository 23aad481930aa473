#include "loop/optimizer.h"

#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "loop/adamw_8bit_internal.h"
#include "parallel/adamw.h"
#include "tensor/guard_torch.h"

namespace yard::loop {
namespace {

class AdamWOptimizer final : public Optimizer {
 public:
  explicit AdamWOptimizer(std::unique_ptr<parallel::AdamW> adamw) : adamw_(std::move(adamw)) {}

  Result<double> step(double learning_rate) override { return adamw_->step(learning_rate); }
  int64_t step_count() const override { return adamw_->step_count(); }
  Result<std::vector<OptimizerState>> state() const override {
    return std::vector<OptimizerState>{{"exp_avg.", adamw_->exp_avg()},
                                       {"exp_avg_sq.", adamw_->exp_avg_sq()}};
  }
  Status restored(const std::vector<OptimizerState>&, int64_t step_count) override {
    return adamw_->restored(step_count);
  }
  size_t state_bytes() const override {
    return adamw_->exp_avg().nbytes() + adamw_->exp_avg_sq().nbytes();
  }

 private:
  std::unique_ptr<parallel::AdamW> adamw_;
};

// Momentum as PyTorch's SGD has it, without dampening.
class Sgd final : public Optimizer {
 public:
  Sgd(parallel::DataParallel& parallel, const OptimizerRecipe& recipe)
      : parallel_(parallel),
        recipe_(recipe),
        momentum_(parallel.make_local(at::kFloat, at::kCPU)),
        cuts_(parallel.cut(momentum_)) {}

  Result<double> step(double learning_rate) override {
    YARD_ASSIGN(const double norm, parallel_.gradient_norm());
    if (!std::isfinite(norm)) return norm;
    YARD_TRY(tensor::guard_torch("optimiser step", [&]() -> Status {
      ++step_count_;
      update(learning_rate, norm);
      return parallel_.publish(step_count_);
    }));
    return norm;
  }
  int64_t step_count() const override { return step_count_; }
  Result<std::vector<OptimizerState>> state() const override {
    return std::vector<OptimizerState>{{"momentum.", momentum_}};
  }
  Status restored(const std::vector<OptimizerState>&, int64_t step_count) override {
    step_count_ = step_count;
    return parallel_.publish(step_count_);
  }
  size_t state_bytes() const override { return momentum_.nbytes(); }

 private:
  void update(double learning_rate, double norm) {
    if (cuts_.empty()) return;
    c10::NoGradGuard no_grad;
    // The kernel divides gradients by grad_scale on the way.
    std::optional<at::Tensor> grad_scale;
    if (recipe_.clip > 0 && norm > recipe_.clip)
      grad_scale = at::full({}, (norm + 1e-6) / recipe_.clip, momentum_.options());
    // A buffer of zeros gives what a first step without buffer would.
    at::_fused_sgd_(parallel_.local_parameters(), parallel_.local_gradients(), cuts_,
                    recipe_.weight_decay, recipe_.momentum, learning_rate, /*dampening=*/0,
                    recipe_.nesterov, /*maximize=*/false, /*is_first_step=*/false, grad_scale,
                    std::nullopt);
  }

  parallel::DataParallel& parallel_;
  const OptimizerRecipe recipe_;
  at::Tensor momentum_;
  std::vector<at::Tensor> cuts_;
  int64_t step_count_ = 0;
};

Result<std::unique_ptr<Optimizer>> make_adamw(parallel::DataParallel& parallel,
                                              const OptimizerRecipe& recipe, bool offload) {
  YARD_ASSIGN(auto adamw,
              parallel::AdamW::create(
                  parallel,
                  {.beta1 = recipe.beta1,
                   .beta2 = recipe.beta2,
                   .eps = recipe.eps,
                   .weight_decay = recipe.weight_decay,
                   .clip = recipe.clip,
                   .state_device = offload ? std::optional<at::Device>(at::kCPU) : std::nullopt}));
  return std::unique_ptr<Optimizer>(std::make_unique<AdamWOptimizer>(std::move(adamw)));
}

}  // namespace

Result<std::unique_ptr<Optimizer>> Optimizer::create(parallel::DataParallel& parallel,
                                                     const OptimizerRecipe& recipe, bool offload) {
  return tensor::guard_torch("making optimiser state", [&]() -> Result<std::unique_ptr<Optimizer>> {
    switch (recipe.kind) {
      case OptimizerKind::kAdamW:
        return make_adamw(parallel, recipe, offload);
      case OptimizerKind::kAdamW8bit:
        return std::unique_ptr<Optimizer>(std::make_unique<AdamW8bit>(parallel, recipe));
      case OptimizerKind::kSgd:
        return std::unique_ptr<Optimizer>(std::make_unique<Sgd>(parallel, recipe));
    }
    YARD_UNREACHABLE();
  });
}

}  // namespace yard::loop
