#include "observe/host_usage.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "observe/host_processes.h"
#include "telemetry/process_usage.h"

namespace yard::observe {
namespace {

double used_percent(const std::string& folder) {
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0 || status.f_blocks == 0) return 0;
  return 100.0 * static_cast<double>(status.f_blocks - status.f_bfree) /
         static_cast<double>(status.f_blocks);
}

double memory_of_machine() {
  return static_cast<double>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<double>(::sysconf(_SC_PAGE_SIZE));
}

// Counters go back when a process ends that was counted.
double rate(uint64_t now, uint64_t before, double seconds) {
  return now > before ? static_cast<double>(now - before) / seconds : 0;
}

}  // namespace

// A process is asked for its rank once: what it answers never changes.
void UsageMeter::add_ranks(const TreeUsage& tree, Look& look, HostUsage& usage) {
  std::map<int, std::optional<int>> rank_of_pid;
  std::map<int, RankUsage> ranks;
  for (const ProcessUsage& process : tree.processes) {
    const auto known = rank_of_pid_.find(process.pid);
    const auto rank =
        known != rank_of_pid_.end() && known->second ? known->second : rank_of_process(process.pid);
    rank_of_pid[process.pid] = rank;
    if (!rank) continue;
    look.cpu_s_of_rank[*rank] += process.cpu_s;
    RankUsage& sum = ranks[*rank];
    sum.rank = *rank;
    sum.memory_bytes += static_cast<double>(process.memory_bytes);
  }
  rank_of_pid_ = std::move(rank_of_pid);
  for (auto& [rank, sum] : ranks) usage.ranks.push_back(sum);
}

Result<std::optional<HostUsage>> UsageMeter::look(int supervisor_pid, const std::string& folder,
                                                  double memory_limit_bytes, const Clock& clock) {
  YARD_ASSIGN(const TreeUsage tree, read_tree_usage(supervisor_pid));
  Look now{.pid = supervisor_pid, .t = clock.now(), .cpu_s = tree.cpu_s};
  now.read = tree.read_bytes;
  now.written = tree.written_bytes;
  // The sandbox has a network of its own where the machine allows it: ask the last process.
  if (const auto network = read_network_usage(tree.processes.back().pid)) {
    now.received = network->received_bytes;
    now.sent = network->sent_bytes;
  }
  HostUsage usage;
  add_ranks(tree, now, usage);
  const auto before = std::exchange(before_, now);
  if (!before || before->pid != now.pid) return std::optional<HostUsage>();
  const double seconds = std::chrono::duration<double>(now.t - before->t).count();
  if (seconds <= 0) return std::optional<HostUsage>();
  for (RankUsage& rank : usage.ranks) {
    const auto earlier = before->cpu_s_of_rank.find(rank.rank);
    if (earlier == before->cpu_s_of_rank.end()) continue;
    rank.cpu_percent =
        std::max(0.0, 100 * (now.cpu_s_of_rank[rank.rank] - earlier->second) / seconds);
  }
  usage.cpu_percent = std::max(0.0, 100 * (now.cpu_s - before->cpu_s) / seconds);
  usage.memory_bytes = static_cast<double>(tree.memory_bytes + tree.shared_bytes_max);
  usage.memory_percent = 100 * usage.memory_bytes /
                         (memory_limit_bytes > 0 ? memory_limit_bytes : memory_of_machine());
  usage.disk_percent = used_percent(folder);
  usage.received_bytes_per_second = rate(now.received, before->received, seconds);
  usage.sent_bytes_per_second = rate(now.sent, before->sent, seconds);
  usage.read_bytes_per_second = rate(now.read, before->read, seconds);
  usage.written_bytes_per_second = rate(now.written, before->written, seconds);
  usage.process_count = tree.processes.size();
  return std::optional(usage);
}

}  // namespace yard::observe
