#include "sandbox/memory_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <sstream>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/log.h"

namespace yard::sandbox {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSmallBytesMax = 1 << 20;
constexpr int kRemoveTries = 100;
constexpr std::chrono::milliseconds kRemovePause{10};

// A path of the kernel's: no temporary file beside it.
Status write_value(const std::string& path, std::string_view value) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd.valid() || ::write(fd.get(), value.data(), value.size()) != ssize_t(value.size()))
    return Error{Code::kUnavailable, errno_error(path, errno).message};
  return Ok{};
}

// Of "key N" lines; 0 when it is not there.
uint64_t field_of(const std::string& path, std::string_view key) {
  const auto text = read_file(path, kSmallBytesMax);
  if (!text) return 0;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ' ') continue;
    uint64_t value = 0;
    std::from_chars(line.data() + key.size() + 1, line.data() + line.size(), value);
    return value;
  }
  return 0;
}

std::string group_name(const std::string& id) {
  uint64_t hash = 14695981039346656037ULL;
  for (const unsigned char c : id) hash = (hash ^ c) * 1099511628211ULL;
  return fmt::format("trainyard-{:016x}", hash);
}

std::vector<std::string> words_of(std::string_view line) {
  std::istringstream stream{std::string(line)};
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(std::move(word));
  return words;
}

bool has_option(std::string_view options, std::string_view name) {
  return ("," + std::string(options) + ",").find("," + std::string(name) + ",") !=
         std::string::npos;
}

// Where a group may be made: our own, and those above it, up to the root.
std::vector<std::string> parents_of(const MemoryHierarchy& hierarchy) {
  std::vector<std::string> parents;
  for (fs::path own = hierarchy.own; own.has_relative_path(); own = own.parent_path())
    parents.push_back(hierarchy.root + own.string());
  parents.push_back(hierarchy.root);
  return parents;
}

MemoryHierarchy own_hierarchy() {
  const auto mounts = read_file("/proc/self/mountinfo");
  const auto groups = read_file("/proc/self/cgroup", kSmallBytesMax);
  if (!mounts || !groups) return {};
  return find_memory_hierarchy(*mounts, *groups);
}

Status set_limit(const std::string& path, bool is_v2, uint64_t limit_bytes) {
  const std::string limit = std::to_string(limit_bytes);
  if (!is_v2) {
    YARD_TRY(write_value(path + "/memory.limit_in_bytes", limit));
    // With swap, which not every kernel counts.
    if (const Status set = write_value(path + "/memory.memsw.limit_in_bytes", limit); !set)
      log_info("{}", set.error().message);
    return Ok{};
  }
  YARD_TRY(write_value(path + "/memory.max", limit));
  for (const auto& [name, value] : {std::pair("/memory.swap.max", "0"), {"/memory.oom.group", "1"}})
    if (const Status set = write_value(path + name, value); !set)
      log_info("{}", set.error().message);
  return Ok{};
}

void kill_members(const std::string& path) {
  const auto text = read_file(path + "/cgroup.procs", kSmallBytesMax);
  if (!text) return;
  std::istringstream pids(*text);
  for (int pid = 0; pids >> pid;)
    if (pid > 0) ::kill(pid, SIGKILL);
}

void remove_group(const std::string& path) {
  for (int i = 0; i < kRemoveTries; ++i) {
    if (::rmdir(path.c_str()) == 0 || errno == ENOENT) return;
    kill_members(path);
    std::this_thread::sleep_for(kRemovePause);
  }
  log_warning("{}", errno_error(path, errno).message);
}

}  // namespace

MemoryHierarchy find_memory_hierarchy(std::string_view mountinfo, std::string_view cgroups) {
  MemoryHierarchy v1, v2;
  while (!mountinfo.empty()) {
    const std::string_view line = mountinfo.substr(0, mountinfo.find('\n'));
    mountinfo.remove_prefix(std::min(mountinfo.size(), line.size() + 1));
    const size_t dash = line.find(" - ");
    const auto head = words_of(line.substr(0, dash));
    if (dash == std::string_view::npos || head.size() < 5) continue;
    const auto tail = words_of(line.substr(dash + 3));  // type, source, options
    if (tail.size() < 3) continue;
    if (tail[0] == "cgroup" && has_option(tail[2], "memory")) v1.root = head[4];
    if (tail[0] == "cgroup2") v2.root = head[4];
  }
  while (!cgroups.empty()) {
    const std::string_view line = cgroups.substr(0, cgroups.find('\n'));
    cgroups.remove_prefix(std::min(cgroups.size(), line.size() + 1));
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    if (controllers.empty()) v2.own = line.substr(second + 1);
    if (has_option(controllers, "memory")) v1.own = line.substr(second + 1);
  }
  // A controller that version 1 has is not in version 2.
  v2.is_v2 = true;
  return v1.root.empty() ? v2 : v1;
}

Result<std::unique_ptr<MemoryGroup>> MemoryGroup::make(const std::string& id,
                                                       uint64_t limit_bytes) {
  clean(id);
  const MemoryHierarchy hierarchy = own_hierarchy();
  Error error{Code::kUnavailable, "no control groups for memory"};
  if (hierarchy.root.empty()) return error;
  const std::string limit_file = hierarchy.is_v2 ? "/memory.max" : "/memory.limit_in_bytes";
  for (const std::string& parent : parents_of(hierarchy)) {
    const std::string path = parent + "/" + group_name(id);
    if (hierarchy.is_v2)
      if (const Status given = write_value(parent + "/cgroup.subtree_control", "+memory"); !given)
        error.message = given.error().message;
    if (::mkdir(path.c_str(), 0755) != 0) {
      error.message = errno_error(path, errno).message;
      continue;
    }
    std::unique_ptr<MemoryGroup> group(new MemoryGroup(path, hierarchy.is_v2));
    if (::access((path + limit_file).c_str(), W_OK) != 0) continue;
    const Status set = set_limit(path, hierarchy.is_v2, limit_bytes);
    if (set) return group;
    error = set.error();
  }
  return error;
}

MemoryGroup::~MemoryGroup() {
  remove_group(path_);
}

uint64_t MemoryGroup::kill_count() const {
  return field_of(path_ + (is_v2_ ? "/memory.events" : "/memory.oom_control"), "oom_kill");
}

uint64_t MemoryGroup::used_bytes() const {
  const auto text =
      read_file(path_ + (is_v2_ ? "/memory.current" : "/memory.usage_in_bytes"), kSmallBytesMax);
  uint64_t value = 0;
  if (text) std::from_chars(text->data(), text->data() + text->size(), value);
  return value;
}

void MemoryGroup::clean(const std::string& id) {
  const MemoryHierarchy hierarchy = own_hierarchy();
  if (hierarchy.root.empty()) return;
  for (const std::string& parent : parents_of(hierarchy))
    if (const std::string path = parent + "/" + group_name(id); ::access(path.c_str(), F_OK) == 0)
      remove_group(path);
}

}  // namespace yard::sandbox
