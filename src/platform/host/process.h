// Processes that are not our children: who they are, and whether they still live.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace yard::host {

// A number alone may by now belong to somebody else; together with its start it does not.
struct ProcessId {
  int pid = 0;
  uint64_t start_ticks = 0;  // since the boot, field 22 of /proc/PID/stat
  bool operator==(const ProcessId&) const = default;
};

// nullopt: no such process, or it has ended and only waits to be reaped.
std::optional<ProcessId> identify(int pid);
ProcessId identify_self();
bool is_alive(const ProcessId& process);

// Ends with SIGKILL every process of this user that was started for the job in `job_dir` (its
// environment says so), but neither ourselves nor those that we descend from. For a job whose
// supervisor vanished: its ranks died with it, what they had started did not. Returns how many.
int kill_leftovers(const std::string& job_dir);

}  // namespace yard::host
