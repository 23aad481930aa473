#include "loop/trainer.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "loop/agreement.h"
#include "loop/best.h"
#include "loop/checkpointer.h"
#include "loop/latent_cache.h"
#include "loop/micro_batch.h"
#include "loop/pipeline_folder.h"
#include "loop/run_context_internal.h"
#include "loop/stage_look.h"
#include "loop/stage_step.h"
#include "loop/step_profile.h"
#include "loop/step_reporter.h"
#include "loop/trainee.h"
#include "storage/directory_store.h"
#include "tensor/guard_torch.h"

namespace yard::loop {
namespace {

constexpr int64_t kScalingSamplesMax = 1024;
// Streams of random_u64(seed, stream, 0) beside those of the initial weights.
constexpr uint64_t kStageStream = 1000;

bool due(int64_t every_steps, int64_t step) {
  return every_steps > 0 && step % every_steps == 0;
}

class Run {
 public:
  Run(Recipe& recipe, RunContext& context, Checkpointer& checkpointer, const StopToken& stop)
      : recipe_(recipe),
        context_(context),
        group_(context.group),
        heartbeat_(context.heartbeat),
        checkpointer_(checkpointer),
        stop_(stop),
        reporter_(context),
        profile_(
            fmt::format("{}/profile/rank-{}", context.options.output_dir, context.group.rank()),
            context.options.profiled_steps) {}

  Status run() {
    YARD_TRY(resume());
    if (context_.is_first_rank())
      context_.metrics =
          MetricsWriter::open(context_.options.output_dir, Clock::real(), state_.global_step);
    while (state_.stage_index < end_stage_index()) {
      if (Status status = run_stage(); !status) {
        // What was saved last must be on disk before the process ends.
        (void)checkpointer_.wait();
        return status;
      }
    }
    return end_stage_index() < recipe_.stages.size() ? wait_for_last_save() : finish();
  }

 private:
  size_t end_stage_index() const {
    const int64_t stop_at = context_.options.stop_at_stage;
    return stop_at < 0 ? recipe_.stages.size()
                       : std::min(recipe_.stages.size(), static_cast<size_t>(stop_at));
  }
  StageRecipe& stage() { return recipe_.stages[state_.stage_index]; }

  Status resume() {
    // Of an autoencoder that is read; one that is trained gives its own at its end.
    state_.scaling_factor = context_.networks->scaling_factor();
    YARD_ASSIGN(loaded_, checkpointer_.find());
    if (!loaded_) return Ok{};
    state_ = loaded_->state;
    const bool done = state_.stage_index == recipe_.stages.size();
    YARD_TRY(load_untrained(done ? recipe_.stages.back() : stage()));
    heartbeat_.tell("resume", {{"stage", done ? recipe_.stages.back().name : stage().name},
                               {"global_step", state_.global_step}});
    if (context_.is_first_rank())
      log_info("resumed at step {} of {}", state_.global_step, recipe_.step_count());
    return Ok{};
  }

  // What the trainee of that stage will not take up itself.
  Status load_untrained(const StageRecipe& stage) {
    YARD_ASSIGN(const auto trained, context_.networks->begin_training(stage.train, stage.freeze));
    return checkpointer_.load(*loaded_, *context_.networks, trained);
  }

  // The parameters of a stage, with the optimiser they had before.
  Status prepare_trainee(const StageRecipe& stage) {
    if (trainee_) {
      trainee_->set_average(stage.ema);
      return Ok{};
    }
    YARD_ASSIGN(trainee_, make_trainee(context_, stage, loaded_ ? Start::kZeros : Start::kOwn));
    if (loaded_) YARD_TRY(checkpointer_.restore(*trainee_, *loaded_));
    loaded_.reset();
    return Ok{};
  }

  Result<std::unique_ptr<StepSource>> open_source() {
    const uint64_t seed = random_u64(recipe_.seed, kStageStream + state_.stage_index, 0);
    context_.latents.reset();
    if (recipe_.data.synthetic)
      return synthetic_steps(*recipe_.data.synthetic, stage(), seed, context_.place(),
                             state_.position, *context_.networks->denoiser());
    const CaptionTokenizer* tokenizer = context_.tokenizer_for(stage().train);
    const bool sizes = tokenizer != nullptr && context_.wants_sizes();
    if (!stage().latents.empty()) {
      YARD_ASSIGN(context_.latents,
                  LatentSet::open(stage(), recipe_.data, *context_.networks, *context_.tokenizer));
      return context_.latents->steps(seed, context_.place(), state_.position);
    }
    if (!stage().cache_latents)
      return context_.samples->steps(stage(), seed, context_.place(), state_.position,
                                     {.tokens = tokenizer, .sizes = sizes});
    auto cache = encode_samples(*context_.networks, *context_.samples, tokenizer,
                                {.resolution = stage().resolution,
                                 .size_bytes_max = recipe_.data.latent_cache_bytes,
                                 .bf16 = context_.bf16()},
                                group_, stop_);
    if (!cache && cache.error().code == Code::kCancelled) YARD_TRY(wait_and_stop());
    if (!cache) return std::move(cache).error();
    return cached_steps(*std::move(cache), stage(), seed, context_.place(), state_.position,
                        sizes ? context_.samples.get() : nullptr);
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
    YARD_TRY(prepare_trainee(stage()));
    StageStepper stepper(context_, stage(), *trainee_);
    if (stage().micro_batch == StageRecipe::kAutoMicroBatch) YARD_TRY(probe_memory(stepper));
    auto opened = open_source();
    YARD_TRY(agree(group_, opened ? Status(Ok{}) : Status(opened.error()), "opening the data"));
    StageLook look(context_, stage());
    look_ = &look;
    heartbeat_.phase("train");
    while (state_.stage_step < stage().steps) {
      YARD_ASSIGN(const Next next, run_step(stepper, **opened));
      if (next == Next::kStageAgain) return Ok{};
    }
    return end_stage();
  }

  // Sets the stage's micro-batch to what fits into every rank's memory.
  Status probe_memory(StageStepper& stepper) {
    YARD_ASSIGN(stage().micro_batch, probe_micro_batch(context_, stage(), stepper));
    if (!context_.is_first_rank()) return Ok{};
    log_info("stage '{}': {} of a rank's {} samples at once", stage().name, stage().micro_batch,
             stage().batch / group_.size());
    return note_micro_batch(context_.options.output_dir, stage(), group_.size());
  }

  enum class Next { kStep, kStageAgain };

  Result<Next> run_step(StageStepper& stepper, StepSource& source) {
    profile_.begin_step();
    YARD_ASSIGN(const StepReport report,
                stepper.step(source, state_.stage_step, state_.global_step, stop_));
    if (Status traced = profile_.end_step(report); !traced)
      log_warning("{}", traced.error().message);
    ++state_.stage_step;
    ++state_.global_step;
    state_.position = source.position();
    state_.optimizer_step = trainee_->progress().step_count;
    state_.average_begin = trainee_->progress().average_begin;
    YARD_ASSIGN(const Next next, watch_loss(report));
    if (next == Next::kStageAgain) return next;
    reporter_.tell(report, stage(), state_);
    checkpointer_.poll();
    if (report.stop) YARD_TRY(save_and_stop());
    if (state_.stage_step == stage().steps) return Next::kStep;  // end_stage() looks and saves
    if (due(recipe_.evaluation.every_steps, state_.stage_step)) YARD_TRY(evaluate());
    if (due(recipe_.sampling.every_steps, state_.stage_step)) YARD_TRY(sample());
    YARD_ASSIGN(const bool late, minutes_are_over());
    if (late || due(recipe_.checkpoint.every_steps, state_.global_step)) YARD_TRY(save());
    return Next::kStep;
  }

  // Since the last save, on any rank's clock: all save at the same step.
  Result<bool> minutes_are_over() {
    if (recipe_.checkpoint.every_minutes == 0) return false;
    const std::chrono::duration<double, std::ratio<60>> passed =
        std::chrono::steady_clock::now() - saved_at_;
    return any_rank(group_, passed.count() >= recipe_.checkpoint.every_minutes);
  }

  Result<Next> watch_loss(const StepReport& report) {
    if (report.not_finite) {
      YARD_TRY(skip(*report.not_finite));
      return Next::kStep;
    }
    if (!note_loss(recipe_.guard, report.loss, state_.loss_mean)) return Next::kStep;
    return rewind(report.loss);
  }

  // The weights are those before the step, the batch is used up.
  Status skip(const NotFinite& found) {
    const std::string path =
        fmt::format("{}/not_finite/step-{:08}.rank-{}.json", context_.options.output_dir,
                    state_.global_step, group_.rank());
    const Json facts = {{"stage", stage().name},
                        {"global_step", state_.global_step},
                        {"loss", found.own_loss},
                        {"samples", found.keys}};
    Status written = make_directories(std::filesystem::path(path).parent_path());
    if (written) written = write_file_atomic(path, facts.dump(2) + "\n");
    if (!written) log_warning("{}", written.error().message);
    if (++state_.skipped_steps > recipe_.guard.skip_steps)
      return Error{found.error.code,
                   fmt::format("{} ({} steps of the stage before it were skipped; samples are in "
                               "{})",
                               found.error.message, state_.skipped_steps - 1, path)};
    reporter_.alarm("skipped_step", fmt::format("{}: skipped, {} of {}", found.error.message,
                                                state_.skipped_steps, recipe_.guard.skip_steps));
    return Ok{};
  }

  // Back to the newest checkpoint, and on with the samples that come after those of the spike.
  Result<Next> rewind(double loss) {
    const std::string where =
        fmt::format("stage '{}', step {}: the loss is {:.5g}, {:.3g} times its mean", stage().name,
                    state_.global_step, loss, loss / state_.loss_mean.mean);
    if (state_.rewinds >= recipe_.guard.rewinds)
      return Error{Code::kInvalidArgument,
                   fmt::format("{}, after going back {} times; a lower learning rate may help",
                               where, state_.rewinds)};
    (void)checkpointer_.wait();
    YARD_ASSIGN(auto found, checkpointer_.find());
    if (!found || found->state.stage_index != state_.stage_index) {
      reporter_.alarm("loss_spike", where + "; the stage has no checkpoint to go back to");
      return Next::kStep;
    }
    reporter_.alarm("loss_spike", fmt::format("{}: back to step {}, past these samples", where,
                                              found->state.global_step));
    // Where no rank has the weights whole, none needs to before they are read again.
    if (!shards_parameters(recipe_.parallel)) YARD_TRY(trainee_->release());
    trainee_.reset();
    const RunState before = std::exchange(state_, found->state);
    state_.position = before.position;
    state_.rewinds = before.rewinds + 1;
    state_.skipped_steps = before.skipped_steps;
    loaded_ = std::move(found);
    YARD_TRY(load_untrained(stage()));
    heartbeat_.tell("resume", {{"stage", stage().name}, {"global_step", state_.global_step}});
    return Next::kStageAgain;
  }

  // Everything here is done again when the run dies before the stage's last save is whole.
  Status end_stage() {
    YARD_TRY(evaluate());
    if (recipe_.sampling.at_stage_end) YARD_TRY(sample());
    if (stage().train == Train::kAutoencoder && recipe_.last_of_its_kind(state_.stage_index))
      YARD_TRY(finish_autoencoder());
    const bool last = state_.stage_index + 1 == recipe_.stages.size();
    if (!last && !recipe_.goes_on_after(state_.stage_index)) YARD_TRY(end_trainee());
    ++state_.stage_index;
    state_.stage_step = 0;
    state_.position = {};
    state_.skipped_steps = state_.rewinds = 0;
    state_.loss_mean = {};
    state_.best.reset();
    YARD_TRY(save());
    look_ = nullptr;
    YARD_ASSIGN(const bool stopped, any_rank(group_, stop_.stopped()));
    return stopped ? wait_and_stop() : Ok{};
  }

  // The next stage trains other parameters. Those that it freezes stay at their average.
  Status end_trainee() {
    const StageRecipe& next = recipe_.stages[state_.stage_index + 1];
    std::vector<models::NamedTensor> average;
    if (next.train == stage().train) {
      YARD_ASSIGN(average, trainee_->average(true));
    }
    YARD_TRY(trainee_->release());
    trainee_.reset();
    state_.optimizer_step = state_.average_begin = 0;
    if (average.empty()) return Ok{};
    YARD_ASSIGN(const auto going_on, context_.networks->begin_training(next.train, next.freeze));
    set_frozen(average, going_on);
    return Ok{};
  }

  void set_frozen(const std::vector<models::NamedTensor>& average,
                  const std::vector<models::NamedTensor>& going_on) {
    std::set<std::string_view> trained;
    for (const models::NamedTensor& p : going_on) trained.insert(p.name);
    std::map<std::string_view, at::Tensor> frozen;
    for (const models::NamedTensor& value : average)
      if (!trained.contains(value.name)) frozen.emplace(value.name, value.tensor);
    for (const models::NamedTensor& p : context_.networks->parameters())
      if (const auto it = frozen.find(p.name); it != frozen.end())
        p.tensor.detach().copy_(it->second);
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
    if (!look_->enabled()) return Ok{};
    heartbeat_.phase("evaluate");
    const Trainee::AveragedWeights averaged(*trainee_);
    YARD_TRY(averaged.status());
    YARD_ASSIGN(const Look found, look_->look(state_.global_step));
    if (look_->is_best(found, state_.best) && recipe_.evaluation.keep_best)
      YARD_TRY(keep_best(context_, stage(), *trainee_, state_.global_step, found.numbers()));
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
    saved_at_ = std::chrono::steady_clock::now();
    heartbeat_.phase("train");
    return Ok{};
  }

  Status save_and_stop() {
    YARD_TRY(save());
    return wait_and_stop();
  }

  Status wait_for_last_save() {
    heartbeat_.phase("checkpoint");
    return agree(group_, checkpointer_.wait(), "saving the last checkpoint");
  }

  Status wait_and_stop() {
    YARD_TRY(wait_for_last_save());
    return Error{Code::kCancelled,
                 fmt::format("stopped on request, saved at step {}", state_.global_step)};
  }

  Status finish() {
    heartbeat_.phase("finish");
    YARD_TRY(prepare_trainee(recipe_.stages.back()));
    const Status saved = checkpointer_.wait();
    YARD_TRY(agree(group_, saved, "saving the last checkpoint"));
    if (recipe_.data.synthetic) return tell_finish();
    YARD_TRY(trainee_->keep_average());
    if (!shards_parameters(recipe_.parallel)) YARD_TRY(trainee_->release());
    YARD_TRY(agree(group_, save_whole(), "saving the model"));
    return tell_finish();
  }

  Status save_whole() {
    std::vector<models::NamedTensor> weights;
    if (shards_parameters(recipe_.parallel)) {
      YARD_ASSIGN(weights,
                  trainee_->weights_on_disk(context_.options.output_dir, context_.is_first_rank()));
    }
    return context_.is_first_rank() ? export_model(weights) : Ok{};
  }

  // `weights`: of what the networks do not have whole.
  Status export_model(const std::vector<models::NamedTensor>& weights) {
    const std::string dir = context_.options.output_dir + "/pipeline";
    const int64_t side = recipe_.stages.back().resolution;
    const Networks& networks = *context_.networks;
    if (networks.denoiser() == nullptr || recipe_.stages.back().train == Train::kAutoencoder)
      return save_autoencoder(networks, dir + "/vae", side, weights);
    return save_pipeline(networks, dir, recipe_, side, weights);
  }

  Status tell_finish() {
    heartbeat_.tell("finish",
                    {{"global_step", state_.global_step}, {"output", context_.options.output_dir}});
    if (context_.is_first_rank()) log_info("done: {}", context_.options.output_dir);
    return Ok{};
  }

  Recipe& recipe_;  // micro_batch of stages is set on the way
  RunContext& context_;
  collective::Group& group_;
  HeartbeatWriter& heartbeat_;
  Checkpointer& checkpointer_;
  const StopToken stop_;
  RunState state_;
  std::optional<LoadedCheckpoint> loaded_;  // until its optimiser state was taken up
  std::unique_ptr<Trainee> trainee_;
  StageLook* look_ = nullptr;  // of the present stage
  std::chrono::steady_clock::time_point saved_at_ = std::chrono::steady_clock::now();
  StepReporter reporter_;
  StepProfile profile_;
};

Status train_guarded(Recipe& recipe, const TrainerOptions& options, collective::Group& group,
                     HeartbeatWriter& heartbeat, const StopToken& stop) {
  set_up_torch(recipe, options.thread_count);
  YARD_TRY(make_directories(options.output_dir));
  RunContext context{recipe, options, group, heartbeat, DiffusionSchedule(recipe.diffusion)};
  YARD_TRY(open_inputs(context));
  YARD_TRY(fit_stages(recipe, group.size(), context.networks->factors()));
  YARD_TRY(take_noted_micro_batches(recipe, options.output_dir, group));
  YARD_ASSIGN(context.groups, TrainingGroups::create(recipe.parallel, group));
  YARD_ASSIGN(const auto store, storage::DirectoryStore::open(options.output_dir));
  YARD_ASSIGN(const auto checkpointer,
              Checkpointer::create(*store, options.output_dir, recipe, group, heartbeat));
  return Run(recipe, context, *checkpointer, stop).run();
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
