// The check of the network between the hosts, before the program.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "host/host_supervisor_internal.h"
#include "host/network_check.h"

namespace yard::host {
namespace {

// So often the first host takes it that the others are at fault when none of them comes.
constexpr int kMeetingsAlone = 2;
constexpr size_t kVerdictBytesMax = 64 << 10;

}  // namespace

// Outside of the job's log: it is not the job that speaks.
Result<NetworkVerdict> HostSupervisor::meet_peers() {
  const UniqueFd out(::memfd_create("yard-network", MFD_CLOEXEC));
  if (!out.valid()) return errno_error("memfd", errno);
  Launch launch;
  launch.command = network_check_command(plan_, options_.programs_dir + "/yard");
  launch.env = sandbox_->runtime_environment();
  launch.cwd = "/";
  launch.output_fd = out.get();
  launch.keeps_reserve = true;
  YARD_ASSIGN(Subprocess child, sandbox_->start(launch));
  while (!child.wait(std::chrono::milliseconds(0))) {
    if (stop_asked_ && !child.kill_group(SIGKILL)) break;
    wait_once(child.pidfd(), options_.status_period);
  }
  std::string text(kVerdictBytesMax, '\0');
  const ssize_t got = ::pread(out.get(), text.data(), text.size(), 0);
  text.resize(size_t(std::max<ssize_t>(got, 0)));
  // Warnings may stand before it.
  text.erase(0, text.rfind("\n{") == std::string::npos ? 0 : text.rfind("\n{") + 1);
  YARD_ASSIGN(const Json json, parse_json(text, "what the check of the network printed"));
  return network_verdict_from_json(json, "verdict of the network");
}

// Until all is well, or this host is at fault: those that are get replaced meanwhile, and meet the
// others here.
std::optional<HostEnd> HostSupervisor::check_network() {
  const bool is_wanted = plan_.health.collective_bytes_per_second_min > 0 &&
                         plan_.hosts.size() > 1 && !options_.programs_dir.empty();
  meet_asked_ = false;
  if (!is_wanted) return std::nullopt;
  report_->change([](jobs::HostStatus& status) { status.is_ready = false; });
  for (int meetings_alone = 0;;) {
    const auto verdict = meet_peers();
    if (stop_asked_) return HostEnd::stopped();
    if (!verdict) return HostEnd::host_fault(verdict.error().message);
    report_->event("network", to_json(*verdict));
    if (verdict->is_good) {
      // Whoever was replaced while we met took part in it.
      meet_asked_ = false;
      return std::nullopt;
    }
    const bool is_named = std::ranges::find(verdict->faulty, plan_.host) != verdict->faulty.end();
    meetings_alone += verdict->is_alone ? 1 : 0;
    if (is_named || meetings_alone >= kMeetingsAlone)
      return HostEnd::host_fault("network: " + verdict->error);
    log_info("the hosts meet again: {}", verdict->error);
  }
}

}  // namespace yard::host
