#include "pipeline/pipeline_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <cerrno>

#include "base/clock.h"
#include "base/file.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/units.h"
#include "pipeline/job_follower.h"
#include "pipeline/step_record.h"
#include "pipeline/step_store.h"

namespace yard::pipeline {
namespace {

constexpr size_t kSuffixLength = 5;

double now_t() {
  return to_unix_seconds(Clock::real().wall_now());
}

std::string seconds_text(double seconds) {
  return format_duration(std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000)));
}

// Held until our process ends, also by a crash.
Result<UniqueFd> lock_pipeline(const std::string& dir) {
  const std::string path = dir + "/lock";
  UniqueFd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock.valid()) return errno_error(path, errno);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno == EWOULDBLOCK)
    return Error{Code::kUnavailable, dir + ": another process runs this pipeline"};
  return errno_error(path, errno);
}

// The first key that differs, of two identities.
std::string differing_key(const Json& before, const Json& now) {
  for (const auto& [key, value] : now.items())
    if (!before.contains(key) || before[key] != value) return key;
  return "";
}

class PipelineRun {
 public:
  PipelineRun(const PipelineSpec& spec, const PipelineRunOptions& options,
              const aws::AwsClient& platform, storage::Opener& store, const PipelineScreen& screen)
      : spec_(spec), options_(options), platform_(platform), store_(store), screen_(screen) {}

  Status run() {
    YARD_TRY(make_directories(options_.dir));
    YARD_ASSIGN(const UniqueFd lock, lock_pipeline(options_.dir));
    YARD_TRY(read_files());
    YARD_TRY(open_state());
    for (size_t i = 0; i < spec_.steps.size(); ++i) {
      const PipelineStep& step = spec_.steps[i];
      StepState& state = *state_.find(step.name);
      const std::string title = fmt::format("[{}/{}] {}", i + 1, spec_.steps.size(), step.name);
      if (state.status == StepStatus::kCompleted) {
        screen_.tell(title + ": completed before");
        continue;
      }
      if (auto done = run_step(step, state, title); !done)
        return std::move(done).error().while_(fmt::format("{}: step {}", options_.file, step.name));
    }
    return Ok{};
  }

 private:
  // All of them at the start: what is not there is told before anything runs.
  Status read_files() {
    for (const PipelineStep& step : spec_.steps) {
      std::string& text = files_[step.name];
      if (step.file.empty()) continue;
      auto read = read_file(step.file, uint64_t{16} << 20);
      if (!read)
        return std::move(read).error().while_(
            fmt::format("{}: steps.{}: '{}'", options_.file, step.name, to_string(step.kind)));
      text = *std::move(read);
      if (step.kind == StepKind::kTrain)
        YARD_TRY(stage_to_stop_at(
            text, step.until,
            fmt::format("{}: steps.{}: 'until': {}", options_.file, step.name, step.file)));
    }
    return Ok{};
  }

  Status open_state() {
    auto loaded = load_pipeline_state(options_.dir);
    if (!loaded && loaded.error().code != Code::kNotFound) return std::move(loaded).error();
    PipelineState before = loaded ? *std::move(loaded) : PipelineState{};
    state_ = {spec_.name, options_.file, {}};
    for (const PipelineStep& step : spec_.steps) {
      const Json identity = identity_of(step, files_[step.name]);
      StepState* known = before.find(step.name);
      StepState state = known == nullptr ? StepState{} : *known;
      if (state.status == StepStatus::kCompleted || state.status == StepStatus::kRunning)
        YARD_TRY(check_same(step, state, identity));
      state.name = step.name;
      state.kind = to_string(step.kind);
      state.host_count = step.host_count;
      state.price_per_host_hour = step.price_per_host_hour;
      state.identity = identity;
      state_.steps.push_back(std::move(state));
    }
    return save();
  }

  Status check_same(const PipelineStep& step, const StepState& state, const Json& identity) const {
    const std::string key = differing_key(state.identity, identity);
    if (key.empty()) return Ok{};
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: steps.{} is {} by another '{}'; go back to that, or give the "
                             "pipeline another name",
                             options_.file, step.name, to_string(state.status), key)};
  }

  Status save() const { return save_pipeline_state(state_, options_.dir); }

  Status run_step(const PipelineStep& step, StepState& state, const std::string& title) {
    screen_.tell(fmt::format("{}: {}{}", title, to_string(step.kind),
                             step.kind == StepKind::kTrain
                                 ? fmt::format(", {} host{}, {} rank{} each", step.host_count,
                                               step.host_count == 1 ? "" : "s", step.ranks_per_host,
                                               step.ranks_per_host == 1 ? "" : "s")
                                 : ""));
    for (int left = step.retries;; --left) {
      YARD_ASSIGN(const JobSight sight, run_job(step, state));
      if (!may_try_again(sight) || left == 0 || options_.stop.stopped()) break;
      screen_.tell(fmt::format("{} failed ({}): once more, from its last checkpoint",
                               state.jobs.back(), sight.failure));
      state.status = StepStatus::kWaiting;
      YARD_TRY(save());
    }
    return end_step(step, state);
  }

  // All that the step had, those of earlier runs of the pipeline too.
  Result<std::vector<JobSight>> jobs_of(const PipelineStep& step, const StepState& state) {
    std::vector<JobSight> jobs;
    for (const std::string& name : state.jobs) {
      auto sight = PlatformJobFollower(platform_, step, name, screen_).look();
      if (!sight && sight.error().code == Code::kNotFound) continue;  // never made, or removed
      if (!sight) return std::move(sight).error();
      jobs.push_back(*std::move(sight));
    }
    return jobs;
  }

  // The job that runs already, or a new one, until it has ended.
  Result<JobSight> run_job(const PipelineStep& step, StepState& state) {
    if (state.status == StepStatus::kRunning) {
      auto sight = follow(step, state);
      // It may have been noted and never made.
      if (sight || sight.error().code != Code::kNotFound) return sight;
    }
    if (options_.stop.stopped()) return Error{Code::kCancelled, "stopped"};
    YARD_TRY(prepare(step));
    // Noted first: a job that exists is known.
    state.jobs.push_back(
        fmt::format("{}-{}-{}", spec_.name, step.name, random_name(kSuffixLength)));
    state.status = StepStatus::kRunning;
    state.failure.clear();
    if (state.started_t == 0) state.started_t = now_t();
    YARD_TRY(save());
    YARD_TRY(create(step, state.jobs.back()));
    return follow(step, state);
  }

  Status prepare(const PipelineStep& step) {
    const StepPlace place = place_of(spec_, step);
    if (step.kind == StepKind::kTrain) {
      YARD_TRY(put_object(store_, place.input() + "/recipe.yaml", files_[step.name]));
      const PipelineStep* before = spec_.resumed_by(step);
      if (before == nullptr) return Ok{};
      const auto folder = [&](const StepPlace& of) {
        return fmt::format("{}/{}", of.run(), kCheckpointFolder);
      };
      return carry_checkpoint(store_, folder(place_of(spec_, *before)), folder(place));
    }
    if (step.kind == StepKind::kPrep)
      return put_object(store_, place.input() + "/prep.yaml", files_[step.name]);
    return Ok{};
  }

  Status create(const PipelineStep& step, const std::string& job) {
    JobPlan plan{.name = job, .stop_at_stage = std::nullopt, .kill = std::nullopt};
    if (step.kind == StepKind::kTrain) {
      YARD_ASSIGN(plan.stop_at_stage, stage_to_stop_at(files_[step.name], step.until, step.file));
    }
    if (step.name == options_.kill_step) plan.kill = options_.kill;
    const char* operation = is_training(step) ? "CreateTrainingJob" : "CreateProcessingJob";
    YARD_TRY(platform_.call(aws::kSageMaker, operation, job_request(spec_, step, plan)));
    screen_.tell("job " + job);
    return Ok{};
  }

  Result<JobSight> follow(const PipelineStep& step, const StepState& state) {
    PlatformJobFollower follower(platform_, step, state.jobs.back(), screen_);
    YARD_ASSIGN(const JobSight sight, follower.follow(options_.look_period, options_.stop));
    if (is_training(step)) prune(step);
    return sight;
  }

  // What stays costs room, and nothing else.
  void prune(const PipelineStep& step) {
    const std::string folder = fmt::format("{}/{}", place_of(spec_, step).run(), kCheckpointFolder);
    const auto pruned = prune_checkpoints(store_, folder, step.checkpoints_kept);
    if (!pruned) log_warning("{}: old checkpoints stay: {}", folder, pruned.error().message);
  }

  Status end_step(const PipelineStep& step, StepState& state) {
    YARD_ASSIGN(const std::vector<JobSight> jobs, jobs_of(step, state));
    if (jobs.empty()) return Error{Code::kNotFound, "its jobs are gone from the platform"};
    const JobSight& last = jobs.back();
    state.held_s = state.billable_s = 0;
    for (const JobSight& job : jobs) {
      state.held_s += job.started_t > 0 ? job.ended_t - job.started_t : 0;
      state.billable_s += job.billable_s;
    }
    state.ended_t = now_t();
    state.failure = last.failure;
    state.status = last.end == JobEnd::kCompleted ? StepStatus::kCompleted
                   : last.end == JobEnd::kStopped ? StepStatus::kStopped
                                                  : StepStatus::kFailed;
    const std::string dir = step_record_dir(options_.dir, step.name);
    if (is_training(step)) YARD_TRY(fetch_run(store_, place_of(spec_, step).run() + "/", dir, {}));
    YARD_TRY(write_step_record(dir, step, state, jobs, files_[step.name]));
    YARD_TRY(save());
    if (last.end == JobEnd::kStopped)
      return Error{Code::kCancelled, "its job is stopped; the same command goes on"};
    if (last.end == JobEnd::kFailed)
      return Error{may_try_again(last) ? Code::kUnavailable : Code::kInternal,
                   fmt::format("job {} failed: {}", state.jobs.back(), last.failure)};
    screen_.tell(fmt::format("completed in {}: hosts were held for {}",
                             seconds_text(state.ended_t - state.started_t),
                             seconds_text(state.held_s)));
    return Ok{};
  }

  const PipelineSpec& spec_;
  const PipelineRunOptions& options_;
  const aws::AwsClient& platform_;
  storage::Opener& store_;
  const PipelineScreen& screen_;
  std::map<std::string, std::string> files_;  // their texts, by step
  PipelineState state_;
};

}  // namespace

Status run_pipeline(const PipelineSpec& spec, const PipelineRunOptions& options,
                    const aws::AwsClient& platform, storage::Opener& store,
                    const PipelineScreen& screen) {
  return PipelineRun(spec, options, platform, store, screen).run();
}

}  // namespace yard::pipeline
