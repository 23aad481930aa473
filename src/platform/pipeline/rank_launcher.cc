#include "pipeline/rank_launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/crc32c.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/log.h"
#include "base/subprocess.h"
#include "host/file_tail.h"
#include "jobs/heartbeat.h"
#include "jobs/progress.h"

namespace yard::pipeline {
namespace {

namespace fs = std::filesystem;
using jobs::HeartbeatEvent;

constexpr std::chrono::milliseconds kLookPeriod{20};
constexpr std::chrono::seconds kTellPeriod{1};
// Ranks hear of a death at once and end by themselves; what does not is stuck.
constexpr std::chrono::seconds kEndGrace{20};
constexpr uint16_t kPortFirst = 20'000;
constexpr uint16_t kPortCount = 10'000;

struct Rank {
  int number = 0;
  Subprocess process;
  host::FileTail heartbeats;
  std::optional<ExitStatus> exit;
  int generation = 0;  // in which its process was started
};

std::string describe(const ExitStatus& exit) {
  return exit.signal != 0 ? fmt::format("was killed by signal {}", exit.signal)
                          : fmt::format("ended with exit code {}", exit.code);
}

// What a rank's exit code says (docs/formats/rank.md).
Code code_of_exit(const ExitStatus& exit) {
  if (exit.signal != 0) return Code::kUnavailable;
  for (const Code code :
       {Code::kNotFound, Code::kInvalidArgument, Code::kCorrupt, Code::kUnavailable,
        Code::kDeadlineExceeded, Code::kCancelled, Code::kExhausted})
    if (exit.code == exit_code_of(code)) return code;
  return Code::kInternal;
}

int core_count() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
  return std::max(1, CPU_COUNT(&cores));
}

class Launcher {
 public:
  Launcher(const LaunchOptions& options, HostPlace place)
      : options_(options),
        place_(std::move(place)),
        restarts_left_(place_.hosts.size() == 1 ? options.restarts : 0) {}

  Status run() {
    YARD_TRY(make_directories(heartbeat_dir()));
    YARD_TRY(make_directories(options_.ml_dir + "/output"));
    if (restarts_left_ > 0) YARD_TRY(tell_generation());
    for (int local = 0; local < options_.ranks_per_host; ++local) YARD_TRY(start(local));
    while (any_runs()) {
      wait_a_little();
      read_heartbeats();
      YARD_TRY(reap());
      end_what_is_stuck();
    }
    read_heartbeats();
    tell_progress();
    return outcome();
  }

 private:
  std::string heartbeat_dir() const { return options_.job_dir + "/heartbeats"; }
  std::string heartbeat_path(int rank) const {
    return fmt::format("{}/rank-{}.jsonl", heartbeat_dir(), rank);
  }
  std::string event_path() const {
    return fmt::format("{}/launches/{}.jsonl", options_.job_dir, place_.hosts[own_index()]);
  }
  std::string generation_path() const { return options_.job_dir + "/generation"; }
  size_t own_index() const { return static_cast<size_t>(place_.index); }
  int first_rank() const { return place_.index * options_.ranks_per_host; }
  int world_size() const { return static_cast<int>(place_.hosts.size()) * options_.ranks_per_host; }
  std::string job_name() const {
    const auto found = options_.env.find("TRAINING_JOB_NAME");
    return found == options_.env.end() ? "run" : found->second;
  }

  std::map<std::string, std::string> environment(int local) const {
    auto env = options_.env;
    const int rank = first_rank() + local;
    env["RANK"] = std::to_string(rank);
    env["LOCAL_RANK"] = std::to_string(local);
    env["WORLD_SIZE"] = std::to_string(world_size());
    env["LOCAL_WORLD_SIZE"] = std::to_string(options_.ranks_per_host);
    env["GROUP_RANK"] = std::to_string(place_.index);
    env["MASTER_ADDR"] = place_.hosts.front();
    env["MASTER_PORT"] = std::to_string(port_of_job(job_name()));
    env["TORCHELASTIC_RUN_ID"] = job_name();
    env["TORCHELASTIC_RESTART_COUNT"] = std::to_string(generation_);
    if (restarts_left_ > 0 || generation_ > 0) env["YARD_GENERATION_FILE"] = generation_path();
    env["YARD_JOB_DIR"] = options_.job_dir;
    env["YARD_OUTPUT_DIR"] = options_.job_dir + "/output";
    env["YARD_HEARTBEAT"] = heartbeat_path(rank);
    if (options_.stop_at_stage) env["YARD_STOP_AT_STAGE"] = std::to_string(*options_.stop_at_stage);
    const int share = std::max(1, core_count() / options_.ranks_per_host);
    env.try_emplace("OMP_NUM_THREADS", std::to_string(share));
    env.try_emplace("PYTHONUNBUFFERED", "1");
    return env;
  }

  Status start(int local) {
    const int rank = first_rank() + local;
    host::FileTail tail(heartbeat_path(rank));
    // What an earlier attempt told is known; a kill on purpose comes once.
    for (auto lines = tail.read_lines(); !lines.empty(); lines = tail.read_lines())
      has_history_ = true;
    YARD_ASSIGN(Subprocess process, spawn(local));
    ranks_.push_back({rank, std::move(process), std::move(tail), std::nullopt, generation_});
    return Ok{};
  }

  Result<Subprocess> spawn(int local) const {
    SubprocessOptions child;
    child.argv = options_.command;
    child.env = environment(local);
    child.kill_with_parent = true;
    auto process = Subprocess::spawn(child);
    if (process) return process;
    return std::move(process).error().while_(fmt::format("starting rank {}", first_rank() + local));
  }

  // Ranks that stay find in it which generation to come together in.
  Status tell_generation() const {
    return write_file_atomic(generation_path(), std::to_string(generation_) + "\n");
  }

  // A rank that left because of a death, after the next generation was told, costs nothing more.
  bool is_part_of_last_death(const Rank& rank) const {
    return rank.exit->signal == 0 && rank.generation < generation_;
  }

  bool may_restart(const Rank& rank) const {
    if (has_asked_ || options_.stop.stopped() || first_failed_ != nullptr) return false;
    return meaning_of_exit(rank.exit->code, rank.exit->signal) == ExitMeaning::kRetryable &&
           (restarts_left_ > 0 || is_part_of_last_death(rank));
  }

  // All of them died at once, as far as anybody can tell: one death, one generation.
  Status restart(const std::vector<Rank*>& ended) {
    if (!std::ranges::all_of(ended, [&](Rank* rank) { return is_part_of_last_death(*rank); })) {
      --restarts_left_;
      ++generation_;
      YARD_TRY(tell_generation());
    }
    for (Rank* rank : ended) {
      fmt::print("rank {} {}: it starts again, generation {}, the others stay\n", rank->number,
                 describe(*rank->exit), generation_);
      std::fflush(stdout);
      YARD_ASSIGN(rank->process, spawn(rank->number - first_rank()));
      rank->exit.reset();
      rank->generation = generation_;
      note({{"event", "rank_restarted"}, {"attempt", generation_}, {"rank", rank->number}});
    }
    return Ok{};
  }

  bool any_runs() const {
    return std::ranges::any_of(ranks_, [](const Rank& rank) { return !rank.exit; });
  }

  void wait_a_little() const {
    std::vector<pollfd> items;
    for (const Rank& rank : ranks_)
      if (!rank.exit) items.push_back({.fd = rank.process.pidfd(), .events = POLLIN, .revents = 0});
    ::poll(items.data(), items.size(), static_cast<int>(kLookPeriod.count()));
  }

  void read_heartbeats() {
    for (Rank& rank : ranks_)
      for (const std::string& line : rank.heartbeats.read_lines())
        if (const auto heartbeat = jobs::parse_heartbeat(line)) take(rank, *heartbeat);
    if (options_.clock->now() - told_at_ >= kTellPeriod) tell_progress();
  }

  void take(const Rank& rank, const jobs::Heartbeat& heartbeat) {
    progress_.add(rank.number, heartbeat);
    if (heartbeat.event == HeartbeatEvent::kStage && options_.stop_at_stage &&
        heartbeat.stage_index >= *options_.stop_at_stage)
      ask_to_end();
    const bool is_kill = options_.kill && !has_history_ && options_.kill->rank == rank.number &&
                         heartbeat.event == HeartbeatEvent::kStep &&
                         heartbeat.global_step >= options_.kill->after_step;
    if (is_kill && !has_killed_) kill(rank, heartbeat.global_step);
  }

  // Later stages belong to another job; yard-train knows and is done by then. Once only: a second
  // signal would end a rank at once.
  void ask_to_end() {
    if (has_asked_) return;
    has_asked_ = true;
    for (const Rank& rank : ranks_)
      if (!rank.exit) signal_rank(rank, SIGTERM);
  }

  void kill(const Rank& rank, int64_t global_step) {
    has_killed_ = true;
    fmt::print("killing rank {} on purpose, step {} is done\n", rank.number, global_step);
    std::fflush(stdout);
    note({{"event", "chaos_kill"}, {"rank", rank.number}, {"global_step", global_step}});
    signal_rank(rank, SIGKILL);
  }

  static void signal_rank(const Rank& rank, int signal) {
    if (const Status sent = rank.process.kill(signal); !sent)
      log_warning("{}", sent.error().message);
  }

  // Opened and closed for each line: files that are open for writing are not kept in the store yet.
  void note(Json event) const {
    event["t"] = to_unix_seconds(options_.clock->wall_now());
    const std::string line = event.dump() + "\n";
    Status made = make_directories(fs::path(event_path()).parent_path());
    const UniqueFd file(
        ::open(event_path().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!made || !file.valid() || ::write(file.get(), line.data(), line.size()) < 0)
      log_warning("{}: cannot be written", event_path());
  }

  void tell_progress() {
    const auto snapshot = progress_.snapshot();
    told_at_ = options_.clock->now();
    if (!place_.is_first() || !snapshot.any() || snapshot.global_step == told_step_) return;
    told_step_ = snapshot.global_step;
    fmt::print("progress: {}\n", jobs::format_progress(snapshot));
    std::fflush(stdout);
  }

  Status reap() {
    std::vector<Rank*> to_restart;
    for (Rank& rank : ranks_) {
      if (rank.exit) continue;
      const auto exit = rank.process.wait(std::chrono::milliseconds(0));
      if (!exit) continue;
      rank.exit = *exit;
      note({{"event", "rank_exited"},
            {"attempt", rank.generation},
            {"rank", rank.number},
            {"code", exit->code},
            {"signal", exit->signal}});
      if (exit->ok() || first_failed_ != nullptr || is_wanted_end(*exit)) continue;
      if (may_restart(rank)) {
        to_restart.push_back(&rank);
        continue;
      }
      first_failed_ = &rank;
      failed_at_ = options_.clock->now();
    }
    return to_restart.empty() || first_failed_ != nullptr ? Status(Ok{}) : restart(to_restart);
  }

  bool is_wanted_end(const ExitStatus& exit) const {
    return has_asked_ && meaning_of_exit(exit.code, exit.signal) == ExitMeaning::kStopped;
  }

  void end_what_is_stuck() {
    if (first_failed_ == nullptr || options_.clock->now() - failed_at_ < kEndGrace) return;
    for (const Rank& rank : ranks_)
      if (!rank.exit) signal_rank(rank, SIGKILL);
  }

  Status outcome() {
    if (first_failed_ != nullptr) return failure(*first_failed_);
    if (place_.is_first() && !has_asked_) YARD_TRY(hand_over_model());
    return Ok{};
  }

  Status failure(const Rank& rank) const {
    const ExitStatus& exit = *rank.exit;
    const std::string& host = place_.hosts[own_index()];
    const Error error{code_of_exit(exit),
                      fmt::format("rank {} on {} {}", rank.number, host, describe(exit))};
    if (error.code != Code::kCancelled) {
      const Status written =
          write_file_atomic(options_.ml_dir + "/output/failure", error.message + "\n");
      if (!written) log_warning("{}", written.error().message);
    }
    return error;
  }

  // What SageMaker takes for the job's model.
  Status hand_over_model() const {
    const std::string from = options_.job_dir + "/output/pipeline";
    const std::string to = options_.ml_dir + "/model";
    std::error_code error;
    if (!fs::is_directory(from, error)) return Ok{};
    YARD_TRY(make_directories(to));
    fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::overwrite_existing, error);
    if (error) return errno_error(to, error.value());
    return Ok{};
  }

  const LaunchOptions& options_;
  const HostPlace place_;
  int restarts_left_;
  int generation_ = 0;
  std::vector<Rank> ranks_;
  jobs::Progress progress_;
  Clock::Monotonic told_at_{};
  int64_t told_step_ = 0;
  bool has_history_ = false;
  bool has_asked_ = false;
  bool has_killed_ = false;
  const Rank* first_failed_ = nullptr;
  Clock::Monotonic failed_at_{};
};

}  // namespace

Result<HostPlace> host_place_from(const Json& resources, std::string_view what) {
  HostPlace place;
  YARD_ASSIGN(place.hosts, json_field<std::vector<std::string>>(resources, "hosts", what));
  YARD_ASSIGN(const auto own, json_field<std::string>(resources, "current_host", what));
  const auto found = std::ranges::find(place.hosts, own);
  if (found == place.hosts.end())
    return Error{Code::kInvalidArgument, fmt::format("{}: '{}' is none of its hosts", what, own)};
  place.index = static_cast<int>(found - place.hosts.begin());
  return place;
}

uint16_t port_of_job(std::string_view job_name) {
  const uint32_t hash = crc32c(std::as_bytes(std::span(job_name.data(), job_name.size())));
  return static_cast<uint16_t>(kPortFirst + hash % kPortCount);
}

Status launch_ranks(const LaunchOptions& options) {
  YARD_CHECK(!options.command.empty() && options.ranks_per_host > 0);
  const std::string path = options.ml_dir + "/input/config/resourceconfig.json";
  auto text = read_file(path);
  if (!text) return std::move(text).error().while_("`yard launch` runs inside a training job");
  YARD_ASSIGN(const Json resources, parse_json(*text, path));
  YARD_ASSIGN(HostPlace place, host_place_from(resources, path));
  return Launcher(options, std::move(place)).run();
}

}  // namespace yard::pipeline
