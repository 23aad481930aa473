#include "loop/trainee.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "tensor/file_tensor.h"
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

}  // namespace

Result<std::unique_ptr<Trainee>> Trainee::create(std::vector<NamedTensor> parameters,
                                                 const parallel::ParallelGroups& groups,
                                                 const TraineeOptions& options,
                                                 const parallel::ParameterStart& start) {
  auto trainee = std::unique_ptr<Trainee>(new Trainee(std::move(parameters), options.ema));
  // Equal already when made from one seed or one file; a host with another file must not spoil it:
  // all take rank 0's.
  const parallel::DataParallelOptions how = options_of(options);
  auto shared_out =
      start ? parallel::DataParallel::create_deferred(trainee->parameters_, start, groups, how)
            : parallel::DataParallel::create(trainee->parameters_, groups, how);
  YARD_ASSIGN(trainee->data_parallel_, std::move(shared_out));
  YARD_ASSIGN(trainee->optimizer_, Optimizer::create(*trainee->data_parallel_, options.optimizer,
                                                     options.parallel.offload));
  if (!options.has_average) return trainee;
  return tensor::guard_torch("making the average", [&]() -> Result<std::unique_ptr<Trainee>> {
    c10::NoGradGuard no_grad;
    trainee->ema_ = trainee->data_parallel_->make_local(at::kFloat, at::kCPU);
    trainee->ema_cuts_ = trainee->data_parallel_->cut(trainee->ema_);
    trainee->begin_average();
    return std::move(trainee);
  });
}

void Trainee::begin_average() {
  const std::vector<at::Tensor>& local = data_parallel_->local_parameters();
  for (size_t i = 0; i < ema_cuts_.size(); ++i) ema_cuts_[i].copy_(local[i]);
}

Result<double> Trainee::step(double learning_rate) {
  const int64_t before = step_count();
  YARD_ASSIGN(const double norm, optimizer_->step(learning_rate));
  if (step_count() > before) move_average();
  return norm;
}

void Trainee::move_average() {
  c10::NoGradGuard no_grad;
  const bool on = ema_recipe_.decay > 0 && step_count() > ema_recipe_.start_step;
  if (!on) average_begin_ = step_count();
  const int64_t update_count = step_count() - average_begin_;
  if (on && update_count % ema_recipe_.update_every != 0) return;
  const auto n = static_cast<double>(update_count);
  // The decay is that of a step, however many an update stands for.
  double decay = std::pow(ema_recipe_.decay, static_cast<double>(ema_recipe_.update_every));
  if (ema_recipe_.warm_up) decay = std::min(decay, (1 + n) / (10 + n));
  const std::vector<at::Tensor>& local = data_parallel_->local_parameters();
  for (size_t i = 0; i < ema_cuts_.size(); ++i) ema_cuts_[i].lerp_(local[i], on ? 1 - decay : 1);
}

size_t Trainee::memory_bytes() const {
  return data_parallel_->memory().total() + optimizer_->state_bytes() +
         (ema_.defined() ? ema_.nbytes() : 0);
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

Result<std::vector<NamedTensor>> Trainee::weights_on_disk(const std::string& folder,
                                                          bool wanted) const {
  int64_t element_count = 0;
  for (const NamedTensor& p : parameters_) element_count += p.tensor.numel();
  Result<at::Tensor> file = at::Tensor();
  if (wanted) file = tensor::make_file_tensor(folder, element_count, at::kFloat);
  // The others are in it already.
  auto weights = data_parallel_->gather_into(file ? *file : at::Tensor());
  if (weights && !file) return std::move(file).error().while_("gathering the weights");
  return weights;
}

Result<TraineeState> Trainee::state() const {
  TraineeState out{.tensors = sharded_weights(), .optimizer = {}};
  const auto append = [&](const std::string& prefix, const at::Tensor& values) {
    auto some = data_parallel_->sharded(prefix, values);
    std::move(some.begin(), some.end(), std::back_inserter(out.tensors));
  };
  YARD_ASSIGN(out.optimizer, optimizer_->state());
  for (const OptimizerState& state : out.optimizer) append(state.prefix, state.values);
  if (ema_.defined()) append("ema.", ema_);
  return out;
}

Status Trainee::restored(const TraineeState& state, const TraineeProgress& progress) {
  average_begin_ = progress.average_begin;
  return optimizer_->restored(state.optimizer, progress.step_count);
}

Status Trainee::weights_restored() {
  c10::NoGradGuard no_grad;
  begin_average();
  YARD_ASSIGN(const std::vector<OptimizerState> unused, optimizer_->state());
  return optimizer_->restored(unused, 0);
}

}  // namespace yard::loop
