#include "loop/trainer.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "loop/agreement.h"
#include "loop/checkpointer.h"
#include "loop/evaluation.h"
#include "loop/latent_cache.h"
#include "loop/run_context_internal.h"
#include "loop/stage_step.h"
#include "loop/trainee.h"
#include "storage/directory_store.h"
#include "tensor/guard_torch.h"

namespace yard::loop {
namespace {

constexpr int64_t kScalingSamplesMax = 1024;
constexpr std::chrono::seconds kLogInterval{5};
// Streams of random_u64(seed, stream, 0) beside those of the initial weights.
constexpr uint64_t kStageStream = 1000;

bool due(int64_t every_steps, int64_t step) {
  return every_steps > 0 && step % every_steps == 0;
}

class Run {
 public:
  Run(const Recipe& recipe, RunContext& context, Checkpointer& checkpointer, const StopToken& stop)
      : recipe_(recipe),
        context_(context),
        group_(context.group),
        heartbeat_(context.heartbeat),
        checkpointer_(checkpointer),
        stop_(stop) {}

  Status run() {
    YARD_TRY(resume());
    while (state_.stage_index < recipe_.stages.size()) {
      if (Status status = run_stage(); !status) {
        // What was saved last must be on disk before the process ends.
        (void)checkpointer_.wait();
        return status;
      }
    }
    return finish();
  }

 private:
  const StageRecipe& stage() const { return recipe_.stages[state_.stage_index]; }

  Status resume() {
    YARD_ASSIGN(loaded_, checkpointer_.load(*context_.networks));
    if (!loaded_) return Ok{};
    state_ = loaded_->state;
    const bool done = state_.stage_index == recipe_.stages.size();
    heartbeat_.tell("resume", {{"stage", done ? recipe_.stages.back().name : stage().name},
                               {"global_step", state_.global_step}});
    if (context_.is_first_rank())
      log_info("resumed at step {} of {}", state_.global_step, recipe_.step_count());
    return Ok{};
  }

  // The parameters of the present stage, with the optimiser they had before.
  Status prepare_trainee(Train train) {
    if (trainee_ && trained_ == train) return Ok{};
    trainee_.reset();
    YARD_ASSIGN(trainee_, Trainee::create(context_.networks->begin_training(train),
                                          context_.groups->of_trainee(),
                                          {.optimizer = recipe_.optimizer,
                                           .ema = recipe_.ema,
                                           .parallel = recipe_.parallel,
                                           .seed = recipe_.seed}));
    trained_ = train;
    if (loaded_ && state_.optimizer_step > 0) YARD_TRY(checkpointer_.restore(*trainee_, *loaded_));
    loaded_.reset();
    return Ok{};
  }

  Result<std::unique_ptr<StepSource>> open_source() {
    const uint64_t seed = random_u64(recipe_.seed, kStageStream + state_.stage_index, 0);
    if (recipe_.data.synthetic) {
      const auto& unet = context_.networks->unet()->config();
      return synthetic_steps(*recipe_.data.synthetic, stage(), seed, context_.place(),
                             state_.position, unet.in_channels, unet.cross_attention_dim);
    }
    const text::ClipTokenizer* tokenizer =
        stage().train == Train::kDenoiser ? &*context_.tokenizer : nullptr;
    if (!stage().cache_latents)
      return context_.samples->steps(stage(), seed, context_.place(), state_.position, tokenizer,
                                     context_.token_count());
    auto cache = encode_samples(*context_.networks, *context_.samples, tokenizer,
                                {.resolution = stage().resolution,
                                 .size_bytes_max = recipe_.data.latent_cache_bytes,
                                 .token_count = context_.token_count(),
                                 .bf16 = context_.bf16()},
                                group_, stop_);
    if (!cache && cache.error().code == Code::kCancelled) YARD_TRY(wait_and_stop());
    if (!cache) return std::move(cache).error();
    return cached_steps(*std::move(cache), stage(), seed, context_.place(), state_.position);
  }

  Status run_stage() {
    heartbeat_.phase("startup");
    heartbeat_.tell("stage", {{"stage", stage().name},
                              {"stage_index", state_.stage_index},
                              {"stage_count", recipe_.stages.size()},
                              {"steps", stage().steps},
                              {"resolution", stage().resolution}});
    if (context_.is_first_rank())
      log_info("stage '{}': {} at {} px, {} steps of {} samples", stage().name,
               to_string(stage().train), stage().resolution, stage().steps, stage().batch);
    YARD_TRY(prepare_trainee(stage().train));
    auto opened = open_source();
    YARD_TRY(agree(group_, opened ? Status(Ok{}) : Status(opened.error()), "opening the data"));
    HeldOutLoss held_out(context_, stage());
    held_out_ = &held_out;
    StageStepper stepper(context_, stage(), *trainee_, **opened);
    heartbeat_.phase("train");
    while (state_.stage_step < stage().steps) YARD_TRY(run_step(stepper, **opened));
    return end_stage();
  }

  Status run_step(StageStepper& stepper, StepSource& source) {
    YARD_ASSIGN(const StepReport report,
                stepper.step(state_.stage_step, state_.global_step, stop_));
    ++state_.stage_step;
    ++state_.global_step;
    state_.position = source.position();
    state_.optimizer_step = trainee_->step_count();
    tell_step(report);
    checkpointer_.poll();
    if (report.stop) return save_and_stop();
    if (state_.stage_step == stage().steps) return Ok{};  // end_stage() looks and saves
    if (due(recipe_.evaluation.every_steps, state_.stage_step)) YARD_TRY(evaluate());
    if (due(recipe_.sampling.every_steps, state_.stage_step)) YARD_TRY(sample());
    if (due(recipe_.checkpoint.every_steps, state_.global_step)) YARD_TRY(save());
    return Ok{};
  }

  // Everything here is done again when the run dies before the stage's last save is whole.
  Status end_stage() {
    YARD_TRY(evaluate());
    if (recipe_.sampling.at_stage_end) YARD_TRY(sample());
    if (stage().train == Train::kAutoencoder && recipe_.last_of_its_kind(state_.stage_index))
      YARD_TRY(finish_autoencoder());
    const bool last = state_.stage_index + 1 == recipe_.stages.size();
    if (!last && recipe_.stages[state_.stage_index + 1].train != stage().train) {
      YARD_TRY(trainee_->release());
      trainee_.reset();
      state_.optimizer_step = 0;
    }
    ++state_.stage_index;
    state_.stage_step = 0;
    state_.position = {};
    YARD_TRY(save());
    held_out_ = nullptr;
    YARD_ASSIGN(const bool stopped, any_rank(group_, stop_.stopped()));
    return stopped ? wait_and_stop() : Ok{};
  }

  // From here on the autoencoder is frozen: at its average, with latents of deviation 1. Not given
  // up for a stop: the stage's steps are saved only afterwards.
  Status finish_autoencoder() {
    YARD_TRY(trainee_->keep_average());
    YARD_TRY(trainee_->release());
    context_.networks->set_scaling_factor(1);
    YARD_ASSIGN(const LatentCache cache,
                encode_samples(*context_.networks, *context_.samples, nullptr,
                               {.resolution = stage().resolution,
                                .sample_count_max = kScalingSamplesMax,
                                .bf16 = context_.bf16()},
                               group_, StopToken()));
    state_.scaling_factor = inverse_deviation(cache);
    if (!std::isfinite(state_.scaling_factor))
      return Error{Code::kInvalidArgument,
                   "the autoencoder's latents do not vary: train it longer"};
    context_.networks->set_scaling_factor(state_.scaling_factor);
    if (context_.is_first_rank()) log_info("scaling_factor {:.5f}", state_.scaling_factor);
    return Ok{};
  }

  Status evaluate() {
    if (!held_out_->enabled()) return Ok{};
    heartbeat_.phase("evaluate");
    const Trainee::AveragedWeights averaged(*trainee_);
    YARD_TRY(averaged.status());
    YARD_ASSIGN(const double loss, held_out_->measure());
    if (context_.is_first_rank()) {
      heartbeat_.tell(
          "eval", {{"stage", stage().name}, {"global_step", state_.global_step}, {"loss", loss}});
      log_info("held-out loss {:.5f} after step {}", loss, state_.global_step);
    }
    heartbeat_.phase("train");
    return Ok{};
  }

  Status sample() {
    if (stage().train != Train::kDenoiser || recipe_.sampling.prompts.empty()) return Ok{};
    heartbeat_.phase("sample");
    const Trainee::AveragedWeights averaged(*trainee_);
    YARD_TRY(averaged.status());
    YARD_TRY(write_sample_grid(context_, stage(), state_.global_step));
    heartbeat_.phase("train");
    return Ok{};
  }

  Status save() {
    heartbeat_.phase("checkpoint");
    YARD_TRY(checkpointer_.save(*context_.networks, trainee_.get(), state_));
    heartbeat_.phase("train");
    return Ok{};
  }

  Status save_and_stop() {
    YARD_TRY(save());
    return wait_and_stop();
  }

  Status wait_and_stop() {
    heartbeat_.phase("checkpoint");
    YARD_TRY(agree(group_, checkpointer_.wait(), "saving the last checkpoint"));
    return Error{Code::kCancelled,
                 fmt::format("stopped on request, saved at step {}", state_.global_step)};
  }

  Status finish() {
    heartbeat_.phase("finish");
    YARD_TRY(prepare_trainee(recipe_.stages.back().train));
    const Status saved = checkpointer_.wait();
    YARD_TRY(agree(group_, saved, "saving the last checkpoint"));
    if (recipe_.data.synthetic) return tell_finish();
    YARD_TRY(trainee_->keep_average());
    YARD_TRY(trainee_->release());
    const Status exported = context_.is_first_rank() ? export_model() : Ok{};
    YARD_TRY(agree(group_, exported, "saving the model"));
    return tell_finish();
  }

  Status export_model() {
    const std::string dir = context_.options.output_dir + "/pipeline";
    const int64_t side = recipe_.stages.back().resolution;
    const Networks& networks = *context_.networks;
    if (networks.unet() == nullptr || recipe_.stages.back().train == Train::kAutoencoder)
      return networks.save_autoencoder(dir + "/vae", side);
    return networks.save_pipeline(dir, recipe_, side);
  }

  Status tell_finish() {
    heartbeat_.tell("finish",
                    {{"global_step", state_.global_step}, {"output", context_.options.output_dir}});
    if (context_.is_first_rank()) log_info("done: {}", context_.options.output_dir);
    return Ok{};
  }

  void tell_step(const StepReport& report) {
    Json beat = {{"stage", stage().name},
                 {"step", state_.stage_step},
                 {"global_step", state_.global_step},
                 {"global_steps", recipe_.step_count()},
                 {"lr", report.learning_rate},
                 {"grad_norm", report.gradient_norm},
                 {"samples", stage().batch},
                 {"step_s", report.step_s},
                 {"compute_s", report.compute_s},
                 {"data_wait_s", report.data_wait_s},
                 {"comm_wait_s", report.comm_wait_s}};
    if (context_.is_first_rank()) beat["loss"] = report.loss;
    heartbeat_.tell("step", std::move(beat));
    const auto now = std::chrono::steady_clock::now();
    if (!context_.is_first_rank() || now - logged_at_ < kLogInterval) return;
    logged_at_ = now;
    log_info("step {}/{}  loss {:.4f}  {:.0f} ms (data {:.0f}, ranks {:.0f})", state_.global_step,
             recipe_.step_count(), report.loss, 1e3 * report.step_s, 1e3 * report.data_wait_s,
             1e3 * report.comm_wait_s);
  }

  const Recipe& recipe_;
  RunContext& context_;
  collective::Group& group_;
  HeartbeatWriter& heartbeat_;
  Checkpointer& checkpointer_;
  const StopToken stop_;
  RunState state_;
  std::optional<LoadedCheckpoint> loaded_;  // until its optimiser state was taken up
  std::unique_ptr<Trainee> trainee_;
  Train trained_ = Train::kDenoiser;
  HeldOutLoss* held_out_ = nullptr;  // of the present stage
  std::chrono::steady_clock::time_point logged_at_{};
};

void set_up_torch(const Recipe& recipe, int thread_count) {
  at::set_num_threads(thread_count);
  if (at::get_num_interop_threads() != 1) at::set_num_interop_threads(1);  // may be set once
  at::globalContext().setFlushDenormal(true);
  at::globalContext().setDeterministicAlgorithms(recipe.deterministic, /*warn_only=*/true);
}

Status open_inputs(RunContext& context) {
  const Recipe& recipe = context.recipe;
  if (!recipe.model.tokenizer.empty()) {
    YARD_ASSIGN(context.tokenizer, text::ClipTokenizer::open(recipe.model.tokenizer));
  }
  YARD_ASSIGN(context.networks,
              Networks::create(recipe, context.tokenizer ? &*context.tokenizer : nullptr));
  if (!recipe.data.synthetic) {
    YARD_ASSIGN(context.samples, Samples::open(recipe.data, recipe.seed));
  }
  return Ok{};
}

Status train_guarded(Recipe& recipe, const TrainerOptions& options, collective::Group& group,
                     HeartbeatWriter& heartbeat, const StopToken& stop) {
  set_up_torch(recipe, options.thread_count);
  YARD_TRY(make_directories(options.output_dir));
  RunContext context{recipe, options, group, heartbeat, DiffusionSchedule(recipe.diffusion)};
  YARD_TRY(open_inputs(context));
  YARD_TRY(fit_stages(recipe, group.size(), context.networks->factors()));
  YARD_ASSIGN(context.groups, TrainingGroups::create(recipe.parallel, group));
  YARD_ASSIGN(const auto store, storage::DirectoryStore::open(options.output_dir));
  Checkpointer checkpointer(*store, options.output_dir, recipe, group, heartbeat);
  return Run(recipe, context, checkpointer, stop).run();
}

}  // namespace

Status train(Recipe recipe, const TrainerOptions& options, collective::Group& group,
             HeartbeatWriter& heartbeat, const StopToken& stop) {
  heartbeat.phase("startup");
  Status status = tensor::guard_torch("training", [&]() -> Status {
    return train_guarded(recipe, options, group, heartbeat, stop);
  });
  // Peers must not wait for a rank that gave up.
  if (!status && status.error().code != Code::kCancelled) group.abort(status.error().message);
  return status;
}

}  // namespace yard::loop
