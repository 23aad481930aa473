#include "base/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "base/file.h"

extern char** environ;

namespace yard {
namespace {

// What the child was doing when it failed; sent to the parent through the report pipe.
enum class Stage : int { kDescriptors, kDirectory, kAffinity, kExec };

struct Report {
  Stage stage;
  int errno_value;
};

// Everything the child needs, made before fork(): between fork and exec only async-signal-safe
// calls are allowed, since another thread may have held malloc's lock at the fork.
struct ChildPlan {
  std::vector<char*> argv;
  std::vector<std::string> environment_lines;
  std::vector<char*> envp;
  std::vector<std::string> program_paths;  // tried in order
  const char* cwd = nullptr;               // null: ours
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
  int report_fd = -1;
  int fd_end = 0;  // one above the highest possible descriptor
  bool new_process_group = false;
  bool kill_with_parent = false;
  bool set_affinity = false;
  cpu_set_t cpus = {};
  pid_t parent = 0;
};

std::vector<std::string> program_paths(const SubprocessOptions& options) {
  const std::string& program = options.argv[0];
  if (program.find('/') != std::string::npos) return {program};
  const auto found = options.env.find("PATH");
  std::string_view path =
      found == options.env.end() ? "/usr/local/bin:/usr/bin:/bin" : std::string_view(found->second);
  std::vector<std::string> paths;
  while (!path.empty()) {
    const auto directory = path.substr(0, path.find(':'));
    path.remove_prefix(std::min(path.size(), directory.size() + 1));
    if (!directory.empty()) paths.push_back(std::string(directory) + "/" + program);
  }
  return paths;
}

std::vector<char*> pointers_to(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const auto& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

Status plan_affinity(const std::vector<int>& cpus, ChildPlan& plan) {
  CPU_ZERO(&plan.cpus);
  for (const int cpu : cpus) {
    if (cpu < 0 || cpu >= CPU_SETSIZE)
      return Error{Code::kInvalidArgument, "no CPU has the number " + std::to_string(cpu)};
    CPU_SET(cpu, &plan.cpus);
  }
  plan.set_affinity = !cpus.empty();
  return Ok{};
}

// `plan` points into `options`, which must outlive it.
Status make_plan(const SubprocessOptions& options, ChildPlan& plan) {
  YARD_CHECK(!options.argv.empty() && !options.argv[0].empty());
  YARD_TRY(plan_affinity(options.cpus, plan));
  plan.argv = pointers_to(options.argv);
  for (const auto& [name, value] : options.env)
    plan.environment_lines.push_back(name + "=" + value);
  plan.envp = pointers_to(plan.environment_lines);
  plan.program_paths = program_paths(options);
  plan.cwd = options.cwd.empty() ? nullptr : options.cwd.c_str();
  plan.stdin_fd = options.stdin_fd;
  plan.stdout_fd = options.stdout_fd;
  plan.stderr_fd = options.stderr_fd;
  plan.new_process_group = options.new_process_group;
  plan.kill_with_parent = options.kill_with_parent;
  plan.parent = ::getpid();
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  plan.fd_end = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 65'536));
  return Ok{};
}

// ---- in the child: async-signal-safe only ----

[[noreturn]] void fail_child(const ChildPlan& plan, Stage stage) {
  const Report report{stage, errno};
  // A lost report would look like success; but a pipe takes eight bytes whole or its reader is
  // gone.
  [[maybe_unused]] const ssize_t written = ::write(plan.report_fd, &report, sizeof report);
  ::_exit(127);
}

// Ignored signals and handlers of ours must not decide how the program ends. Asks the kernel
// itself: the C library refuses to touch signals 32 and 33, which some parents leave ignored.
void reset_signals() {
  const unsigned long default_action[8] = {};  // the kernel's struct sigaction, all of it zero
  for (int signal = 1; signal < NSIG; ++signal)
    ::syscall(SYS_rt_sigaction, signal, default_action, nullptr, (NSIG - 1) / 8);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// A copy above 2, so that placing one stream cannot overwrite the source of another.
int lift(const ChildPlan& plan, int fd) {
  if (fd < 0) return -1;
  const int lifted = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (lifted < 0) fail_child(plan, Stage::kDescriptors);
  return lifted;
}

void place(const ChildPlan& plan, int lifted, int target) {
  if (lifted >= 0 && ::dup2(lifted, target) < 0) fail_child(plan, Stage::kDescriptors);
}

// Descriptors that some library opened without close-on-exec would keep files, ports and pipes of
// ours open in the child.
void close_rest_on_exec(int fd_end) {
#ifdef SYS_close_range
  constexpr unsigned kCloseRangeCloexec = 4;
  if (::syscall(SYS_close_range, 3U, ~0U, kCloseRangeCloexec) == 0) return;
#endif
  for (int fd = 3; fd < fd_end; ++fd) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

void exec_first(const ChildPlan& plan) {
  int errno_shown = ENOENT;
  for (const auto& path : plan.program_paths) {
    ::execve(path.c_str(), plan.argv.data(), plan.envp.data());
    if (errno == ENOENT || errno == ENOTDIR) continue;
    errno_shown = errno;
    if (errno != EACCES) break;  // as execvp: a later folder may hold one that we may run
  }
  errno = errno_shown;
}

[[noreturn]] void run_child(const ChildPlan& plan) {
  if (plan.new_process_group) ::setpgid(0, 0);
  if (plan.kill_with_parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != plan.parent) ::_exit(127);  // it died before prctl
  }
  reset_signals();
  const int in = lift(plan, plan.stdin_fd);
  const int out = lift(plan, plan.stdout_fd);
  const int err = lift(plan, plan.stderr_fd);
  place(plan, in, STDIN_FILENO);
  place(plan, out, STDOUT_FILENO);
  place(plan, err, STDERR_FILENO);
  close_rest_on_exec(plan.fd_end);
  if (plan.cwd != nullptr && ::chdir(plan.cwd) != 0) fail_child(plan, Stage::kDirectory);
  if (plan.set_affinity && ::sched_setaffinity(0, sizeof plan.cpus, &plan.cpus) != 0)
    fail_child(plan, Stage::kAffinity);
  exec_first(plan);
  fail_child(plan, Stage::kExec);
}

// ---- in the parent ----

// Signals stay blocked over fork(), so that no handler of ours runs in the child.
pid_t fork_child(const ChildPlan& plan) {
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = ::fork();
  if (pid == 0) run_child(plan);
  const int errno_of_fork = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = errno_of_fork;
  return pid;
}

Error to_error(const Report& report, const SubprocessOptions& options) {
  const auto as = [](Code code, Error error) { return Error{code, std::move(error.message)}; };
  switch (report.stage) {
    case Stage::kDirectory:
      return as(Code::kInvalidArgument, errno_error(options.cwd, report.errno_value));
    case Stage::kAffinity:
      return as(Code::kInvalidArgument,
                errno_error(options.argv[0] + ": CPU affinity", report.errno_value));
    case Stage::kDescriptors:
      return errno_error(options.argv[0] + ": standard streams", report.errno_value);
    case Stage::kExec:
      break;
  }
  auto error = errno_error(options.argv[0], report.errno_value);
  if (report.errno_value == ENOEXEC || report.errno_value == E2BIG)
    error.code = Code::kInvalidArgument;
  return error;
}

// Nothing arrives when exec succeeded: it closed the child's end.
Status read_report(int fd, const SubprocessOptions& options) {
  Report report{};
  ssize_t got = 0;
  do {
    got = ::read(fd, &report, sizeof report);
  } while (got < 0 && errno == EINTR);
  if (got == sizeof report) return to_error(report, options);
  return Ok{};
}

struct ReportPipe {
  UniqueFd read_end;
  UniqueFd write_end;
};

Result<ReportPipe> make_report_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return errno_error("pipe", errno);
  ReportPipe pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
  if (pipe.write_end.get() > STDERR_FILENO) return pipe;
  // One of our own standard streams is closed: the child would overwrite this descriptor.
  pipe.write_end.reset(::fcntl(fds[1], F_DUPFD_CLOEXEC, 3));
  if (!pipe.write_end.valid()) return errno_error("pipe", errno);
  return pipe;
}

void kill_and_reap(pid_t pid) {
  ::kill(pid, SIGKILL);
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

ExitStatus to_exit_status(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return {.code = info.si_status, .signal = 0};
  return {.code = 128 + info.si_status, .signal = info.si_status};
}

Status ok_if_gone(int rc, std::string_view what) {
  if (rc == 0 || errno == ESRCH) return Ok{};
  return errno_error(what, errno);
}

// True when `fd` became readable in time; restarts after signals.
Result<bool> poll_readable(int fd, std::chrono::milliseconds timeout) {
  using SteadyClock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kOneWaitMax = std::chrono::hours(1);  // poll() takes an int
  const auto start = SteadyClock::now();
  while (true) {
    const auto waited =
        std::chrono::duration_cast<std::chrono::milliseconds>(SteadyClock::now() - start);
    const auto left = std::max(std::chrono::milliseconds(0), timeout - waited);
    pollfd item{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&item, 1, static_cast<int>(std::min(left, kOneWaitMax).count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return errno_error("poll", errno);
    if (ready == 0 && left <= kOneWaitMax) return false;
  }
}

}  // namespace

Result<Subprocess> Subprocess::spawn(const SubprocessOptions& options) {
  ChildPlan plan;
  YARD_TRY(make_plan(options, plan));
  UniqueFd null_device;
  if (plan.stdin_fd < 0) {
    null_device.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!null_device.valid()) return errno_error("/dev/null", errno);
    plan.stdin_fd = null_device.get();
  }
  YARD_ASSIGN(auto pipe, make_report_pipe());
  plan.report_fd = pipe.write_end.get();

  const pid_t pid = fork_child(plan);
  if (pid < 0) return Error{Code::kExhausted, errno_error(options.argv[0], errno).message};
  pipe.write_end.reset();
  if (auto started = read_report(pipe.read_end.get(), options); !started) {
    kill_and_reap(pid);
    return std::move(started).error();
  }
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));  // close-on-exec always
  if (pidfd < 0) {
    const int errno_of_open = errno;
    kill_and_reap(pid);
    return errno_error("pidfd of " + options.argv[0], errno_of_open);
  }
  Subprocess child;
  child.pid_ = pid;
  child.pidfd_ = pidfd;
  child.leads_group_ = options.new_process_group;
  return child;
}

Subprocess::Subprocess(Subprocess&& other) noexcept {
  *this = std::move(other);
}

Subprocess& Subprocess::operator=(Subprocess&& other) noexcept {
  if (this == &other) return *this;
  end();
  pid_ = std::exchange(other.pid_, -1);
  pidfd_ = std::exchange(other.pidfd_, -1);
  leads_group_ = other.leads_group_;
  ended_ = other.ended_;
  exit_ = other.exit_;
  return *this;
}

Subprocess::~Subprocess() {
  end();
}

void Subprocess::end() {
  if (pidfd_ < 0) return;
  if (leads_group_) ::kill(-pid_, SIGKILL);
  kill_and_reap(pid_);
  ::close(std::exchange(pidfd_, -1));
  pid_ = -1;
}

Status Subprocess::kill(int signal) const {
  YARD_CHECK(pidfd_ >= 0);
  const auto rc = ::syscall(SYS_pidfd_send_signal, pidfd_, signal, nullptr, 0);
  return ok_if_gone(static_cast<int>(rc), "process " + std::to_string(pid_));
}

Status Subprocess::kill_group(int signal) const {
  YARD_CHECK(pidfd_ >= 0);
  if (!leads_group_) return kill(signal);
  return ok_if_gone(::kill(-pid_, signal), "process group " + std::to_string(pid_));
}

Result<ExitStatus> Subprocess::wait(std::chrono::milliseconds timeout) {
  YARD_CHECK(pidfd_ >= 0);
  if (ended_) return exit_;
  YARD_ASSIGN(const bool readable, poll_readable(pidfd_, timeout));
  const std::string name = "process " + std::to_string(pid_);
  if (!readable) return Error{Code::kDeadlineExceeded, name + ": still running"};
  // WNOWAIT leaves a zombie until the destructor: while it is there, the kernel gives its number
  // to nobody else, and kill_group() cannot hit a stranger.
  siginfo_t info = {};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) != 0)
    return errno_error(name, errno);
  exit_ = to_exit_status(info);
  ended_ = true;
  return exit_;
}

void Subprocess::detach() {
  if (pidfd_ >= 0) ::close(std::exchange(pidfd_, -1));
}

std::map<std::string, std::string> environment() {
  std::map<std::string, std::string> variables;
  for (char** line = environ; line != nullptr && *line != nullptr; ++line) {
    const std::string_view text(*line);
    const auto equals = text.find('=', 1);
    if (equals == std::string_view::npos) continue;
    variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

}  // namespace yard
