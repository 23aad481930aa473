#include "engine/testing/fake_supervisor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <sstream>

#include "base/clock.h"
#include "base/file.h"
#include "host/job_folder.h"
#include "host/process.h"
#include "jobs/host_plan.h"

namespace yard::engine {
namespace {

using jobs::HostCause;
using jobs::HostOutcome;
using jobs::HostPhase;
using Program = std::function<int(const std::vector<std::string>&)>;

std::map<std::string, Program>& programs() {
  static std::map<std::string, Program> programs;
  return programs;
}

std::vector<std::string> own_arguments() {
  const auto text = read_file("/proc/self/cmdline");
  std::vector<std::string> arguments;
  std::istringstream stream(text ? *text : std::string());
  for (std::string argument; std::getline(stream, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

class PlayedProgram : public testing::Environment {
 public:
  void SetUp() override {
    auto arguments = own_arguments();
    if (arguments.size() < 2 || !programs().contains(arguments[1])) return;
    const Program program = programs()[arguments[1]];
    arguments.erase(arguments.begin(), arguments.begin() + 2);
    ::_exit(program(arguments));
  }
};

class FakeSupervisor {
 public:
  explicit FakeSupervisor(std::string dir) : folder_{std::move(dir)} {}

  int run() {
    const UniqueFd lock(::open(folder_.lock().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return 70;
    // A second one that comes late must not run again what has run.
    if (::access(folder_.status().c_str(), F_OK) == 0) return 70;
    if (!read_plan()) return 2;
    if (has("start_only")) return 3;
    ::mkfifo(folder_.control().c_str(), 0600);
    control_.reset(::open(folder_.control().c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    enter(HostPhase::kHealth);
    if (plan_.health.cpu_gflops_min > 1e9) return end(HostOutcome::kFailed, HostCause::kHostFault);
    enter(HostPhase::kDownload);
    enter(HostPhase::kStart);
    train();
    return finish();
  }

 private:
  bool read_plan() {
    const auto text = read_file(folder_.plan());
    if (!text) return false;
    const auto json = parse_json(*text, "plan.json");
    auto plan = jobs::host_plan_from_json(*json, "plan.json");
    if (!plan) return false;
    plan_ = *std::move(plan);
    std::istringstream words(plan_.environment["SCRIPT"]);
    for (std::string word; words >> word;) {
      const auto equals = word.find('=');
      script_[word.substr(0, equals)] = equals == std::string::npos ? "" : word.substr(equals + 1);
    }
    return true;
  }

  bool has(const std::string& word) const { return script_.contains(word); }
  // "2:algo-1" of this attempt and host?
  bool is_due(const std::string& word) const {
    const auto it = script_.find(word);
    return it != script_.end() && it->second == std::to_string(plan_.attempt) + ":" + plan_.host;
  }

  static double now_t() { return to_unix_seconds(Clock::real().wall_now()); }

  void enter(HostPhase phase) {
    status_.phase = phase;
    status_.phases.push_back({phase, now_t()});
    write();
  }
  void write() {
    const auto self = host::identify_self();
    status_.supervisor_pid = self.pid;
    status_.supervisor_start_ticks = self.start_ticks;
    status_.updated_t = now_t();
    const Status written =
        host::replace_file(folder_.status(), jobs::to_json(status_).dump(2) + "\n");
    if (!written) ::_exit(4);
  }
  int end(HostOutcome outcome, HostCause cause) {
    status_.outcome = outcome;
    status_.cause = cause;
    enter(HostPhase::kEnded);
    return 0;
  }

  // The next word, or "" after `timeout_ms`. It is never kept for another job.
  std::string hear(int timeout_ms) {
    std::string word = next_word();
    while (word.empty() || word.starts_with("keep ")) {
      pollfd item{.fd = control_.get(), .events = POLLIN, .revents = 0};
      if (heard_.empty() && ::poll(&item, 1, timeout_ms) <= 0) return "";
      std::array<char, 256> buffer;
      const ssize_t got = ::read(control_.get(), buffer.data(), buffer.size());
      if (got > 0) heard_ += std::string(buffer.data(), static_cast<size_t>(got));
      word = next_word();
    }
    return word;
  }
  std::string next_word() {
    const auto newline = heard_.find('\n');
    if (newline == std::string::npos) return "";
    const std::string word = heard_.substr(0, newline);
    heard_.erase(0, newline + 1);
    return word;
  }

  void note_run() const {
    const auto file = host::open_for_append(folder_.dir + "/runs.log");
    const Status noted =
        host::append_line(file->get(), "runs.log", "attempt " + std::to_string(plan_.attempt));
    if (!noted) ::_exit(5);
  }

  void train() {
    note_run();
    enter(HostPhase::kTraining);
    if (is_due("lose")) ::kill(::getpid(), SIGKILL);
    status_.outcome = HostOutcome::kCompleted;
    if (is_due("leave")) return stopped();
    if (has("wait") || has("ms")) {
      const std::string word = hear(has("wait") ? 60'000 : std::stoi(script_["ms"]));
      if (word == "stop" || word == "kill") return stopped();
    }
    if (has("exit")) {
      status_.outcome = HostOutcome::kFailed;
      status_.cause = HostCause::kUserError;
      status_.exit_code = std::stoi(script_["exit"]);
      status_.failure_reason = "AlgorithmError: it broke, exit code: " + script_["exit"];
    }
  }
  void stopped() {
    status_.outcome = HostOutcome::kStopped;
    status_.cause = HostCause::kStopped;
    status_.exit_code = 143;
  }

  int finish() {
    enter(HostPhase::kFinished);
    std::string word;
    while (word != "upload" && word != "release") word = hear(60'000);
    if (word == "upload") upload();
    enter(HostPhase::kEnded);
    return 0;
  }
  void upload() {
    enter(HostPhase::kUpload);
    if (has("fail_upload")) {
      status_.outcome = HostOutcome::kFailed;
      status_.cause = HostCause::kUnavailable;
      status_.failure_reason = "ClientError: the store refuses the results";
    } else if (plan_.host == "algo-1") {
      status_.model_uri = plan_.output.s3_uri + "/" + plan_.job + "/output/model.tar.gz";
    }
  }

  const jobs::HostFolder folder_;
  jobs::HostPlan plan_;
  std::map<std::string, std::string> script_;
  jobs::HostStatus status_;
  UniqueFd control_;
  std::string heard_;
};

[[maybe_unused]] const auto* const kPlayed = testing::AddGlobalTestEnvironment(new PlayedProgram);
[[maybe_unused]] const bool kSupervisor =
    play_program("host", [](const std::vector<std::string>& arguments) {
      return arguments.at(0) == "--clean" ? 0 : FakeSupervisor(arguments.back()).run();
    });

}  // namespace

bool play_program(const std::string& name, Program program) {
  programs()[name] = std::move(program);
  return true;
}

std::string own_program() {
  std::array<char, 4096> path;
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
  return {path.data(), static_cast<size_t>(std::max<ssize_t>(0, size))};
}

}  // namespace yard::engine
