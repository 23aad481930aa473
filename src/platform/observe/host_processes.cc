#include "observe/host_processes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "base/file.h"
#include "jobs/host_plan.h"
#include "telemetry/process_usage.h"

namespace yard::observe {
namespace {

constexpr uint64_t kProcFileBytesMax = uint64_t{4} << 20;
constexpr int kRankMax = 1'000'000;

// proc(5): "NSpid:\t4711\t12": the numbers from our namespace to the innermost. 0: it has none of
// its own, or has ended.
int inner_pid_of(pid_t pid) {
  const auto status = read_file(fmt::format("/proc/{}/status", pid), kProcFileBytesMax);
  if (!status) return 0;
  const size_t at = status->find("\nNSpid:");
  if (at == std::string::npos) return 0;
  std::istringstream numbers(status->substr(at + 7, status->find('\n', at + 1) - at - 7));
  std::vector<int> pids;
  for (int number = 0; numbers >> number;) pids.push_back(number);
  return pids.size() > 1 ? pids.back() : 0;
}

}  // namespace

std::optional<int> rank_of_process(pid_t pid) {
  const auto text = read_file(fmt::format("/proc/{}/environ", pid), kProcFileBytesMax);
  if (!text) return std::nullopt;
  constexpr std::string_view kName = "RANK=";
  std::string_view rest = *text;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    if (!item.starts_with(kName)) continue;
    int rank = -1;
    const char* const end = item.data() + item.size();
    const auto [stopped, failed] = std::from_chars(item.data() + kName.size(), end, rank);
    if (failed == std::errc() && stopped == end && rank >= 0 && rank <= kRankMax) return rank;
  }
  return std::nullopt;
}

Result<HostProcesses> host_processes(const std::string& host_dir) {
  const jobs::HostFolder folder{host_dir};
  YARD_ASSIGN(const std::string text, read_file(folder.status()));
  YARD_ASSIGN(const Json json, parse_json(text, folder.status()));
  YARD_ASSIGN(const auto status, jobs::host_status_from_json(json, folder.status()));
  const host::ProcessId supervisor{status.supervisor_pid, status.supervisor_start_ticks};
  if (status.phase == jobs::HostPhase::kEnded || !host::is_alive(supervisor))
    return Error{Code::kNotFound, host_dir + ": no supervisor runs here"};
  HostProcesses found{.supervisor = supervisor, .inside = {}};
  YARD_ASSIGN(const TreeUsage tree, read_tree_usage(supervisor.pid));
  for (const ProcessUsage& process : tree.processes) {
    const int inner_pid = inner_pid_of(process.pid);
    if (inner_pid > 0)
      found.inside.push_back({process.pid, inner_pid, rank_of_process(process.pid)});
  }
  return found;
}

std::optional<HostProcess> program_of(const HostProcesses& host) {
  for (const HostProcess& process : host.inside)
    if (process.inner_pid > 1) return process;
  return std::nullopt;
}

std::optional<HostProcess> process_of_rank(const HostProcesses& host, int rank) {
  for (const HostProcess& process : host.inside)
    if (process.inner_pid > 1 && process.rank == rank) return process;
  const bool has_ranks = std::ranges::any_of(
      host.inside, [](const HostProcess& process) { return process.rank.has_value(); });
  return rank == 0 && !has_ranks ? program_of(host) : std::nullopt;
}

}  // namespace yard::observe
