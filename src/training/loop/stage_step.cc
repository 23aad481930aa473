#include "loop/stage_step.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>

#include "base/log.h"
#include "loop/agreement.h"
#include "loop/latent_cache.h"
#include "loop/learning_rate.h"
#include "loop/losses.h"
#include "loop/micro_batch.h"
#include "loop/peak_memory.h"
#include "tensor/autocast.h"
#include "tensor/guard_torch.h"

namespace yard::loop {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

double seconds_since(SteadyTime start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

StageStepper::StageStepper(RunContext& context, StageRecipe& stage, Trainee& trainee)
    : context_(context), stage_(stage), trainee_(trainee) {
  if (context.tokenizer) empty_tokens_ = context.tokenizer->ids({""});
}

Result<StepReport> StageStepper::step(StepSource& source, int64_t stage_step, int64_t global_step,
                                      const StopToken& stop) {
  const SteadyTime start = std::chrono::steady_clock::now();
  std::optional<StepData> given;
  {
    RECORD_USER_SCOPE("data");
    YARD_ASSIGN(given, source.next());
  }
  const StepData& data = *given;
  StepReport report{.learning_rate = learning_rate_at(stage_, stage_step)};
  report.data_wait_s = seconds_since(start);
  YARD_ASSIGN(Computed computed, compute(data, global_step, stop));
  const double own_loss = computed.mine.loss;
  report.forward_s = computed.mine.forward_s;
  report.backward_s = computed.mine.backward_s;
  report.comm_wait_s = computed.comm_wait_s;
  report.loss = computed.sum.loss;
  report.stop = computed.sum.stop > 0;
  report.rank_compute_s = std::move(computed.sum.compute_s);
  if (computed.sum.not_finite == 0) {
    RECORD_USER_SCOPE("optimizer");
    const SteadyTime optimizer_start = std::chrono::steady_clock::now();
    YARD_ASSIGN(report.gradient_norm, trainee_.step(report.learning_rate));
    report.optimizer_s = seconds_since(optimizer_start);
  }
  if (computed.sum.not_finite > 0 || !std::isfinite(report.gradient_norm))
    report.not_finite = describe(data, own_loss, global_step);
  report.step_s = seconds_since(start);
  report.compute_s = report.step_s - report.data_wait_s - report.comm_wait_s;
  return report;
}

Status StageStepper::rehearse(int64_t micro_batch) {
  StageRecipe stage = stage_;
  stage.micro_batch = micro_batch;
  StageStepper rehearsal(context_, stage, trainee_);
  YARD_ASSIGN(const Accumulated done, rehearsal.accumulate(made_up_data(micro_batch), 0));
  YARD_TRY(trainee_.gradients().finish());
  if (done.out_of_memory) return *done.out_of_memory;
  return Ok{};
}

Result<StageStepper::Computed> StageStepper::compute(const StepData& data, int64_t global_step,
                                                     const StopToken& stop) {
  while (true) {
    YARD_ASSIGN(Computed computed, compute_once(data, global_step, stop));
    if (computed.sum.out_of_memory == 0) return computed;
    YARD_TRY(halve_micro_batch(computed.mine.out_of_memory));
  }
}

Result<StageStepper::Computed> StageStepper::compute_once(const StepData& data, int64_t global_step,
                                                          const StopToken& stop) {
  const SteadyTime start = std::chrono::steady_clock::now();
  Computed out;
  YARD_ASSIGN(out.mine, accumulate(data, global_step));
  const SteadyTime reduce_start = std::chrono::steady_clock::now();
  const auto rank_count = static_cast<size_t>(context_.group.size());
  out.sum = {.loss = out.mine.loss / static_cast<double>(rank_count),
             .not_finite = std::isfinite(out.mine.loss) ? 0.0 : 1.0,
             .stop = stop.stopped() ? 1.0 : 0.0,
             .out_of_memory = out.mine.out_of_memory ? 1.0 : 0.0,
             .compute_s = std::vector<double>(rank_count)};
  out.sum.compute_s[static_cast<size_t>(context_.group.rank())] = seconds_since(start);
  RECORD_USER_SCOPE("communication");
  YARD_TRY(trainee_.gradients().finish());
  YARD_TRY(add_up(out.sum));
  out.comm_wait_s = seconds_since(reduce_start);
  return out;
}

Status StageStepper::add_up(StepSum& sum) {
  std::vector<double> values = {sum.loss, sum.not_finite, sum.stop, sum.out_of_memory};
  values.insert(values.end(), sum.compute_s.begin(), sum.compute_s.end());
  YARD_TRY(context_.group
               .all_reduce(std::as_writable_bytes(std::span(values)), collective::DType::kF64,
                           collective::ReduceOp::kSum)
               ->wait());
  sum = {values[0], values[1], values[2], values[3], {values.begin() + 4, values.end()}};
  return Ok{};
}

Result<StageStepper::Accumulated> StageStepper::accumulate(const StepData& data,
                                                           int64_t global_step) {
  const auto share = static_cast<int64_t>(data.ids.size());
  trainee_.gradients().begin_step();
  Accumulated done;
  for (int64_t begin = 0, count = 0; begin < share; begin += count) {
    count = std::min(stage_.micro_batch, share - begin);
    YARD_TRY(add_micro_batch(data, begin, count, global_step, done));
  }
  return done;
}

// Goes through the same exchanges when memory has run out, for the sake of the others.
Status StageStepper::add_micro_batch(const StepData& data, int64_t begin, int64_t count,
                                     int64_t global_step, Accumulated& done) {
  const auto share = static_cast<int64_t>(data.ids.size());
  const double weight = static_cast<double>(count) / static_cast<double>(share);
  const SteadyTime start = std::chrono::steady_clock::now();
  const auto computed = tensor::guard_torch("forward pass", [&]() -> Result<at::Tensor> {
    if (done.out_of_memory) return *done.out_of_memory;
    RECORD_USER_SCOPE("forward");
    return micro_loss(data, begin, count, global_step);
  });
  done.forward_s += seconds_since(start);
  if (!computed) YARD_TRY(note_out_of_memory(computed.error(), done));
  const at::Tensor loss = computed ? *computed * weight : at::zeros({}, at::kFloat);
  if (!computed) loss.set_requires_grad(true);
  const SteadyTime backward_start = std::chrono::steady_clock::now();
  RECORD_USER_SCOPE("backward");
  // By samples, for the last micro-batch may have fewer of them.
  const Status added =
      trainee_.gradients().backward(loss, begin + count < share ? parallel::MicroBatch::kMoreToCome
                                                                : parallel::MicroBatch::kLast);
  if (!added) YARD_TRY(note_out_of_memory(added.error(), done));
  done.loss += loss.item<double>();
  done.backward_s += seconds_since(backward_start);
  return Ok{};
}

// Ok: the step is gone through to its end.
Status StageStepper::note_out_of_memory(const Error& error, Accumulated& done) {
  if (error.code != Code::kExhausted) return error;
  done.out_of_memory = error;
  if (context_.group.size() == 1 || !shards_parameters(context_.recipe.parallel)) return Ok{};
  YARD_TRY(halve_micro_batch(error));
  return Error{Code::kUnavailable,
               fmt::format("stage '{}': out of memory: the run must start again from its last "
                           "checkpoint, with micro-batches of {} ({})",
                           stage_.name, stage_.micro_batch, error.message)};
}

Status StageStepper::halve_micro_batch(const std::optional<Error>& mine) {
  const int64_t before = stage_.micro_batch;
  const std::string why = mine ? mine->message : "on another rank";
  if (before == 1)
    return Error{Code::kExhausted,
                 fmt::format("stage '{}': not even one sample at a time fits into memory: {}",
                             stage_.name, why)};
  stage_.micro_batch = (before + 1) / 2;
  const bool tells = mine || context_.is_first_rank();
  if (!tells) return Ok{};
  const std::string message = fmt::format(
      "stage '{}': out of memory with micro-batches of {}: goes on with {} at a time, the batch "
      "stays {} ({})",
      stage_.name, before, stage_.micro_batch, stage_.batch, why);
  log_warning("ALARM: {}", message);
  context_.heartbeat.tell("alarm", {{"code", to_string(Code::kExhausted)},
                                    {"message", message},
                                    {"kind", "out_of_memory"},
                                    {"micro_batch", stage_.micro_batch}});
  return note_micro_batch(context_.options.output_dir, stage_, context_.group.size());
}

StepData StageStepper::made_up_data(int64_t count) const {
  StepData data;
  for (int64_t i = 0; i < count; ++i) data.ids.push_back(static_cast<uint64_t>(i));
  const Networks& networks = *context_.networks;
  const int64_t side = stage_.resolution;
  const auto random = [&](std::vector<int64_t> shape) {
    return noise_like(at::empty(shape, at::kFloat), data.ids, 0, tensor::Purpose::kSyntheticLatent,
                      0);
  };
  if (context_.recipe.data.synthetic) {
    data.latents = random({count, networks.denoiser()->channels(), side, side});
    data.condition = synthetic_condition(*networks.denoiser(), data.ids, 0,
                                         context_.recipe.data.synthetic->tokens, side);
    return data;
  }
  const int64_t factor = networks.factors().autoencoder;
  if (stage_.cache_latents || !stage_.latents.empty())
    data.latents = random({count, networks.denoiser()->channels(), side / factor, side / factor});
  else
    data.pictures = random({count, 3, side, side}).clamp(-1, 1);
  if (empty_tokens_.defined()) data.tokens = empty_tokens_.expand({count, -1});
  if (context_.wants_sizes() && stage_.train == Train::kDenoiser)
    data.condition.sizes = synthetic_condition(*networks.denoiser(), data.ids, 0, 1, side).sizes;
  return data;
}

at::Tensor StageStepper::micro_loss(const StepData& data, int64_t begin, int64_t count,
                                    int64_t global_step) {
  const std::span<const uint64_t> ids =
      std::span(data.ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
  const Draws draws{.seed = context_.recipe.seed, .step = static_cast<uint64_t>(global_step)};
  const Networks& networks = *context_.networks;
  if (stage_.train == Train::kAutoencoder)
    return autoencoder_loss(*networks.autoencoder(), stage_, data.pictures.narrow(0, begin, count),
                            ids, &draws, context_.bf16());
  const at::Tensor latents =
      data.latents.defined()
          ? data.latents.narrow(0, begin, count)
          : encode_latents(*networks.autoencoder(), data.pictures.narrow(0, begin, count),
                           networks.scaling_factor(), context_.bf16());
  return denoiser_losses(*networks.denoiser(), context_.schedule, latents,
                         condition_of(data, begin, count, global_step), ids, draws, context_.bf16())
      .mean();
}

bool StageStepper::drops_caption(uint64_t id, int64_t global_step) const {
  return tensor::draw_uniform({.seed = context_.recipe.seed,
                               .purpose = tensor::Purpose::kCaptionDropout,
                               .step = static_cast<uint64_t>(global_step),
                               .sample = id}) < context_.recipe.diffusion.caption_dropout;
}

// Captions that were encoded before: those that are dropped become the empty one.
void StageStepper::drop_encoded(std::span<const uint64_t> ids, int64_t global_step,
                                DenoiserCondition& condition) {
  std::vector<DenoiserCondition> rows;
  bool any = false;
  for (size_t i = 0; i < ids.size(); ++i) {
    DenoiserCondition row = condition.narrow(static_cast<int64_t>(i), 1);
    if (drops_caption(ids[i], global_step)) {
      any = true;
      if (!empty_condition_.context.defined()) {
        c10::NoGradGuard no_grad;
        empty_condition_ = context_.networks->encode_captions(empty_tokens_, context_.bf16());
      }
      const at::Tensor sizes = row.sizes;
      row = empty_condition_;
      row.sizes = sizes;
    }
    rows.push_back(row);
  }
  if (!any) return;
  condition = rows.front();
  for (size_t i = 1; i < rows.size(); ++i) condition = joined(condition, rows[i]);
}

DenoiserCondition StageStepper::condition_of(const StepData& data, int64_t begin, int64_t count,
                                             int64_t global_step) {
  DenoiserCondition condition = data.condition.narrow(begin, count);
  const auto ids =
      std::span(data.ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
  if (condition.context.defined()) {
    if (empty_tokens_.defined()) drop_encoded(ids, global_step, condition);
    return condition;
  }
  at::Tensor tokens = data.tokens.narrow(0, begin, count).clone();
  for (int64_t i = 0; i < count; ++i)
    if (drops_caption(ids[static_cast<size_t>(i)], global_step)) tokens[i].copy_(empty_tokens_[0]);
  const at::Tensor sizes = condition.sizes;
  condition = context_.networks->encode_captions(tokens, context_.bf16());
  condition.sizes = sizes;
  return condition;
}

NotFinite StageStepper::describe(const StepData& data, double own_loss, int64_t global_step) const {
  const std::string where = fmt::format("stage '{}', step {}", stage_.name, global_step + 1);
  std::string why =
      "the loss or the gradient is not finite on another rank or in the sum; a lower learning rate "
      "may help";
  if (!std::isfinite(own_loss))
    why = fmt::format("the loss is {} for the samples {}; a lower learning rate may help", own_loss,
                      fmt::join(data.keys, ", "));
  return {own_loss, data.keys, {Code::kInvalidArgument, fmt::format("{}: {}", where, why)}};
}

Result<int64_t> probe_micro_batch(const RunContext& context, const StageRecipe& stage,
                                  StageStepper& stepper) {
  const int64_t share = stage.batch / context.group.size();
  int64_t fits = share;
  if (context.options.memory_bytes > 0 && share > 1) {
    MemoryPeaks peaks;
    for (const int64_t count : {1, 2}) {
      const PeakMemory meter;
      const Status done = stepper.rehearse(count);
      const bool too_much = !done && done.error().code == Code::kExhausted;
      if (!done && !(too_much && count == 2)) return done.error();
      (count == 1 ? peaks.one_bytes : peaks.two_bytes) = too_much ? UINT64_MAX : meter.peak_bytes();
    }
    fits = choose_micro_batch(peaks, share, context.options.memory_bytes);
  }
  return least_of_ranks(context.group, fits);
}

}  // namespace yard::loop
