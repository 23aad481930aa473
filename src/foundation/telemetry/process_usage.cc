#include "telemetry/process_usage.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

#include "base/file.h"

namespace yard {
namespace {

constexpr uint64_t kProcFileBytesMax = uint64_t{4} << 20;
constexpr size_t kProcessesMax = 100'000;

// "" for what has ended.
std::string read_proc(pid_t pid, std::string_view name) {
  auto text = read_file(fmt::format("/proc/{}/{}", pid, name), kProcFileBytesMax);
  return text ? *std::move(text) : std::string();
}

// "VmRSS:\t  1234 kB" of a text of lines.
uint64_t number_after(std::string_view text, std::string_view name) {
  const size_t at = text.find(name);
  if (at == std::string_view::npos) return 0;
  const size_t digits = text.find_first_of("0123456789", at + name.size());
  uint64_t value = 0;
  if (digits != std::string_view::npos)
    std::from_chars(text.data() + digits, text.data() + text.size(), value);
  return value;
}

struct CpuSeconds {
  double own = 0;
  double waited_for = 0;  // of children that have ended
};

// proc(5): utime, stime, cutime, cstime are fields 14 to 17; the name, field 2, may hold anything.
CpuSeconds read_cpu(pid_t pid) {
  const std::string text = read_proc(pid, "stat");
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  double user = 0, system = 0, children_user = 0, children_system = 0;
  fields >> user >> system >> children_user >> children_system;
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  return {.own = (user + system) / ticks, .waited_for = (children_user + children_system) / ticks};
}

// Those that its other threads forked, too.
std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  std::error_code failed;  // it has ended
  const std::filesystem::directory_iterator threads(fmt::format("/proc/{}/task", pid), failed);
  for (auto thread = begin(threads); !failed && thread != end(threads); thread.increment(failed)) {
    auto text = read_file(thread->path().string() + "/children", kProcFileBytesMax);
    if (!text) continue;
    std::istringstream numbers(*text);
    for (pid_t child = 0; numbers >> child;) children.push_back(child);
  }
  return children;
}

ProcessUsage read_one(pid_t pid, CpuSeconds& cpu) {
  cpu = read_cpu(pid);
  ProcessUsage usage{.pid = pid, .cpu_s = cpu.own};
  const std::string status = read_proc(pid, "status");
  usage.memory_bytes = 1024 * number_after(status, "RssAnon:");
  usage.shared_bytes = 1024 * number_after(status, "RssShmem:");
  usage.resident_bytes = 1024 * number_after(status, "VmRSS:");
  const std::string io = read_proc(pid, "io");
  usage.read_bytes = number_after(io, "\nread_bytes:");
  usage.written_bytes = number_after(io, "\nwrite_bytes:");
  usage.moved_bytes = number_after(io, "rchar:") + number_after(io, "wchar:");
  return usage;
}

}  // namespace

Result<TreeUsage> read_tree_usage(pid_t root) {
  if (read_proc(root, "stat").empty())
    return Error{Code::kNotFound, fmt::format("no process {}", root)};
  TreeUsage tree;
  std::vector<pid_t> waiting{root};
  while (!waiting.empty() && tree.processes.size() < kProcessesMax) {
    const pid_t pid = waiting.back();
    waiting.pop_back();
    CpuSeconds cpu;
    const ProcessUsage usage = read_one(pid, cpu);
    tree.cpu_s += cpu.own + cpu.waited_for;
    tree.memory_bytes += usage.memory_bytes;
    tree.shared_bytes_max = std::max(tree.shared_bytes_max, usage.shared_bytes);
    tree.resident_bytes += usage.resident_bytes;
    tree.read_bytes += usage.read_bytes;
    tree.written_bytes += usage.written_bytes;
    tree.moved_bytes += usage.moved_bytes;
    tree.processes.push_back(usage);
    for (const pid_t child : children_of(pid)) waiting.push_back(child);
  }
  return tree;
}

uint64_t read_proportional_bytes(const TreeUsage& tree) {
  uint64_t sum = 0;
  for (const ProcessUsage& process : tree.processes)
    sum += 1024 * number_after(read_proc(process.pid, "smaps_rollup"), "\nPss:");
  return sum;
}

Result<NetworkUsage> read_network_usage(pid_t pid) {
  YARD_ASSIGN(const std::string text,
              read_file(fmt::format("/proc/{}/net/dev", pid), kProcFileBytesMax));
  NetworkUsage usage;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;  // a heading
    std::istringstream name_in(line.substr(0, colon));
    std::string name;
    name_in >> name;
    if (name == "lo") continue;
    std::istringstream fields(line.substr(colon + 1));
    uint64_t received = 0, sent = 0, skipped = 0;
    fields >> received;
    for (int i = 0; i < 7; ++i) fields >> skipped;
    fields >> sent;
    usage.received_bytes += received;
    usage.sent_bytes += sent;
  }
  return usage;
}

}  // namespace yard
