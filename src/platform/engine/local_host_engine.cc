#include "engine/local_host_engine.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>

#include "base/log.h"
#include "host/job_folder.h"

namespace yard::engine {
namespace {

using jobs::HostFolder;
using std::chrono::milliseconds;

constexpr uint64_t kStatusBytesMax = uint64_t{4} << 20;

// A daemon before us may have started a supervisor that has not taken its lock yet.
constexpr std::chrono::seconds kUnknownGrace{5};

bool has_ended(const Subprocess& process) {
  pollfd item{.fd = process.pidfd(), .events = POLLIN, .revents = 0};
  return ::poll(&item, 1, 0) > 0;
}

std::string describe(const ExitStatus& exit) {
  if (exit.signal != 0) return fmt::format("its supervisor was killed by signal {}", exit.signal);
  return fmt::format("its supervisor ended with {}", exit.code);
}

// A supervisor holds the lock from its start to its end, before it has told anything, too.
bool lock_is_held(const std::string& dir) {
  const UniqueFd lock(::open(HostFolder{dir}.lock().c_str(), O_RDWR | O_CLOEXEC));
  if (!lock.valid()) return false;
  return ::flock(lock.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

}  // namespace

Result<std::unique_ptr<LocalHostEngine>> LocalHostEngine::open(LocalHostEngineOptions options) {
  std::unique_ptr<LocalHostEngine> engine(new LocalHostEngine(std::move(options)));
  engine->epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!engine->epoll_.valid()) return errno_error("epoll", errno);
  engine->inotify_.reset(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!engine->inotify_.valid()) return errno_error("inotify", errno);
  engine->add_to_epoll(engine->inotify_.get());
  return engine;
}

LocalHostEngine::~LocalHostEngine() {
  for (auto& [dir, watch] : watches_) {
    if (watch.child) watch.child->detach();
    if (watch.cleaner) watch.cleaner->detach();
  }
  for (auto& [pid, process] : lingering_) process->detach();
}

void LocalHostEngine::add_to_epoll(int fd) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    log_warning("a host is watched by polling only: {}", errno_error("epoll", errno).message);
}

Result<std::vector<jobs::Slice>> LocalHostEngine::place(
    const std::vector<jobs::Slice>& held, const std::vector<std::string>& instance_types,
    const std::vector<int>& avoid) {
  return jobs::place_slices(options_.slices, held, instance_types, avoid);
}

LocalHostEngine::Watch& LocalHostEngine::watch(const std::string& dir) {
  const auto [it, is_new] = watches_.try_emplace(dir);
  Watch& watch = it->second;
  if (watch.inotify_watch >= 0) return watch;
  watch.inotify_watch =
      ::inotify_add_watch(inotify_.get(), dir.c_str(), IN_MOVED_TO | IN_CLOSE_WRITE | IN_ONLYDIR);
  if (watch.inotify_watch >= 0) dir_of_inotify_[watch.inotify_watch] = dir;
  return watch;
}

void LocalHostEngine::forget(const std::string& dir) {
  const auto it = watches_.find(dir);
  if (it == watches_.end()) return;
  Watch& watch = it->second;
  if (watch.inotify_watch >= 0) {
    ::inotify_rm_watch(inotify_.get(), watch.inotify_watch);
    dir_of_inotify_.erase(watch.inotify_watch);
  }
  dir_of_fd_.erase(watch.pidfd.get());
  if (watch.child) {
    dir_of_fd_.erase(watch.child->pidfd());
    // It may be kept, and must not end with what is known of it here.
    const int pid = watch.child->pid();
    if (!has_ended(*watch.child)) lingering_[pid] = std::move(watch.child);
  }
  if (watch.cleaner) dir_of_fd_.erase(watch.cleaner->pidfd());
  watches_.erase(it);
}

void LocalHostEngine::read_status(const std::string& dir, Watch& watch) {
  const std::string path = HostFolder{dir}.status();
  const auto text = read_file(path, kStatusBytesMax);
  if (!text) return;
  const auto json = parse_json(*text, path);
  auto status =
      json ? jobs::host_status_from_json(*json, path) : Result<jobs::HostStatus>(json.error());
  if (!status) return log_warning("{}", status.error().message);
  const host::ProcessId supervisor{status->supervisor_pid, status->supervisor_start_ticks};
  watch.status = *std::move(status);
  if (supervisor == watch.supervisor) return;
  watch.supervisor = supervisor;
  if (const auto own = lingering_.find(supervisor.pid); own != lingering_.end() && !watch.child) {
    watch.child = std::move(own->second);
    lingering_.erase(own);
    dir_of_fd_[watch.child->pidfd()] = dir;
  }
  watch_process(dir, watch);
}

// So that its death is told at once. The number may be somebody else's by now: looked at after the
// descriptor is there.
void LocalHostEngine::watch_process(const std::string& dir, Watch& watch) {
  dir_of_fd_.erase(watch.pidfd.get());
  watch.pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, watch.supervisor.pid, 0)));
  if (!watch.pidfd.valid() || !host::is_alive(watch.supervisor)) return watch.pidfd.reset();
  dir_of_fd_[watch.pidfd.get()] = dir;
  add_to_epoll(watch.pidfd.get());
}

void LocalHostEngine::reap(Watch& watch) {
  if (watch.child && has_ended(*watch.child)) {
    if (const auto exit = watch.child->wait(milliseconds(0))) watch.child_end = describe(*exit);
    dir_of_fd_.erase(watch.child->pidfd());
    watch.child.reset();
  }
  if (watch.cleaner && has_ended(*watch.cleaner)) {
    dir_of_fd_.erase(watch.cleaner->pidfd());
    watch.cleaner.reset();
  }
}

bool LocalHostEngine::is_running(const std::string& dir, const Watch& watch) const {
  if (watch.child || watch.cleaner) return true;
  // Also one that was told to take this folder over, and has not told anything yet.
  if (watch.supervisor.pid > 0 && host::is_alive(watch.supervisor)) return true;
  return !watch.status && lock_is_held(dir);
}

HostLook LocalHostEngine::look(const std::string& dir) {
  Watch& watch = this->watch(dir);
  reap(watch);
  read_status(dir, watch);
  HostLook look;
  look.is_alive = is_running(dir, watch);
  // What it told between our two looks belongs to its end.
  if (!look.is_alive) read_status(dir, watch);
  look.status = watch.status;
  const bool is_unknown = !watch.status && watch.child_end.empty();
  if (is_unknown && std::chrono::steady_clock::now() - opened_at_ < kUnknownGrace)
    look.is_alive = true;
  const bool ended_well = watch.status && watch.status->phase == jobs::HostPhase::kEnded;
  if (!look.is_alive && !ended_well)
    look.lost_reason = watch.child_end.empty() ? "its supervisor is gone" : watch.child_end;
  return look;
}

void LocalHostEngine::reap_lingering() {
  std::erase_if(lingering_, [](const auto& item) { return has_ended(*item.second); });
}

bool LocalHostEngine::hand_over(const std::string& kept_dir, const std::string& dir, Watch& watch) {
  if (kept_dir != dir) {
    Watch& kept = this->watch(kept_dir);
    read_status(kept_dir, kept);
    if (!kept.status || !kept.status->is_kept || !host::is_alive(kept.supervisor)) return false;
    watch.supervisor = kept.supervisor;
  }
  return host::send_control({kept_dir}, "adopt " + dir).has_value();
}

Status LocalHostEngine::start(const std::string& dir, const jobs::Slice& slice,
                              const std::string& kept_dir) {
  Watch& watch = this->watch(dir);
  reap(watch);
  read_status(dir, watch);
  if (!watch.status && !watch.child && !kept_dir.empty() && hand_over(kept_dir, dir, watch))
    return Ok{};
  if (is_running(dir, watch)) return Ok{};
  const bool resumes = watch.status && (watch.status->phase == jobs::HostPhase::kFinished ||
                                        watch.status->phase == jobs::HostPhase::kUpload);
  if (watch.status && !resumes) return Ok{};
  watch.child_end.clear();
  return spawn(dir, slice, resumes, watch);
}

Status LocalHostEngine::spawn(const std::string& dir, const jobs::Slice& slice, bool resumes,
                              Watch& watch) {
  YARD_ASSIGN(const UniqueFd log, host::open_for_append(HostFolder{dir}.supervisor_log()));
  SubprocessOptions child;
  child.argv = {options_.yard_program, "host", "--foreground", dir};
  if (resumes) child.argv.push_back("--resume");
  child.env = options_.env;
  child.cwd = "/";  // keeps no folder from being removed
  child.stdout_fd = log.get();
  child.stderr_fd = log.get();
  child.cpus = slice.cores;
  YARD_ASSIGN(Subprocess process, Subprocess::spawn(child));
  watch.child = std::make_unique<Subprocess>(std::move(process));
  dir_of_fd_[watch.child->pidfd()] = dir;
  add_to_epoll(watch.child->pidfd());
  return Ok{};
}

Status LocalHostEngine::send(const std::string& dir, std::string_view word) {
  const Status sent = host::send_control({dir}, word);
  if (sent || sent.error().code != Code::kNotFound) return sent;
  return Error{Code::kUnavailable, dir + ": its supervisor does not listen yet"};
}

void LocalHostEngine::kill(const std::string& dir) {
  Watch& watch = this->watch(dir);
  reap(watch);
  if (watch.cleaner) return;
  if (watch.child) (void)watch.child->kill(SIGKILL);
  if (watch.pidfd.valid() && host::is_alive(watch.supervisor))
    ::syscall(SYS_pidfd_send_signal, watch.pidfd.get(), SIGKILL, nullptr, 0);
  start_cleaner(dir, watch);
}

// Mounts, processes and networks of a supervisor that could not tidy up itself.
void LocalHostEngine::start_cleaner(const std::string& dir, Watch& watch) {
  const auto log = host::open_for_append(HostFolder{dir}.supervisor_log());
  if (!log) return;  // no folder: there is nothing to tidy up
  SubprocessOptions child;
  child.argv = {options_.yard_program, "host", "--clean", dir};
  child.env = options_.env;
  child.cwd = "/";
  child.stdout_fd = log->get();
  child.stderr_fd = log->get();
  auto process = Subprocess::spawn(child);
  if (!process) return log_warning("{}", process.error().message);
  watch.cleaner = std::make_unique<Subprocess>(*std::move(process));
  dir_of_fd_[watch.cleaner->pidfd()] = dir;
  add_to_epoll(watch.cleaner->pidfd());
}

Status LocalHostEngine::retire(const std::string& dir, int attempt) {
  const std::string status = HostFolder{dir}.status();
  const std::string kept = fmt::format("{}/status.attempt-{}.json", dir, attempt);
  if (::rename(status.c_str(), kept.c_str()) != 0 && errno != ENOENT)
    return errno_error(status, errno);
  forget(dir);
  return Ok{};
}

void LocalHostEngine::note_inotify(std::vector<std::string>& dirs) {
  alignas(inotify_event) std::array<char, 16'384> buffer;
  while (true) {
    const ssize_t got = ::read(inotify_.get(), buffer.data(), buffer.size());
    if (got <= 0) return;
    for (ssize_t at = 0; at < got;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
      const auto it = dir_of_inotify_.find(event->wd);
      const bool is_status = event->len > 0 && std::string_view(event->name) == "status.json";
      if (is_status && it != dir_of_inotify_.end()) dirs.push_back(it->second);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
  }
}

std::vector<std::string> LocalHostEngine::changed() {
  reap_lingering();
  std::vector<std::string> dirs;
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const int fd = events[static_cast<size_t>(i)].data.fd;
    if (fd == inotify_.get()) {
      note_inotify(dirs);
      continue;
    }
    // A process ends once: its descriptor would stay readable for ever.
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    const auto it = dir_of_fd_.find(fd);
    if (it != dir_of_fd_.end()) dirs.push_back(it->second);
  }
  return dirs;
}

}  // namespace yard::engine
