#include "host_memory.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"

namespace {

constexpr const char* kGroupsRoot = "/sys/fs/cgroup";

// The number after `name` (empty: at the begin); nullopt where there is none ("max").
std::optional<uint64_t> number_after(std::string_view text, std::string_view name) {
  const size_t found = text.find(name);
  if (found == std::string_view::npos) return std::nullopt;
  text.remove_prefix(found + name.size());
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  return value;
}

std::optional<uint64_t> number_in(const std::string& path) {
  const auto text = yard::read_file(path);
  return text ? number_after(*text, "") : std::nullopt;
}

// What one group leaves; nullopt without a limit.
std::optional<uint64_t> left_in_group(const std::filesystem::path& group) {
  const auto limit = number_in(group / "memory.max");
  const auto used = number_in(group / "memory.current");
  if (!limit || !used) return std::nullopt;
  return *limit - std::min(*limit, *used);
}

}  // namespace

uint64_t free_host_memory_bytes() {
  uint64_t free = 0;
  if (const auto meminfo = yard::read_file("/proc/meminfo"))
    free = number_after(*meminfo, "MemAvailable:").value_or(0) * 1024;
  const auto groups = yard::read_file("/proc/self/cgroup");
  if (!groups || !groups->starts_with("0::/")) return free;
  std::filesystem::path group = kGroupsRoot + groups->substr(3, groups->find('\n') - 3);
  for (; group.native().size() >= std::string_view(kGroupsRoot).size(); group = group.parent_path())
    if (const auto left = left_in_group(group)) free = free == 0 ? *left : std::min(free, *left);
  return free;
}
