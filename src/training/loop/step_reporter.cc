#include "loop/step_reporter.h"

#include <fmt/format.h>

#include "base/log.h"
#include "telemetry/metric_names.h"

namespace yard::loop {
namespace {

constexpr std::chrono::seconds kLogInterval{5};

}  // namespace

StepReporter::StepReporter(RunContext& context)
    : context_(context), pace_(context.group.rank()), data_wait_(context.recipe.data.threads) {}

void StepReporter::tell(const StepReport& report, const StageRecipe& stage, const RunState& state) {
  pace_.add(report, stage.batch);
  tell_heartbeat(report, stage, state);
  watch(report);
  if (context_.is_first_rank()) tell_pace(report, stage, state);
}

void StepReporter::tell_heartbeat(const StepReport& report, const StageRecipe& stage,
                                  const RunState& state) {
  Json beat = {{"stage", stage.name},
               {"step", state.stage_step},
               {"global_step", state.global_step},
               {"global_steps", context_.recipe.step_count()},
               {"lr", report.learning_rate},
               {"grad_norm", report.gradient_norm},
               {"samples", stage.batch},
               {"step_s", report.step_s},
               {"compute_s", report.compute_s},
               {"data_wait_s", report.data_wait_s},
               {"comm_wait_s", report.comm_wait_s}};
  if (context_.is_first_rank()) beat["loss"] = report.loss;
  context_.heartbeat.tell("step", std::move(beat));
}

void StepReporter::tell_pace(const StepReport& report, const StageRecipe& stage,
                             const RunState& state) {
  const Pace::Report pace = pace_.report(context_.recipe.step_count() - state.global_step);
  context_.metrics.tell("train", state.global_step,
                        {{"stage", stage.name},
                         {"loss", report.loss},
                         {"lr", report.learning_rate},
                         {"grad_norm", report.gradient_norm},
                         {"samples", stage.batch},
                         {"step_s", report.step_s},
                         {"data_wait_s", report.data_wait_s},
                         {"comm_wait_s", report.comm_wait_s},
                         {"steps_per_s", pace.steps_per_s},
                         {"samples_per_s", pace.samples_per_s},
                         {"utilisation", pace.utilisation},
                         {"skipped_steps", state.skipped_steps}});
  const auto now = std::chrono::steady_clock::now();
  if (now - logged_at_ < kLogInterval) return;
  logged_at_ = now;
  log_info("step {}/{}  loss {:.4f}  {:.0f} ms (data {:.0f}, ranks {:.0f})  {}", state.global_step,
           context_.recipe.step_count(), report.loss, 1e3 * report.step_s, 1e3 * report.data_wait_s,
           1e3 * report.comm_wait_s, pace.to_string());
}

void StepReporter::watch(const StepReport& report) {
  const GuardRecipe& guard = context_.recipe.guard;
  const auto slow = rank_times_.add(report.rank_compute_s, guard.slow_rank_factor);
  if (slow && context_.is_first_rank())
    alarm("slow_rank", fmt::format("rank {} computes {:.2f} times as long as the median rank, over "
                                   "the last {} steps: the others wait for it",
                                   slow->rank, slow->factor, RankTimes::kWindow));
  const auto wait =
      data_wait_.add(report.step_s, report.data_wait_s, guard.data_wait_share, loader_totals());
  if (wait)
    alarm("data_wait",
          fmt::format("rank {} waited for data in {:.0f} % of the last {} steps' "
                      "time: {}",
                      context_.group.rank(), 100 * wait->share, DataWaitWatch::kWindow, wait->why));
}

LoaderTotals StepReporter::loader_totals() const {
  if (!context_.samples) return {};
  CounterRegistry& counters = context_.samples->counters();
  return {.samples = counters.counter(metric::kLoaderSamples).value(),
          .decode_seconds = counters.counter(metric::kLoaderDecodeSeconds).value(),
          .read_bytes = counters.counter(metric::kLoaderReadBytes).value()};
}

void StepReporter::alarm(std::string_view kind, const std::string& message) {
  log_warning("ALARM: {}", message);
  context_.heartbeat.tell(
      "alarm", {{"code", to_string(Code::kUnavailable)}, {"message", message}, {"kind", kind}});
}

}  // namespace yard::loop
