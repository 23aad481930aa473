#include "loop/trainee.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <iterator>

#include "tensor/guard_torch.h"

namespace yard::loop {

using models::NamedTensor;

namespace {

parallel::DataParallelOptions options_of(const TraineeOptions& options) {
  const ParallelRecipe& recipe = options.parallel;
  const auto sharding = [&] {
    switch (recipe.mode) {
      case ParallelMode::kDdp:
        return parallel::Sharding::kNone;
      case ParallelMode::kZero1:
        return parallel::Sharding::kOptimizer;
      case ParallelMode::kZero2:
        return parallel::Sharding::kGradients;
      case ParallelMode::kZero3:
      case ParallelMode::kHybrid:
        return parallel::Sharding::kParameters;
    }
    YARD_UNREACHABLE();
  };
  return {.sharding = sharding(),
          .accumulation = recipe.accumulate_whole ? parallel::Accumulation::kWhole
                                                  : parallel::Accumulation::kAsSharded,
          .unit_bytes = static_cast<int64_t>(recipe.bucket_bytes),
          .compute_dtype = recipe.bf16_parameters ? at::kBFloat16 : at::kFloat,
          .stochastic_rounding = recipe.stochastic_rounding,
          .seed = options.seed,
          .gathered_units = static_cast<int>(recipe.gathered_units)};
}

parallel::AdamWOptions options_of(const OptimizerRecipe& recipe, bool offload) {
  return {.beta1 = recipe.beta1,
          .beta2 = recipe.beta2,
          .eps = recipe.eps,
          .weight_decay = recipe.weight_decay,
          .clip = recipe.clip,
          .state_device = offload ? std::optional<at::Device>(at::kCPU) : std::nullopt};
}

}  // namespace

Result<std::unique_ptr<Trainee>> Trainee::create(std::vector<NamedTensor> parameters,
                                                 const parallel::ParallelGroups& groups,
                                                 const TraineeOptions& options) {
  auto trainee = std::unique_ptr<Trainee>(new Trainee(std::move(parameters), options.ema));
  // Equal already when made from one seed or one file; a host with another file must not spoil it:
  // all take rank 0's.
  YARD_ASSIGN(trainee->data_parallel_,
              parallel::DataParallel::create(trainee->parameters_, groups, options_of(options)));
  YARD_ASSIGN(trainee->adamw_,
              parallel::AdamW::create(*trainee->data_parallel_,
                                      options_of(options.optimizer, options.parallel.offload)));
  if (options.ema.decay == 0) return trainee;
  return tensor::guard_torch("making the average", [&]() -> Result<std::unique_ptr<Trainee>> {
    c10::NoGradGuard no_grad;
    trainee->ema_ = trainee->data_parallel_->make_local(at::kFloat, at::kCPU);
    trainee->ema_cuts_ = trainee->data_parallel_->cut(trainee->ema_);
    const std::vector<at::Tensor>& local = trainee->data_parallel_->local_parameters();
    for (size_t i = 0; i < local.size(); ++i) trainee->ema_cuts_[i].copy_(local[i]);
    return std::move(trainee);
  });
}

Result<double> Trainee::step(double learning_rate) {
  const int64_t before = step_count();
  YARD_ASSIGN(const double norm, adamw_->step(learning_rate));
  if (step_count() > before) move_average();
  return norm;
}

void Trainee::move_average() {
  c10::NoGradGuard no_grad;
  const int64_t updates = step_count() - ema_recipe_.start_step;
  const double n = static_cast<double>(std::max<int64_t>(updates, 0));
  const double decay = updates <= 0 ? 0 : std::min(ema_recipe_.decay, (1 + n) / (10 + n));
  const std::vector<at::Tensor>& local = data_parallel_->local_parameters();
  for (size_t i = 0; i < ema_cuts_.size(); ++i) ema_cuts_[i].lerp_(local[i], 1 - decay);
}

Status Trainee::set_weights(const std::vector<at::Tensor>& values) {
  return tensor::guard_torch("exchanging weights", [&]() -> Status {
    c10::NoGradGuard no_grad;
    const std::vector<at::Tensor>& local = data_parallel_->local_parameters();
    for (size_t i = 0; i < local.size(); ++i) at::Tensor(local[i]).copy_(values[i]);
    return data_parallel_->publish(step_count());
  });
}

Trainee::AveragedWeights::AveragedWeights(Trainee& trainee) : trainee_(trainee) {
  if (!trainee_.ema_.defined()) return;
  for (const at::Tensor& t : trainee_.data_parallel_->local_parameters())
    trained_.push_back(t.detach().clone());
  status_ = trainee_.set_weights(trainee_.ema_cuts_);
}

Trainee::AveragedWeights::~AveragedWeights() {
  if (!trainee_.ema_.defined()) return;
  // A group that died meanwhile says so at the next operation too.
  (void)trainee_.set_weights(trained_);
}

Status Trainee::keep_average() {
  return ema_.defined() ? set_weights(ema_cuts_) : Status(Ok{});
}

Result<TraineeTensors> Trainee::snapshot(bool wanted) const {
  TraineeTensors out;
  YARD_ASSIGN(out.weights, data_parallel_->gather("", {}, wanted));
  YARD_ASSIGN(out.optimizer, data_parallel_->gather("exp_avg.", adamw_->exp_avg(), wanted));
  YARD_ASSIGN(auto squares, data_parallel_->gather("exp_avg_sq.", adamw_->exp_avg_sq(), wanted));
  std::move(squares.begin(), squares.end(), std::back_inserter(out.optimizer));
  if (ema_.defined()) {
    YARD_ASSIGN(out.ema, data_parallel_->gather("", ema_, wanted));
  }
  return out;
}

Status Trainee::restore(const std::vector<NamedTensor>& optimizer,
                        const std::vector<NamedTensor>& ema, int64_t step_count,
                        const std::string& what) {
  auto moments = data_parallel_->sharded("exp_avg.", adamw_->exp_avg());
  auto squares = data_parallel_->sharded("exp_avg_sq.", adamw_->exp_avg_sq());
  std::move(squares.begin(), squares.end(), std::back_inserter(moments));
  YARD_TRY(parallel::copy_pieces(optimizer, moments, what + "/optimizer.safetensors"));
  if (ema_.defined())
    YARD_TRY(
        parallel::copy_pieces(ema, data_parallel_->sharded("", ema_), what + "/ema.safetensors"));
  return adamw_->restored(step_count);
}

}  // namespace yard::loop
