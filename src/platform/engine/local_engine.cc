#include "engine/local_engine.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>

#include "base/file.h"
#include "base/log.h"
#include "base/subprocess.h"
#include "host/job_folder.h"

namespace yard::engine {
namespace {

constexpr std::chrono::seconds kReadyTimeout{60};
constexpr std::string_view kReady = "ready ";
constexpr std::string_view kFailed = "failed ";

std::string join(const std::vector<int>& cores) {
  return fmt::format("{}", fmt::join(cores, ","));
}

// What the supervisor says, up to the end of its pipe.
Result<std::string> read_answer(int fd) {
  const auto deadline = std::chrono::steady_clock::now() + kReadyTimeout;
  std::string answer;
  std::array<char, 4096> buffer;
  while (answer.empty() || answer.back() != '\n') {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd item{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&item, 1, static_cast<int>(std::max<int64_t>(0, left.count())));
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return errno_error("poll", errno);
    if (ready == 0)
      return Error{Code::kDeadlineExceeded, "the supervisor does not say that it is ready"};
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Error{Code::kInternal, "the supervisor ended before it was ready"};
    answer.append(buffer.data(), static_cast<size_t>(got));
  }
  answer.pop_back();
  return answer;
}

Result<host::ProcessId> parse_answer(std::string_view answer) {
  if (answer.starts_with(kReady)) {
    answer.remove_prefix(kReady.size());
    int pid = 0;
    std::from_chars(answer.data(), answer.data() + answer.size(), pid);
    // A job of nothing may have ended already.
    return host::identify(pid).value_or(host::ProcessId{pid, 0});
  }
  if (answer.starts_with(kFailed)) answer.remove_prefix(kFailed.size());
  return Error{Code::kInternal, std::string(answer)};
}

void answer_and_let_go(std::string_view line) {
  // Nobody may be there to read it any more: that does not concern the job.
  [[maybe_unused]] const ssize_t written = ::write(STDOUT_FILENO, line.data(), line.size());
  const UniqueFd null_device(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  ::dup2(null_device.get(), STDOUT_FILENO);
}

}  // namespace

const Host& choose_host(const std::vector<Host>& hosts, const std::vector<jobdb::JobRow>& jobs) {
  YARD_CHECK(!hosts.empty());
  const auto job_count = [&](const Host& host) {
    return std::ranges::count_if(jobs, [&](const jobdb::JobRow& job) {
      return job.host == host.name && !jobs::is_final(job.state);
    });
  };
  return *std::ranges::min_element(hosts, {}, job_count);
}

Result<std::vector<Host>> LocalEngine::acquire(const HostRequest& request) {
  if (request.host_count != 1)
    return Error{Code::kInvalidArgument,
                 fmt::format("{} hosts: a job on this machine has one", request.host_count)};
  YARD_ASSIGN(const auto jobs, db_.jobs());
  return std::vector<Host>{choose_host(options_.hosts, jobs)};
}

Result<host::ProcessId> LocalEngine::start(const Host& host, const std::string& job_dir) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return errno_error("pipe", errno);
  const UniqueFd reader(fds[0]);
  UniqueFd writer(fds[1]);
  SubprocessOptions child;
  child.argv = {options_.yard_program, "supervise", job_dir, "--cores", join(host.cores)};
  child.env = options_.env;
  child.stdout_fd = writer.get();
  YARD_ASSIGN(Subprocess process, Subprocess::spawn(child));
  writer.reset();
  auto answer = read_answer(reader.get());
  // The child itself ends once its successor is on its own; without an answer nobody is wanted.
  if (answer) (void)process.wait(kReadyTimeout);
  if (!answer) return std::move(answer).error();
  return parse_answer(*answer);
}

Status LocalEngine::release(const std::string& job_dir) {
  const int killed_count = host::kill_leftovers(job_dir);
  if (killed_count > 0) log_warning("{}: ended {} processes left behind", job_dir, killed_count);
  return Ok{};
}

Status become_daemon(const std::string& log_path) {
  YARD_ASSIGN(const UniqueFd log, host::open_for_append(log_path));
  const pid_t child = ::fork();
  if (child < 0) return errno_error("fork", errno);
  if (child > 0) ::_exit(0);
  if (::setsid() < 0) return errno_error("setsid", errno);
  if (::dup2(log.get(), STDERR_FILENO) < 0) return errno_error(log_path, errno);
  // Keeps no folder from being unmounted or removed.
  if (::chdir("/") != 0) return errno_error("/", errno);
  return Ok{};
}

void report_ready() {
  answer_and_let_go(fmt::format("{}{}\n", kReady, ::getpid()));
}

void report_failure(const Error& error) {
  std::string line = error.message;
  std::ranges::replace(line, '\n', ' ');
  answer_and_let_go(fmt::format("{}{}\n", kFailed, line));
}

}  // namespace yard::engine
