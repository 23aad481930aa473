#include "api/fault_injection.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "base/file.h"
#include "base/log.h"
#include "jobs/host_plan.h"
#include "observe/host_processes.h"

namespace yard::api {
namespace {

constexpr std::chrono::milliseconds kAnswerTime{200};
constexpr int kStoreSecondsDefault = 30;

int64_t ns_of(Clock::Monotonic time) {
  return std::chrono::nanoseconds(time.time_since_epoch()).count();
}

Error needs(const Fault& fault, std::string_view what) {
  return {Code::kInvalidArgument, fmt::format("{} needs {}", fault.name, what)};
}

Status send_signal(pid_t pid, int signal) {
  if (::kill(pid, signal) == 0) return Ok{};
  return errno_error(fmt::format("process {}", pid), errno);
}

std::string ballast_path(const std::string& host_dir) {
  return jobs::HostFolder{host_dir}.ml() + "/.chaos-ballast";
}

// A way of its own, since blocks have to be there and not only a length.
Status allocate_file(const std::string& path, uint64_t bytes) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return errno_error(path, errno);
  const int failed = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes));
  if (failed != 0) return errno_error(path, failed);
  return Ok{};
}

}  // namespace

Result<std::string> FaultInjection::inject(const Fault& fault) {
  if (fault.name == "kill-rank") return signal_rank(fault, SIGKILL, "killed");
  if (fault.name == "freeze-rank") return signal_rank(fault, SIGSTOP, "froze");
  if (fault.name == "thaw-rank") return signal_rank(fault, SIGCONT, "thawed");
  if (fault.name == "kill-supervisor") return end_host(fault, false);
  if (fault.name == "fail-host") return end_host(fault, true);
  if (fault.name == "fail-slice") return fail_slice(fault);
  if (fault.name == "mend-slices")
    return fmt::format("{} faulty slices are well again", desk_.mend_slices());
  if (fault.name == "fill-disk") return fill_disk(fault);
  if (fault.name == "free-disk") return free_disk(fault);
  if (fault.name == "break-store")
    return break_store(fault.seconds > 0 ? fault.seconds : kStoreSecondsDefault);
  if (fault.name == "mend-store") {
    store_broken_until_ns_ = 0;
    return std::string("the store answers again");
  }
  if (fault.name != "kill-daemon")
    return Error{Code::kInvalidArgument, fmt::format("no fault '{}'", fault.name)};
  log_warning("chaos: this process is killed");
  std::thread([] {
    std::this_thread::sleep_for(kAnswerTime);
    ::kill(::getpid(), SIGKILL);
  }).detach();
  return fmt::format("killed the daemon, process {}", ::getpid());
}

bool FaultInjection::is_store_broken() const {
  const int64_t until_ns = store_broken_until_ns_.load(std::memory_order_relaxed);
  return until_ns != 0 && ns_of(clock_.now()) < until_ns;
}

Result<std::string> FaultInjection::break_store(int seconds) {
  store_broken_until_ns_ = ns_of(clock_.now() + std::chrono::seconds(seconds));
  return fmt::format("the store refuses every request for {} s", seconds);
}

Result<engine::JobView> FaultInjection::job_of(const Fault& fault) {
  if (fault.job.empty()) return needs(fault, "a job");
  return desk_.find(fault.kind, fault.job);
}

Result<std::string> FaultInjection::host_dir_of(const Fault& fault) {
  YARD_ASSIGN(const engine::JobView job, job_of(fault));
  if (job.hosts.empty())
    return Error{Code::kNotFound, fmt::format("job '{}' has no hosts now", fault.job)};
  const std::string host = fault.host.empty() ? job.hosts.front() : fault.host;
  if (std::ranges::find(job.hosts, host) == job.hosts.end())
    return Error{Code::kNotFound, fmt::format("job '{}' has no host '{}'", fault.job, host)};
  return job.dir + "/hosts/" + host;
}

Result<std::string> FaultInjection::signal_rank(const Fault& fault, int signal,
                                                std::string_view done) {
  YARD_ASSIGN(const engine::JobView job, job_of(fault));
  const int rank = fault.rank.value_or(0);
  for (const std::string& host : job.hosts) {
    if (!fault.host.empty() && host != fault.host) continue;
    const auto processes = observe::host_processes(job.dir + "/hosts/" + host);
    if (!processes) continue;
    const auto found = observe::process_of_rank(*processes, rank);
    if (!found) continue;
    YARD_TRY(send_signal(found->pid, signal));
    return fmt::format("{} rank {} of {} on {} (process {})", done, rank, fault.job, host,
                       found->pid);
  }
  return Error{Code::kNotFound, fmt::format("job '{}' has no rank {}{} that runs now", fault.job,
                                            rank, fault.host.empty() ? "" : " on " + fault.host)};
}

Result<std::string> FaultInjection::end_host(const Fault& fault, bool with_all) {
  YARD_ASSIGN(const std::string dir, host_dir_of(fault));
  YARD_ASSIGN(const auto processes, observe::host_processes(dir));
  YARD_TRY(send_signal(processes.supervisor.pid, SIGKILL));
  if (with_all)
    for (const observe::HostProcess& process : processes.inside)
      (void)::kill(process.pid, SIGKILL);  // it may have gone with the supervisor
  return fmt::format("killed {} of {} on {} (process {})",
                     with_all ? "all processes" : "the supervisor", fault.job,
                     std::filesystem::path(dir).filename().string(), processes.supervisor.pid);
}

Result<std::string> FaultInjection::fail_slice(const Fault& fault) {
  YARD_ASSIGN(const engine::JobView job, job_of(fault));
  const std::string host = fault.host.empty() ? "algo-1" : fault.host;
  YARD_ASSIGN(const int number, desk_.declare_slice_faulty(fault.kind, fault.job, host));
  return fmt::format("slice {}, of {} of {}, fails its health checks", number, host, fault.job);
}

Result<std::string> FaultInjection::fill_disk(const Fault& fault) {
  if (fault.bytes == 0) return needs(fault, "a number of bytes");
  YARD_ASSIGN(const std::string dir, host_dir_of(fault));
  const std::string path = ballast_path(dir);
  const Status filled = allocate_file(path, fault.bytes);
  // What fits stays: the disk is full, which was asked for.
  if (!filled && filled.error().code != Code::kExhausted) return filled.error();
  return fmt::format("{} bytes {} in {}", fault.bytes, filled ? "are" : "do not fit", path);
}

Result<std::string> FaultInjection::free_disk(const Fault& fault) {
  YARD_ASSIGN(const std::string dir, host_dir_of(fault));
  const std::string path = ballast_path(dir);
  if (::unlink(path.c_str()) != 0) return errno_error(path, errno);
  return "removed " + path;
}

}  // namespace yard::api
