#include "loop/dry_run.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <numeric>

#include "base/units.h"
#include "loop/flop_counter.h"
#include "loop/micro_batch.h"
#include "loop/peak_memory.h"
#include "loop/run_context_internal.h"
#include "loop/stage_step.h"
#include "loop/trainee.h"
#include "tensor/guard_torch.h"

namespace yard::loop {
namespace {

constexpr int kMeasuredRounds = 4;

template <typename Body>
Result<double> seconds_of(Body body) {
  const auto start = std::chrono::steady_clock::now();
  YARD_TRY(body());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double deviation_of(const std::vector<double>& values) {
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

int64_t count_values(const std::vector<models::NamedTensor>& parameters) {
  int64_t count = 0;
  for (const models::NamedTensor& p : parameters) count += p.tensor.numel();
  return count;
}

// "unet.conv_in.weight" belongs to "unet".
std::vector<PartSize> parts_of(const Networks& networks) {
  std::vector<PartSize> parts;
  for (const models::NamedTensor& p : networks.parameters()) {
    const std::string part = p.name.substr(0, p.name.find('.'));
    if (parts.empty() || parts.back().name != part) parts.push_back({part, 0});
    parts.back().parameter_count += p.tensor.numel();
  }
  return parts;
}

// One stage of a run, measured.
class StageProbe {
 public:
  StageProbe(RunContext& context, StageRecipe& stage) : context_(context), stage_(stage) {}

  Result<StageCost> measure() {
    YARD_ASSIGN(trainee_, make_trainee(context_, stage_, Start::kOwn));
    cost_.trained_parameter_count = count_values(trainee_->parameters());
    cost_.state_bytes = trainee_->memory_bytes();
    YARD_TRY(choose_micro_batch());
    YARD_TRY(measure_work());
    YARD_TRY(measure_time());
    // Whole weights again, for the stage that follows.
    YARD_TRY(trainee_->release());
    return cost_;
  }

 private:
  int64_t share() const { return stage_.batch / context_.group.size(); }

  Status choose_micro_batch() {
    if (stage_.micro_batch != StageRecipe::kAutoMicroBatch) return Ok{};
    StageStepper stepper(context_, stage_, *trainee_);
    YARD_ASSIGN(stage_.micro_batch, probe_micro_batch(context_, stage_, stepper));
    return Ok{};
  }

  // The first time through, which makes what later ones find made.
  Status measure_work() {
    StageStepper stepper(context_, stage_, *trainee_);
    const PeakMemory memory;
    const FlopCounter flops;
    YARD_TRY(stepper.rehearse(stage_.micro_batch));
    cost_.peak_bytes = memory.peak_bytes();
    cost_.step_flops =
        flops.flops() * static_cast<double>(stage_.batch) / static_cast<double>(stage_.micro_batch);
    return Ok{};
  }

  Status measure_time() {
    StageStepper stepper(context_, stage_, *trainee_);
    std::vector<double> micro, optimizer;
    for (int round = 0; round < kMeasuredRounds; ++round) {
      YARD_ASSIGN(micro.emplace_back(),
                  seconds_of([&] { return stepper.rehearse(stage_.micro_batch); }));
      YARD_ASSIGN(optimizer.emplace_back(), seconds_of([&]() -> Status {
                    YARD_TRY(trainee_->step(0));
                    return Ok{};
                  }));
    }
    const uint64_t value_bytes = sizeof(float);
    cost_.measured = {
        .name = stage_.name,
        .steps = stage_.steps,
        .batch = stage_.batch,
        .micro_batch = stage_.micro_batch,
        .micro_batch_s = mean_of(micro),
        .micro_batch_deviation_s = deviation_of(micro),
        .optimizer_s = mean_of(optimizer),
        .gradient_bytes = static_cast<uint64_t>(cost_.trained_parameter_count) * value_bytes,
        .bucket_bytes = context_.recipe.parallel.bucket_bytes};
    cost_.step_s = cost_.measured.optimizer_s + cost_.measured.micro_batch_s *
                                                    static_cast<double>(share()) /
                                                    static_cast<double>(stage_.micro_batch);
    return Ok{};
  }

  RunContext& context_;
  StageRecipe& stage_;
  std::unique_ptr<Trainee> trainee_;
  StageCost cost_;
};

Result<RecipeCost> measure_guarded(Recipe& recipe, const TrainerOptions& options,
                                   collective::Group& group) {
  set_up_torch(recipe, options.thread_count);
  HeartbeatWriter nobody;
  RunContext context{recipe, options, group, nobody, DiffusionSchedule(recipe.diffusion)};
  YARD_TRY(open_inputs(context));
  YARD_TRY(fit_stages(recipe, group.size(), context.networks->factors()));
  YARD_ASSIGN(context.groups, TrainingGroups::create(recipe.parallel, group));
  RecipeCost cost{.rank_count = group.size(), .parts = parts_of(*context.networks)};
  for (StageRecipe& stage : recipe.stages) {
    YARD_ASSIGN(cost.stages.emplace_back(), StageProbe(context, stage).measure());
  }
  return cost;
}

std::string hours_text(double hours) {
  return format_duration(std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double, std::ratio<3600>>(std::min(hours, 1e5))));
}

}  // namespace

Result<RecipeCost> measure_recipe(Recipe recipe, const TrainerOptions& options,
                                  collective::Group& group) {
  auto cost = tensor::guard_torch("measuring a recipe",
                                  [&] { return measure_guarded(recipe, options, group); });
  if (!cost) group.abort(cost.error().message);
  return cost;
}

std::string to_text(const RecipeCost& cost, double price_per_hour) {
  std::string out;
  for (const PartSize& part : cost.parts)
    out += fmt::format("{:<16}{:>12.3f} M parameters\n", part.name,
                       static_cast<double>(part.parameter_count) / 1e6);
  double hours = 0;
  for (const StageCost& stage : cost.stages) {
    const MeasuredStage& m = stage.measured;
    const double stage_hours = stage.step_s * static_cast<double>(m.steps) / 3600;
    hours += stage_hours;
    out += fmt::format(
        "stage '{}': {} steps of {} samples on {} ranks, {} at once\n"
        "  trained      {:.3f} M parameters\n"
        "  memory       {} a rank: {} for weights, gradients, optimiser and average, {} for a "
        "micro-batch\n"
        "  work         {:.4g} GFLOP a step, {:.4g} GFLOP/s a rank\n"
        "  predicted    {:.4g} it/s, {:.4g} samples/s, {}\n",
        m.name, m.steps, m.batch, cost.rank_count, m.micro_batch,
        static_cast<double>(stage.trained_parameter_count) / 1e6,
        format_size_bytes(stage.state_bytes + stage.peak_bytes),
        format_size_bytes(stage.state_bytes), format_size_bytes(stage.peak_bytes),
        stage.step_flops / 1e9, stage.step_flops / 1e9 / cost.rank_count / stage.step_s,
        1 / stage.step_s, static_cast<double>(m.batch) / stage.step_s, hours_text(stage_hours));
  }
  out += fmt::format("all stages     {}", hours_text(hours));
  if (price_per_hour > 0)
    out += fmt::format(", {:.2f} at {} an hour and rank", hours * cost.rank_count * price_per_hour,
                       price_per_hour);
  return out + "\n";
}

}  // namespace yard::loop
