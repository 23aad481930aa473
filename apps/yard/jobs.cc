// yard run, jobs, describe, logs, stop; and supervise, which the engine starts.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/units.h"
#include "commands.h"
#include "engine/home_config.h"
#include "engine/job_control.h"
#include "engine/local_engine.h"
#include "host/job_status.h"
#include "host/supervisor.h"
#include "job_follow.h"
#include "job_source.h"
#include "pipeline.h"

namespace yard::app {
namespace {

constexpr std::chrono::milliseconds kLookPeriod{100};

void say_started(const engine::JobControl& control, const jobs::JobSpec& spec) {
  fmt::print("job {}: {} rank{}, {}\n", spec.name, spec.ranks, spec.ranks == 1 ? "" : "s",
             control.folder(spec.name).dir);
  std::fflush(stdout);
}

Status run_new(const RunArguments& arguments, const Context& context) {
  YARD_ASSIGN(const JobSource source, read_job_source(arguments, context));
  YARD_ASSIGN(engine::JobControl control, open_control(context));
  JobFollower follower(control, context, source.spec.name, source.spec.ranks);
  YARD_TRY(control.submit(source.spec, source.recipe));
  say_started(control, source.spec);
  return arguments.detach ? Status(Ok{}) : follower.follow();
}

Status run_again(const RunArguments& arguments, const Context& context) {
  YARD_ASSIGN(engine::JobControl control, open_control(context));
  YARD_ASSIGN(const jobdb::JobRow job, control.find(arguments.resume));
  YARD_ASSIGN(const jobs::JobSpec spec, host::read_spec({job.dir}));
  JobFollower follower(control, context, job.name, spec.ranks);
  YARD_TRY(control.resume(job.name));
  say_started(control, spec);
  return arguments.detach ? Status(Ok{}) : follower.follow();
}

Status run(const RunArguments& arguments, const Context& context) {
  if (!arguments.resume.empty()) {
    if (!arguments.source.empty())
      return Error{Code::kInvalidArgument, "--resume NAME takes no file: the job has its own"};
    return run_again(arguments, context);
  }
  if (names_pipeline(arguments)) return run_pipeline_file(arguments, context);
  if (!arguments.kill_step.empty())
    return Error{Code::kInvalidArgument, "--kill-step: only a pipeline has steps of that kind"};
  if (!arguments.source.empty()) return run_new(arguments, context);
  return Error{Code::kInvalidArgument, "run: which FILE.py, RECIPE.yaml or PIPELINE.yaml?"};
}

void add_run(CLI::App& app, Context& context) {
  auto* sub = app.add_subcommand("run", "run a script, a recipe or a pipeline as jobs, and follow");
  auto arguments = std::make_shared<RunArguments>();
  sub->add_option("source", arguments->source,
                  "FILE.py or RECIPE.yaml: a job of this command's own; PIPELINE.yaml: jobs of "
                  "`yard serve`");
  sub->add_option("arguments", arguments->arguments,
                  "key=value for a recipe or pipeline; arguments of a script, behind --");
  sub->add_option("--ranks", arguments->ranks, "processes (default 1, or the recipe's run.ranks)");
  sub->add_option("--name", arguments->name, "of the job (default: made from the file's)");
  sub->add_option("--retries", arguments->retries, "restarts after a death (default 10)");
  sub->add_option("--stop-grace", arguments->stop_grace_s,
                  "seconds from SIGTERM to SIGKILL on a stop (default 120)");
  sub->add_option("--price", arguments->price_per_host_hour, "of a host and hour, for the ledger");
  sub->add_option("--output", arguments->output, "folder of the results (default: the job's)");
  sub->add_option("--env", arguments->env, "NAME=VALUE for the ranks")->allow_extra_args(false);
  sub->add_option("--python", arguments->python, "interpreter of FILE.py");
  sub->add_option("--resume", arguments->resume, "job that failed or was stopped");
  sub->add_flag("--detach", arguments->detach, "do not follow it");
  sub->add_option("--kill-rank", arguments->kill_rank, "")->group("");
  sub->add_option("--kill-step", arguments->kill_step, "")->group("");
  sub->add_option("--after-step,--kill-rank-after-step", arguments->after_step, "")->group("");
  sub->callback([arguments, &context] {
    context.action = [arguments, &context] { return run(*arguments, context); };
  });
}

Json to_json(const jobdb::JobRow& job, const Result<host::JobStatus>& status) {
  Json json = {
      {"name", job.name},           {"state", to_string(job.state)}, {"reason", job.reason},
      {"host", job.host},           {"attempts", job.attempt_count}, {"dir", job.dir},
      {"created_t", job.created_t}, {"updated_t", job.updated_t}};
  if (status) json["progress"] = host::to_json(*status)["progress"];
  return json;
}

std::string age(double since_t) {
  const double seconds = to_unix_seconds(Clock::real().wall_now()) - since_t;
  return format_duration(std::chrono::seconds(static_cast<int64_t>(std::max(0.0, seconds))));
}

Status list_jobs(bool as_json, const Context& context) {
  YARD_ASSIGN(engine::JobControl control, open_control(context));
  YARD_ASSIGN(const auto jobs, control.list());
  Json all = Json::array();
  if (!as_json && !jobs.empty())
    fmt::print("{:<40} {:<11} {:>8} {:>13} {:>10}\n", "NAME", "STATE", "ATTEMPTS", "STEP", "AGE");
  for (const auto& job : jobs) {
    const auto status = host::read_status(host::JobFolder{job.dir}.status());
    if (as_json) {
      all.push_back(to_json(job, status));
      continue;
    }
    const std::string step = status && status->global_step > 0
                                 ? fmt::format("{}/{}", status->global_step, status->global_steps)
                                 : "-";
    fmt::print("{:<40} {:<11} {:>8} {:>13} {:>10}\n", job.name, to_string(job.state),
               job.attempt_count, step, age(job.created_t));
  }
  if (as_json) fmt::print("{}\n", all.dump(2));
  return Ok{};
}

void add_list(CLI::App& app, Context& context) {
  auto* sub = app.add_subcommand("jobs", "list the jobs");
  auto as_json = std::make_shared<bool>(false);
  sub->add_flag("--json", *as_json);
  sub->callback([as_json, &context] {
    context.action = [as_json, &context] { return list_jobs(*as_json, context); };
  });
}

Json describe_json(const jobdb::JobRow& job, const jobs::JobSpec& spec,
                   const std::vector<jobdb::TransitionRow>& transitions) {
  const host::JobFolder folder{job.dir};
  const auto status = host::read_status(folder.status());
  Json json = to_json(job, status);
  json["spec"] = jobs::to_json(spec);
  if (status) json["status"] = host::to_json(*status);
  if (const auto ledger = read_ledger(folder)) json["ledger"] = jobs::to_json(*ledger);
  json["transitions"] = Json::array();
  for (const auto& row : transitions) {
    json["transitions"].push_back({{"t", row.t},
                                   {"from", to_string(row.from)},
                                   {"event", to_string(row.event)},
                                   {"to", to_string(row.to)},
                                   {"detail", row.detail}});
  }
  return json;
}

Clock::Wall from_unix_seconds(double seconds) {
  return Clock::Wall(
      std::chrono::duration_cast<Clock::Wall::duration>(std::chrono::duration<double>(seconds)));
}

void describe_to_person(const jobdb::JobRow& job, const jobs::JobSpec& spec,
                        const std::vector<jobdb::TransitionRow>& transitions) {
  const host::JobFolder folder{job.dir};
  fmt::print("job       {}\nstate     {}{}\n", job.name, to_string(job.state),
             job.reason.empty() ? "" : " (" + job.reason + ")");
  fmt::print("folder    {}\noutput    {}\nlog       {}\n", job.dir, spec.output_dir,
             folder.job_log());
  fmt::print("command   {}\nranks     {} on host {}\n", fmt::join(spec.command, " "), spec.ranks,
             job.host);
  if (const auto status = host::read_status(folder.status()); status && status->global_step > 0)
    fmt::print("progress  step {}/{} {}\n", status->global_step, status->global_steps,
               status->stage);
  fmt::print("\nhistory\n");
  for (const auto& row : transitions)
    fmt::print("  {}  {:<10} -> {:<10}  {}{}\n", to_rfc3339(from_unix_seconds(row.t)),
               to_string(row.from), to_string(row.to), to_string(row.event),
               row.detail.empty() ? "" : ": " + row.detail);
  if (const auto ledger = read_ledger(folder)) fmt::print("\n{}\n", format_ledger(*ledger));
}

Status describe(const std::string& name, bool as_json, const Context& context) {
  YARD_ASSIGN(engine::JobControl control, open_control(context));
  YARD_ASSIGN(const jobdb::JobRow job, control.find(name));
  YARD_ASSIGN(const jobs::JobSpec spec, host::read_spec({job.dir}));
  YARD_ASSIGN(const auto transitions, control.db().transitions(name));
  if (as_json) {
    fmt::print("{}\n", describe_json(job, spec, transitions).dump(2));
  } else {
    describe_to_person(job, spec, transitions);
  }
  return Ok{};
}

void add_describe(CLI::App& app, Context& context) {
  auto* sub = app.add_subcommand("describe", "what a job is, what happened to it, its ledger");
  auto name = std::make_shared<std::string>();
  auto as_json = std::make_shared<bool>(false);
  sub->add_option("name", *name)->required();
  sub->add_flag("--json", *as_json);
  sub->callback([name, as_json, &context] {
    context.action = [name, as_json, &context] { return describe(*name, *as_json, context); };
  });
}

// Copies what is there from the file's current position on.
Status copy_to_stdout(int fd, const std::string& path) {
  std::array<char, 64 * 1024> buffer;
  while (true) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(path, errno);
    if (got == 0) break;
    if (std::fwrite(buffer.data(), 1, static_cast<size_t>(got), stdout) !=
        static_cast<size_t>(got)) {
      return errno_error("standard output", errno);
    }
  }
  if (std::fflush(stdout) != 0) return errno_error("standard output", errno);
  return Ok{};
}

Status show_logs(const std::string& name, bool follow, std::optional<int> rank,
                 const Context& context) {
  YARD_ASSIGN(engine::JobControl control, open_control(context));
  YARD_ASSIGN(jobdb::JobRow job, control.find(name));
  YARD_ASSIGN(const jobs::JobSpec spec, host::read_spec({job.dir}));
  if (rank && (*rank < 0 || *rank >= spec.ranks))
    return Error{Code::kNotFound,
                 fmt::format("job '{}' has no rank {}: 0 to {}", name, *rank, spec.ranks - 1)};
  const host::JobFolder folder{job.dir};
  const std::string path = rank ? folder.rank_log(*rank) : folder.job_log();
  UniqueFd file;
  while (true) {
    // The state before the text: what came before the end is shown before the end.
    YARD_ASSIGN(job, control.find(name));
    if (!file.valid()) file.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.valid() && errno != ENOENT) return errno_error(path, errno);
    if (file.valid()) YARD_TRY(copy_to_stdout(file.get(), path));
    if (!follow || jobs::is_final(job.state)) return Ok{};
    if (context.stop.wait_for(kLookPeriod)) return Ok{};
  }
}

void add_logs(CLI::App& app, Context& context) {
  auto* sub = app.add_subcommand("logs", "what the ranks of a job printed");
  auto name = std::make_shared<std::string>();
  auto follow = std::make_shared<bool>(false);
  auto rank = std::make_shared<std::optional<int>>();
  sub->add_option("name", *name)->required();
  sub->add_flag("-f,--follow", *follow, "go on until the job ends");
  sub->add_option("--rank", *rank, "of one rank, byte for byte");
  sub->callback([name, follow, rank, &context] {
    context.action = [name, follow, rank, &context] {
      return show_logs(*name, *follow, *rank, context);
    };
  });
}

Status stop(const std::string& name, bool now, bool wait, const Context& context) {
  YARD_ASSIGN(engine::JobControl control, open_control(context));
  YARD_TRY(control.stop(name, now ? "kill" : "stop"));
  while (wait) {
    YARD_ASSIGN(const jobdb::JobRow job, control.find(name));
    if (jobs::is_final(job.state)) {
      fmt::print("job {} is {}\n", name, to_string(job.state));
      return Ok{};
    }
    if (context.stop.wait_for(kLookPeriod))
      return Error{Code::kCancelled,
                   fmt::format("job '{}' is still {}", name, to_string(job.state))};
  }
  return Ok{};
}

void add_stop(CLI::App& app, Context& context) {
  auto* sub = app.add_subcommand("stop", "let a job save its state and end");
  auto name = std::make_shared<std::string>();
  auto now = std::make_shared<bool>(false);
  auto no_wait = std::make_shared<bool>(false);
  sub->add_option("name", *name)->required();
  sub->add_flag("--now", *now, "kill it; what was done since the last checkpoint is lost");
  sub->add_flag("--no-wait", *no_wait, "return once it is asked");
  sub->callback([name, now, no_wait, &context] {
    context.action = [name, now, no_wait, &context] {
      return stop(*name, *now, !*no_wait, context);
    };
  });
}

Status supervise_in_daemon(const std::string& dir, const std::string& cores,
                           const Context& context) {
  YARD_ASSIGN(jobdb::JobDb db,
              jobdb::JobDb::open(engine::database_path(context.yard_home), Clock::real()));
  const std::string name = std::filesystem::path(dir).filename();
  host::SupervisorOptions options;
  options.job_dir = dir;
  options.env = context.env;
  options.stop = context.stop;
  if (!cores.empty()) {
    YARD_ASSIGN(options.cores, engine::parse_core_list(cores));
  }
  options.record = [&](jobs::JobEvent event, int retries_left, const std::string& detail) {
    const auto applied = db.apply({name, event, retries_left, detail});
    return applied ? Status(Ok{}) : Status(applied.error());
  };
  options.on_ready = [&] {
    const auto self = host::identify_self();
    const Status owned = db.set_owner(name, {.pid = self.pid, .start_ticks = self.start_ticks});
    if (!owned) log_warning("{}", owned.error().message);
    engine::report_ready();
  };
  auto result = host::supervise(options);
  if (!result) return std::move(result).error();
  return db.mark_action_done(name);
}

Status supervise(const std::string& dir, const std::string& cores, const Context& context) {
  YARD_TRY(engine::become_daemon(host::JobFolder{dir}.supervisor_log()));
  Status done = supervise_in_daemon(dir, cores, context);
  if (!done) engine::report_failure(done.error());
  return done;
}

void add_supervise(CLI::App& app, Context& context) {
  auto* sub = app.add_subcommand("supervise", "")->group("");
  auto dir = std::make_shared<std::string>();
  auto cores = std::make_shared<std::string>();
  sub->add_option("dir", *dir)->required();
  sub->add_option("--cores", *cores);
  sub->callback([dir, cores, &context] {
    context.action = [dir, cores, &context] { return supervise(*dir, *cores, context); };
  });
}

}  // namespace

void add_job_commands(CLI::App& app, Context& context) {
  add_run(app, context);
  add_list(app, context);
  add_describe(app, context);
  add_logs(app, context);
  add_stop(app, context);
  add_supervise(app, context);
}

}  // namespace yard::app
