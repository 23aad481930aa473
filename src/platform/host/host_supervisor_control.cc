// What the supervisor of a host is told, and how it listens while it does something else.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <thread>

#include "base/log.h"
#include "host/host_supervisor_internal.h"

namespace yard::host {
namespace {

using std::chrono::milliseconds;
using Steady = std::chrono::steady_clock;

constexpr std::string_view kKeep = "keep ";
constexpr std::string_view kAdopt = "adopt ";
// Whoever keeps this host says when it is not wanted any more; this is for when he is gone.
constexpr double kKeepGrace_s = 60;

}  // namespace

void HostSupervisor::read_control() {
  std::array<char, 4096> buffer;
  const ssize_t got = ::read(control_.get(), buffer.data(), buffer.size());
  if (got <= 0) return;
  std::string_view words(buffer.data(), size_t(got));
  while (!words.empty()) {
    const std::string_view word = words.substr(0, words.find('\n'));
    words.remove_prefix(std::min(words.size(), word.size() + 1));
    if (!word.empty()) hear(word);
  }
}

void HostSupervisor::hear(std::string_view word) {
  report_->event("control", {{"word", word}});
  if (word.starts_with(kKeep)) {
    double seconds = 0;
    const auto [end, error] =
        std::from_chars(word.data() + kKeep.size(), word.data() + word.size(), seconds);
    if (error == std::errc() && end == word.data() + word.size()) keep_s_ = seconds;
    return;
  }
  if (word.starts_with(kAdopt)) {
    next_dir_ = word.substr(kAdopt.size());
    return;
  }
  if (word == "go") go_asked_ = true;
  if (word == "meet") meet_asked_ = true;
  if (word == "stacks" && program_ != nullptr) show_stacks(program_->pid());
  if (word == "upload") upload_asked_ = true;
  if (word == "release") release_asked_ = true;
  // Nobody wants what one that is released still does.
  if (word == "kill" || word == "release") kill_asked_ = true;
  if (word == "stop" || kill_asked_) ask_stop(word);
}

void HostSupervisor::ask_stop(std::string_view by) {
  log_info("stop: {}", by);
  const bool is_first = !stop_asked_;
  stop_asked_ = true;
  if (is_working_ && (stop_ends_work_ || kill_asked_)) {
    work_stop_.request();
    store_stop_.request();  // requests that wait for a store that is away
  }
  if (program_ == nullptr) return;
  if (kill_asked_) {
    kill_at_ = Steady::now();
  } else if (is_first) {
    sandbox::signal_sandbox(program_->pid(), SIGTERM);
    kill_at_ = Steady::now() + std::chrono::duration_cast<Steady::duration>(
                                   std::chrono::duration<double>(plan_.stop_grace_s));
  }
}

void HostSupervisor::poll_control(int fd, milliseconds timeout) {
  std::array<pollfd, 3> items = {
      {{.fd = control_.get(), .events = POLLIN, .revents = 0},
       {.fd = token_seen_ ? -1 : options_.stop.fd(), .events = POLLIN, .revents = 0},
       {.fd = fd, .events = POLLIN, .revents = 0}}};
  const int ready = ::poll(items.data(), items.size(), int(timeout.count()));
  YARD_CHECK(ready >= 0 || errno == EINTR || errno == ENOMEM);
  if (items[0].revents != 0) read_control();
  if (!token_seen_ && options_.stop.stopped()) {
    token_seen_ = true;
    ask_stop("signal");
  }
}

void HostSupervisor::wait_once(int fd, milliseconds timeout) {
  if (kill_at_ && program_ != nullptr) {
    const auto left = std::chrono::ceil<milliseconds>(*kill_at_ - Steady::now());
    timeout = std::clamp(left, milliseconds(0), timeout);
  }
  poll_control(fd, timeout);
  if (Steady::now() - refreshed_at_ < options_.status_period) return;
  refreshed_at_ = Steady::now();
  if (!release_asked_ && folder_is_gone()) {
    release_asked_ = kill_asked_ = true;
    keep_s_.reset();
    ask_stop("the job's folder is gone");
  }
  report_->change([this](jobs::HostStatus& status) { note_progress(status); });
}

std::optional<std::string> HostSupervisor::await_next() {
  next_dir_.clear();
  release_asked_ = kill_asked_ = stop_asked_ = false;
  auto kept_since = Steady::now();
  std::optional<double> kept_s = keep_s_;
  while (next_dir_.empty() && !stop_asked_ && !folder_is_gone()) {
    if (kept_s != keep_s_) kept_since = Steady::now();  // told anew
    kept_s = keep_s_;
    const auto kept = std::chrono::duration<double>(Steady::now() - kept_since);
    if (kept.count() > kept_s.value_or(0) + kKeepGrace_s) break;
    poll_control(-1, options_.status_period);
  }
  if (next_dir_.empty()) return std::nullopt;
  report_->event("adopted", {{"dir", next_dir_}});
  // Who was told of this host finds nobody here any more.
  if (next_dir_ != folder_.dir) ::unlink(folder_.control().c_str());
  return next_dir_;
}

// With it went whoever could have said a word to us.
bool HostSupervisor::folder_is_gone() const {
  return ::access(folder_.control().c_str(), F_OK) != 0 && errno == ENOENT;
}

void HostSupervisor::note_progress(jobs::HostStatus& status) const {
  status.downloaded_bytes = progress_.done_bytes;
  status.total_bytes = progress_.total_bytes;
  status.cached_bytes = progress_.cached_bytes;
  status.checkpoint_bytes = 0;
  for (const auto& sync : input_.syncs) status.checkpoint_bytes += sync->uploaded_bytes();
}

Status HostSupervisor::run_beside(const std::function<Status(const StopToken& stop)>& work,
                                  bool stop_ends_it) {
  work_stop_ = StopSource();
  is_working_ = true;
  stop_ends_work_ = stop_ends_it;
  if (stop_asked_ && stop_ends_it) work_stop_.request();
  const StopSource ended;
  Status result = Ok{};
  std::thread thread([&] {
    result = work(work_stop_.token());
    ended.request();
  });
  while (!ended.token().stopped()) wait_once(ended.token().fd(), options_.status_period);
  thread.join();
  is_working_ = false;
  return result;
}

}  // namespace yard::host
