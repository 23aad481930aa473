#include "loop/trainee.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "models/model_folder.h"
#include "tensor/guard_torch.h"

namespace yard::loop {

using models::NamedTensor;

Result<std::unique_ptr<Trainee>> Trainee::create(std::vector<NamedTensor> parameters,
                                                 collective::Group& group,
                                                 const OptimizerRecipe& optimizer,
                                                 const EmaRecipe& ema) {
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& p : parameters) tensors.push_back(p.tensor);
  auto trainee = std::unique_ptr<Trainee>(new Trainee(std::move(parameters), optimizer, ema));
  YARD_ASSIGN(trainee->data_parallel_, parallel::DataParallel::create(tensors, group, {}));
  // Equal already when made from one seed or one file; a host with another file must not spoil it.
  YARD_TRY(trainee->data_parallel_->broadcast_parameters());
  return tensor::guard_torch("making optimiser state", [&]() -> Result<std::unique_ptr<Trainee>> {
    const at::Tensor flat = trainee->data_parallel_->flat_parameters();
    trainee->exp_avg_ = at::zeros_like(flat);
    trainee->exp_avg_sq_ = at::zeros_like(flat);
    trainee->fused_step_ = at::zeros({}, flat.options());
    if (ema.decay > 0) trainee->ema_ = flat.clone();
    return std::move(trainee);
  });
}

double Trainee::step(double learning_rate) {
  c10::NoGradGuard no_grad;
  at::Tensor parameters = data_parallel_->flat_parameters();
  at::Tensor gradients = data_parallel_->flat_gradients();
  const double norm = gradients.norm().item<double>();
  if (!std::isfinite(norm)) return norm;
  // The kernel divides gradients by grad_scale on the way: clipping costs no pass of its own.
  std::optional<at::Tensor> grad_scale;
  if (optimizer_.clip > 0 && norm > optimizer_.clip)
    grad_scale = at::full({}, (norm + 1e-6) / optimizer_.clip, parameters.options());
  fused_step_.fill_(static_cast<double>(++step_count_));
  at::_fused_adamw_(parameters, gradients, exp_avg_, exp_avg_sq_, {}, fused_step_, learning_rate,
                    optimizer_.beta1, optimizer_.beta2, optimizer_.weight_decay, optimizer_.eps,
                    /*amsgrad=*/false, /*maximize=*/false, grad_scale, std::nullopt);
  move_average();
  return norm;
}

void Trainee::move_average() {
  if (!ema_.defined()) return;
  const int64_t updates = step_count_ - ema_recipe_.start_step;
  const double n = static_cast<double>(std::max<int64_t>(updates, 0));
  const double decay = updates <= 0 ? 0 : std::min(ema_recipe_.decay, (1 + n) / (10 + n));
  ema_.lerp_(data_parallel_->flat_parameters(), 1 - decay);
}

Trainee::AveragedWeights::AveragedWeights(Trainee& trainee) : trainee_(trainee) {
  if (!trainee_.ema_.defined()) return;
  c10::NoGradGuard no_grad;
  trained_ = trainee_.data_parallel_->flat_parameters().clone();
  trainee_.data_parallel_->flat_parameters().copy_(trainee_.ema_);
}

Trainee::AveragedWeights::~AveragedWeights() {
  if (!trained_.defined()) return;
  c10::NoGradGuard no_grad;
  trainee_.data_parallel_->flat_parameters().copy_(trained_);
}

void Trainee::keep_average() {
  if (!ema_.defined()) return;
  c10::NoGradGuard no_grad;
  data_parallel_->flat_parameters().copy_(ema_);
}

void Trainee::reset_average() {
  if (!ema_.defined()) return;
  c10::NoGradGuard no_grad;
  ema_.copy_(data_parallel_->flat_parameters());
}

std::vector<NamedTensor> Trainee::named(const std::string& prefix, const at::Tensor& flat) const {
  std::vector<NamedTensor> out;
  for (size_t i = 0; i < parameters_.size(); ++i)
    out.push_back({prefix + parameters_[i].name, data_parallel_->view_of(i, flat)});
  return out;
}

TraineeTensors Trainee::snapshot() const {
  TraineeTensors out{.optimizer = named("exp_avg.", exp_avg_.clone())};
  for (NamedTensor& t : named("exp_avg_sq.", exp_avg_sq_.clone()))
    out.optimizer.push_back(std::move(t));
  if (ema_.defined()) out.ema = named("", ema_.clone());
  return out;
}

std::vector<NamedTensor> Trainee::weights_snapshot() const {
  return named("", data_parallel_->flat_parameters().detach().clone());
}

Status Trainee::restore(const std::vector<NamedTensor>& optimizer,
                        const std::vector<NamedTensor>& ema, int64_t step_count,
                        const std::string& what) {
  std::vector<NamedTensor> moments = named("exp_avg.", exp_avg_);
  for (NamedTensor& t : named("exp_avg_sq.", exp_avg_sq_)) moments.push_back(std::move(t));
  YARD_TRY(models::copy_parameters(optimizer, moments, what + "/optimizer.safetensors"));
  if (ema_.defined())
    YARD_TRY(models::copy_parameters(ema, named("", ema_), what + "/ema.safetensors"));
  step_count_ = step_count;
  return Ok{};
}

}  // namespace yard::loop
