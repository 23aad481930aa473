#include "engine/job_control.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "engine/home_config.h"
#include "engine/local_engine.h"
#include "host/job_status.h"

namespace yard::engine {

using jobs::JobEvent;
using jobs::JobState;

namespace {

// A supervisor listens before it is ready; only a job that is just being launched has none.
constexpr int kStopTries = 200;
constexpr std::chrono::milliseconds kStopPause{50};

jobdb::Owner ourselves() {
  const auto self = host::identify_self();
  return {.pid = self.pid, .start_ticks = self.start_ticks};
}

// For those who read the folder only.
void settle_status(const host::JobFolder& folder, const std::string& reason, double now_t) {
  auto status = host::read_status(folder.status());
  if (!status) return;
  status->state = JobState::kFailed;
  status->reason = reason;
  status->updated_t = status->ended_t = now_t;
  for (auto& rank : status->ranks) rank.alive = false;
  const Status written = host::replace_file(folder.status(), host::to_json(*status).dump(2) + "\n");
  if (!written) log_warning("{}", written.error().message);
}

}  // namespace

std::string database_path(const std::string& home) {
  return home + "/yard.db";
}

Result<JobControl> JobControl::open(const JobControlOptions& options) {
  YARD_TRY(make_directories(options.home + "/jobs"));
  JobControl control(options.home, *options.clock);
  YARD_ASSIGN(jobdb::JobDb db, jobdb::JobDb::open(database_path(options.home), *options.clock));
  control.db_ = std::make_unique<jobdb::JobDb>(std::move(db));
  YARD_ASSIGN(HomeConfig config,
              load_home_config(options.home + "/yard.yaml", cores_of_this_machine()));
  control.engine_ = std::make_unique<LocalEngine>(
      LocalEngineOptions{options.yard_program, options.env, std::move(config.hosts)}, *control.db_);
  return control;
}

host::JobFolder JobControl::folder(std::string_view name) const {
  return {fmt::format("{}/jobs/{}", home_, name)};
}

Status JobControl::submit(const jobs::JobSpec& spec, const std::optional<std::string>& recipe) {
  YARD_TRY(jobs::check_spec(spec));
  const auto job_folder = folder(spec.name);
  YARD_TRY(db_->create_job(spec.name, job_folder.dir, ourselves()));
  Status made = host::create_job_folder(job_folder, spec);
  if (made && recipe) made = write_file_atomic(job_folder.recipe(), *recipe);
  if (!made) {
    const Status removed = db_->remove_job(spec.name);
    if (!removed) log_warning("{}", removed.error().message);
    return made;
  }
  return launch(spec.name, job_folder.dir);
}

Status JobControl::resume(const std::string& name) {
  YARD_ASSIGN(const jobdb::JobRow job, find(name));
  YARD_TRY(host::read_spec({job.dir}));
  // Two processes must not write one checkpoint: what an earlier run left is ended first.
  if (jobs::is_final(job.state)) YARD_TRY(engine_->release(job.dir));
  YARD_TRY(db_->apply({name, JobEvent::kResumeAsked, 0, ""}));
  YARD_TRY(db_->set_owner(name, ourselves()));
  return launch(name, job.dir);
}

Status JobControl::launch(const std::string& name, const std::string& dir) {
  Status started = start_on_a_host(name, dir);
  if (started) return started;
  const auto failed = db_->apply({name, JobEvent::kSupervisorLost, 0, started.error().message});
  if (!failed) log_warning("{}", failed.error().message);
  return std::move(started).error().while_(fmt::format("starting job '{}'", name));
}

Status JobControl::start_on_a_host(const std::string& name, const std::string& dir) {
  YARD_ASSIGN(const auto hosts, engine_->acquire({.job = name, .host_count = 1}));
  YARD_TRY(db_->set_host(name, hosts[0].name));
  YARD_TRY(db_->apply({name, JobEvent::kPlaced, 0, ""}));
  YARD_TRY(engine_->start(hosts[0], dir));
  return Ok{};
}

Status JobControl::stop(const std::string& name, std::string_view word) {
  Status sent = Ok{};
  for (int i = 0; i < kStopTries; ++i) {
    YARD_ASSIGN(const jobdb::JobRow job, find(name));
    if (jobs::is_final(job.state))
      return Error{Code::kInvalidArgument,
                   fmt::format("job '{}' has ended already: {}", name, to_string(job.state))};
    sent = host::send_control({job.dir}, word);
    if (sent || sent.error().code != Code::kUnavailable) return sent;
    clock_->sleep_for(kStopPause, {});
  }
  return sent;
}

Result<std::vector<jobdb::JobRow>> JobControl::list() {
  YARD_ASSIGN(const auto before, db_->jobs());
  for (const auto& job : before) YARD_TRY(settle_if_lost(job));
  return db_->jobs();
}

Result<jobdb::JobRow> JobControl::find(const std::string& name) {
  auto job = db_->job(name);
  if (!job && job.error().code == Code::kNotFound) {
    YARD_ASSIGN(const auto all, db_->jobs());
    std::vector<std::string_view> names;
    for (const auto& other : all) names.push_back(other.name);
    const auto near = nearest_name(name, names);
    return Error{Code::kNotFound, near.empty()
                                      ? fmt::format("no job '{}'; `yard jobs` lists them", name)
                                      : fmt::format("no job '{}', did you mean '{}'?", name, near)};
  }
  if (!job) return job;
  YARD_TRY(settle_if_lost(*job));
  return db_->job(name);
}

Status JobControl::settle_if_lost(const jobdb::JobRow& job) {
  if (jobs::is_final(job.state)) return Ok{};
  if (host::is_alive({job.owner.pid, job.owner.start_ticks})) return Ok{};
  const std::string reason =
      fmt::format("lost: its supervisor, process {}, is gone; `yard run --resume {}` goes on",
                  job.owner.pid, job.name);
  const auto settled = db_->apply({job.name, JobEvent::kSupervisorLost, 0, reason});
  // It ended properly between our two looks.
  if (!settled && settled.error().code == Code::kInvalidArgument) return Ok{};
  if (!settled) return settled.error();
  YARD_TRY(engine_->release(job.dir));
  settle_status({job.dir}, reason, to_unix_seconds(clock_->wall_now()));
  return db_->mark_action_done(job.name);
}

}  // namespace yard::engine
