// What the processes of a program that hangs do.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <ranges>
#include <sstream>

#include "base/file.h"
#include "base/subprocess.h"
#include "host/program_guard.h"

namespace yard::host {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kToolTimeout{15};
constexpr uint64_t kTextBytesMax = 256 << 10;  // of each process
constexpr size_t kProcessesMax = 64;
constexpr size_t kThreadsMax = 64;

std::string proc_text(const std::string& path) {
  auto text = read_file(path, 1 << 20);
  if (!text) return {};
  std::ranges::replace(*text, '\0', ' ');
  while (text->ends_with('\n') || text->ends_with(' ')) text->pop_back();
  return *std::move(text);
}

// What it printed; empty when it is not there, failed or took too long.
std::string output_of(const std::vector<std::string>& argv) {
  const UniqueFd out(::memfd_create("trainyard", MFD_CLOEXEC));
  if (!out.valid()) return {};
  SubprocessOptions options;
  options.argv = argv;
  options.env = {{"PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"},
                 {"HOME", "/nonexistent"}};
  options.stdout_fd = options.stderr_fd = out.get();
  auto child = Subprocess::spawn(options);
  if (!child) return {};
  const auto exit = child->wait(kToolTimeout);
  if (!exit || !exit->ok()) return {};
  std::string text(kTextBytesMax, '\0');
  const ssize_t got = ::pread(out.get(), text.data(), text.size(), 0);
  text.resize(size_t(std::max<ssize_t>(got, 0)));
  return text;
}

std::string stack_by_tool(int pid) {
  const std::string number = std::to_string(pid);
  for (const std::vector<std::string>& argv : {
           std::vector<std::string>{"py-spy", "dump", "--native", "--pid", number},
           {"py-spy", "dump", "--pid", number},
           {"eu-stack", "-p", number},
           {"gdb", "-nx", "-q", "-batch", "-iex", "set debuginfod enabled off", "-iex",
            "set auto-load no", "-ex", "thread apply all bt 40", "-p", number},
       })
    if (std::string text = output_of(argv);
        text.find('#') != std::string::npos || text.find("Thread") != std::string::npos)
      return text;
  return {};
}

// Of every thread: what it waits for in the kernel.
void add_kernel_view(int pid, std::vector<std::string>& lines) {
  std::error_code error;
  size_t count = 0;
  for (const auto& task : fs::directory_iterator(fmt::format("/proc/{}/task", pid), error)) {
    if (++count > kThreadsMax) break;
    const std::string base = task.path();
    lines.push_back(fmt::format("  thread {} ({}): waits in {}, system call {}",
                                task.path().filename().string(), proc_text(base + "/comm"),
                                proc_text(base + "/wchan"), proc_text(base + "/syscall")));
    std::istringstream stack(proc_text(base + "/stack"));
    for (std::string line; std::getline(stack, line);) lines.push_back("    " + line);
  }
}

}  // namespace

std::vector<std::string> stacks_of(const std::vector<int>& pids) {
  std::vector<std::string> lines;
  for (const int pid : pids | std::views::take(kProcessesMax)) {
    const std::string base = fmt::format("/proc/{}", pid);
    lines.push_back(
        fmt::format("process {}: {}", pid, proc_text(base + "/cmdline").substr(0, 200)));
    std::istringstream text(stack_by_tool(pid));
    for (std::string line; std::getline(text, line);) lines.push_back("  " + line);
    add_kernel_view(pid, lines);
  }
  return lines;
}

}  // namespace yard::host
