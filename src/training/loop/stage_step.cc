#include "loop/stage_step.h"

#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <chrono>
#include <cmath>
#include <span>

#include "loop/latent_cache.h"
#include "loop/learning_rate.h"
#include "loop/losses.h"
#include "tensor/autocast.h"
#include "tensor/guard_torch.h"

namespace yard::loop {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

double seconds_since(SteadyTime start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// What ranks tell each other once a step, summed.
struct StepSum {
  double loss = 0;
  double not_finite = 0;
  double stop = 0;
};

Status add_up(collective::Group& group, StepSum& sum) {
  std::array<double, 3> values = {sum.loss, sum.not_finite, sum.stop};
  YARD_TRY(group
               .all_reduce(std::as_writable_bytes(std::span(values)), collective::DType::kF64,
                           collective::ReduceOp::kSum)
               ->wait());
  sum = {values[0], values[1], values[2]};
  return Ok{};
}

}  // namespace

StageStepper::StageStepper(RunContext& context, const StageRecipe& stage, Trainee& trainee,
                           StepSource& source)
    : context_(context), stage_(stage), trainee_(trainee), source_(source) {
  if (context.tokenizer && context.token_count() > 0)
    empty_tokens_ = tokenize(*context.tokenizer, {""}, context.token_count());
}

Result<StepReport> StageStepper::step(int64_t stage_step, int64_t global_step,
                                      const StopToken& stop) {
  const SteadyTime start = std::chrono::steady_clock::now();
  YARD_ASSIGN(const StepData data, source_.next());
  StepReport report{.learning_rate = learning_rate_at(stage_, stage_step)};
  report.data_wait_s = seconds_since(start);
  YARD_ASSIGN(const double own_loss, accumulate(data, global_step));
  const SteadyTime reduce_start = std::chrono::steady_clock::now();
  YARD_TRY(trainee_.gradients().finish());
  StepSum sum{.loss = own_loss / context_.group.size(),
              .not_finite = std::isfinite(own_loss) ? 0.0 : 1.0,
              .stop = stop.stopped() ? 1.0 : 0.0};
  YARD_TRY(add_up(context_.group, sum));
  report.comm_wait_s = seconds_since(reduce_start);
  if (sum.not_finite > 0) return not_finite(data, own_loss, global_step);
  report.loss = sum.loss;
  report.stop = sum.stop > 0;
  YARD_ASSIGN(report.gradient_norm, trainee_.step(report.learning_rate));
  if (!std::isfinite(report.gradient_norm)) return not_finite(data, own_loss, global_step);
  report.step_s = seconds_since(start);
  report.compute_s = report.step_s - report.data_wait_s - report.comm_wait_s;
  return report;
}

Result<double> StageStepper::accumulate(const StepData& data, int64_t global_step) {
  const auto share = static_cast<int64_t>(data.ids.size());
  const int64_t count = stage_.micro_batch;
  parallel::DataParallel& gradients = trainee_.gradients();
  gradients.begin_step();
  double loss_sum = 0;
  for (int64_t begin = 0; begin < share; begin += count) {
    const at::Tensor loss = micro_loss(data, begin, count, global_step);
    // Each micro-batch has as many samples: the mean of means is the mean.
    YARD_TRY(gradients.backward(
        loss * (static_cast<double>(count) / static_cast<double>(share)),
        begin + count < share ? parallel::MicroBatch::kMoreToCome : parallel::MicroBatch::kLast));
    loss_sum += loss.item<double>() * static_cast<double>(count);
  }
  return loss_sum / static_cast<double>(share);
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
  return denoiser_loss(*networks.unet(), context_.schedule, context_.recipe.diffusion.prediction,
                       latents, context_of(data, begin, count, global_step), ids, draws,
                       context_.bf16());
}

at::Tensor StageStepper::context_of(const StepData& data, int64_t begin, int64_t count,
                                    int64_t global_step) {
  if (data.context.defined()) return data.context.narrow(0, begin, count);
  at::Tensor tokens = data.tokens.narrow(0, begin, count).clone();
  for (int64_t i = 0; i < count; ++i) {
    const double draw = tensor::draw_uniform({.seed = context_.recipe.seed,
                                              .purpose = tensor::Purpose::kCaptionDropout,
                                              .step = static_cast<uint64_t>(global_step),
                                              .sample = data.ids[static_cast<size_t>(begin + i)]});
    if (draw < context_.recipe.diffusion.caption_dropout) tokens[i].copy_(empty_tokens_[0]);
  }
  tensor::Autocast autocast(tokens.device().type(), context_.bf16());
  return context_.networks->text_encoder()->forward(tokens).last_hidden_state;
}

Error StageStepper::not_finite(const StepData& data, double own_loss, int64_t global_step) const {
  const std::string where = fmt::format("stage '{}', step {}", stage_.name, global_step + 1);
  if (std::isfinite(own_loss))
    return {Code::kInvalidArgument,
            fmt::format("{}: the loss or the gradient is not finite on another rank or in the sum; "
                        "a lower learning rate may help",
                        where)};
  return {Code::kInvalidArgument,
          fmt::format("{}: the loss is {} for the samples {}; a lower learning rate may help",
                      where, own_loss, fmt::join(data.keys, ", "))};
}

}  // namespace yard::loop
