#include "base/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/file.h"

namespace yard {
namespace {

// Everything the child needs, made before fork: between fork and exec only system calls are safe.
struct Prepared {
  std::string program;
  std::vector<std::string> env_lines;
  std::vector<char*> argv;
  std::vector<char*> envp;
  cpu_set_t cpus;
};

Result<std::string> find_program(const std::string& name,
                                 const std::map<std::string, std::string>& env) {
  if (name.find('/') != std::string::npos) return name;
  const auto it = env.find("PATH");
  std::string_view path = it == env.end() ? std::string_view("/usr/bin:/bin") : it->second;
  while (!path.empty()) {
    const size_t colon = std::min(path.find(':'), path.size());
    const std::string candidate = std::string(path.substr(0, colon)) + "/" + name;
    if (colon > 0 && ::access(candidate.c_str(), X_OK) == 0) return candidate;
    path.remove_prefix(std::min(colon + 1, path.size()));
  }
  return Error{Code::kNotFound, name + ": no such program in PATH"};
}

Result<Prepared> prepare(const SubprocessOptions& options) {
  YARD_CHECK(!options.argv.empty());
  Prepared prepared;
  YARD_ASSIGN(prepared.program, find_program(options.argv[0], options.env));
  for (const auto& [name, value] : options.env) prepared.env_lines.push_back(name + "=" + value);
  for (std::string& line : prepared.env_lines) prepared.envp.push_back(line.data());
  prepared.envp.push_back(nullptr);
  for (const std::string& arg : options.argv)
    prepared.argv.push_back(const_cast<char*>(arg.data()));
  prepared.argv.push_back(nullptr);
  CPU_ZERO(&prepared.cpus);
  for (const int cpu : options.cpus) {
    YARD_CHECK(cpu >= 0 && cpu < CPU_SETSIZE);
    CPU_SET(cpu, &prepared.cpus);
  }
  return prepared;
}

// The step that failed in the child, sent to the parent through a pipe that exec closes.
struct ChildFailure {
  int errno_value;
  bool in_cwd;
};

[[noreturn]] void give_up(int report_fd, bool in_cwd) {
  const ChildFailure failure = {errno, in_cwd};
  [[maybe_unused]] const ssize_t written = ::write(report_fd, &failure, sizeof failure);
  _exit(127);
}

// dup2 onto itself would leave close-on-exec set, hence the case apart.
void place_fd(int from, int to, int report_fd) {
  if (from < 0) return;
  if (from == to ? ::fcntl(to, F_SETFD, 0) < 0 : ::dup2(from, to) < 0) give_up(report_fd, false);
}

[[noreturn]] void run_child(const SubprocessOptions& options, const Prepared& prepared,
                            int report_fd, int stdin_fd, int parent_pid) {
  if (options.new_process_group) ::setpgid(0, 0);
  if (options.kill_with_parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent_pid) _exit(127);  // the parent died before prctl took effect
  }
  if (!options.cpus.empty() && ::sched_setaffinity(0, sizeof prepared.cpus, &prepared.cpus) != 0) {
    give_up(report_fd, false);
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(signal, SIG_DFL);
  place_fd(stdin_fd, STDIN_FILENO, report_fd);
  place_fd(options.stdout_fd, STDOUT_FILENO, report_fd);
  place_fd(options.stderr_fd, STDERR_FILENO, report_fd);
  if (!options.cwd.empty() && ::chdir(options.cwd.c_str()) != 0) give_up(report_fd, true);
  ::execve(prepared.program.c_str(), prepared.argv.data(), prepared.envp.data());
  give_up(report_fd, false);
}

ExitStatus to_exit_status(int wait_status) {
  if (WIFSIGNALED(wait_status)) return {128 + WTERMSIG(wait_status), WTERMSIG(wait_status)};
  return {WEXITSTATUS(wait_status), 0};
}

}  // namespace

Result<Subprocess> Subprocess::spawn(const SubprocessOptions& options) {
  YARD_ASSIGN(Prepared prepared, prepare(options));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error(prepared.program, errno);
  UniqueFd report_read(ends[0]), report_write(ends[1]);
  UniqueFd null_fd;
  if (options.stdin_fd < 0) {
    null_fd.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!null_fd.valid()) return errno_error("/dev/null", errno);
  }
  const int stdin_fd = options.stdin_fd < 0 ? null_fd.get() : options.stdin_fd;
  const int parent_pid = ::getpid();
  const int pid = ::fork();
  if (pid < 0) return Error{Code::kExhausted, prepared.program + ": cannot fork"};
  if (pid == 0) run_child(options, prepared, report_write.get(), stdin_fd, parent_pid);

  if (options.new_process_group) ::setpgid(pid, pid);  // also here: kill_group() may come at once
  report_write.reset();
  ChildFailure failure{};
  ssize_t got;
  while ((got = ::read(report_read.get(), &failure, sizeof failure)) < 0 && errno == EINTR) {
  }
  Subprocess child;
  child.pid_ = pid;
  if (got == sizeof failure) {
    ::waitpid(pid, nullptr, 0);
    child.reaped_ = true;
    return errno_error(failure.in_cwd ? options.cwd : prepared.program, failure.errno_value);
  }
  child.pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (child.pidfd_ < 0) return errno_error("pidfd of " + prepared.program, errno);
  ::fcntl(child.pidfd_, F_SETFD, FD_CLOEXEC);
  return child;
}

Subprocess::Subprocess(Subprocess&& other) noexcept {
  *this = std::move(other);
}

Subprocess& Subprocess::operator=(Subprocess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  std::swap(reaped_, other.reaped_);
  std::swap(exit_, other.exit_);
  return *this;
}

Subprocess::~Subprocess() {
  if (pid_ > 0 && !reaped_) {
    [[maybe_unused]] const Status killed = kill_group(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  if (pidfd_ >= 0) ::close(pidfd_);
}

Status Subprocess::kill(int signal) const {
  if (reaped_ || pidfd_ < 0) return Ok{};
  if (::syscall(SYS_pidfd_send_signal, pidfd_, signal, nullptr, 0) != 0 && errno != ESRCH) {
    return errno_error("signal to process " + std::to_string(pid_), errno);
  }
  return Ok{};
}

Status Subprocess::kill_group(int signal) const {
  if (pid_ <= 0) return Ok{};
  // While we have not reaped it, its pid, and so the group's id, cannot be given to others.
  if (!reaped_ && ::getpgid(pid_) != pid_) return kill(signal);
  if (::kill(-pid_, signal) != 0 && errno != ESRCH) {
    return errno_error("signal to process group " + std::to_string(pid_), errno);
  }
  return Ok{};
}

Result<ExitStatus> Subprocess::wait(std::chrono::milliseconds timeout) {
  if (reaped_) return exit_;
  YARD_CHECK(pid_ > 0);
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    int status = 0;
    const int got = ::waitpid(pid_, &status, WNOHANG);
    if (got == pid_) {
      reaped_ = true;
      exit_ = to_exit_status(status);
      return exit_;
    }
    if (got < 0 && errno != EINTR)
      return errno_error("wait for process " + std::to_string(pid_), errno);
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
      return Error{Code::kDeadlineExceeded, "process " + std::to_string(pid_) + " still runs"};
    }
    pollfd event = {.fd = pidfd_, .events = POLLIN, .revents = 0};
    ::poll(&event, 1, static_cast<int>(std::min<int64_t>(left.count(), 60'000)));
  }
}

void Subprocess::detach() {
  reaped_ = true;  // the destructor leaves it alone
}

std::map<std::string, std::string> environment() {
  std::map<std::string, std::string> env;
  for (char** line = environ; line != nullptr && *line != nullptr; ++line) {
    const std::string_view text(*line);
    if (const size_t equals = text.find('='); equals != std::string_view::npos && equals > 0) {
      env.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return env;
}

}  // namespace yard
