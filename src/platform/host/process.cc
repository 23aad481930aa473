#include "host/process.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <sstream>

#include "base/file.h"

namespace yard::host {
namespace {

constexpr uint64_t kProcFileBytesMax = uint64_t{4} << 20;

struct Stat {
  char state = 'X';
  int parent = 0;
  uint64_t start_ticks = 0;
};

// proc(5): the name stands in brackets and may hold spaces and brackets itself, so the fields are
// counted from the last bracket: state is the third, the parent the fourth, the start the 22nd.
std::optional<Stat> read_stat(int pid) {
  const auto text = read_file("/proc/" + std::to_string(pid) + "/stat", kProcFileBytesMax);
  if (!text) return std::nullopt;
  const auto bracket = text->rfind(')');
  if (bracket == std::string::npos) return std::nullopt;
  std::istringstream fields(text->substr(bracket + 1));
  Stat stat;
  std::string skipped;
  fields >> stat.state >> stat.parent;
  for (int field = 5; field < 22; ++field) fields >> skipped;
  fields >> stat.start_ticks;
  if (!fields) return std::nullopt;
  return stat;
}

std::vector<int> self_and_ancestors() {
  std::vector<int> pids;
  constexpr size_t kDepthMax = 1000;
  for (int pid = ::getpid(); pid > 1 && pids.size() < kDepthMax;) {
    pids.push_back(pid);
    const auto stat = read_stat(pid);
    pid = stat ? stat->parent : 0;
  }
  return pids;
}

std::vector<int> all_pids() {
  std::vector<int> pids;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    int pid = 0;
    const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (failed == std::errc() && end == name.data() + name.size()) pids.push_back(pid);
  }
  return pids;
}

bool has_variable(int pid, const std::string& line) {
  // Not readable: another user's, so not of a job of ours.
  const auto env = read_file("/proc/" + std::to_string(pid) + "/environ", kProcFileBytesMax);
  if (!env) return false;
  const std::string wanted = '\0' + line + '\0';
  return ('\0' + *env + '\0').find(wanted) != std::string::npos;
}

}  // namespace

std::optional<ProcessId> identify(int pid) {
  const auto stat = read_stat(pid);
  if (!stat || stat->state == 'Z' || stat->state == 'X') return std::nullopt;
  return ProcessId{pid, stat->start_ticks};
}

ProcessId identify_self() {
  return identify(::getpid()).value_or(ProcessId{::getpid(), 0});
}

bool is_alive(const ProcessId& process) {
  return process.pid > 0 && identify(process.pid) == process;
}

int kill_leftovers(const std::string& job_dir) {
  const std::vector<int> spared = self_and_ancestors();
  int killed_count = 0;
  for (const int pid : all_pids()) {
    if (std::ranges::find(spared, pid) != spared.end()) continue;
    if (has_variable(pid, "YARD_JOB_DIR=" + job_dir) && ::kill(pid, SIGKILL) == 0) ++killed_count;
  }
  return killed_count;
}

}  // namespace yard::host
