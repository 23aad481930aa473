#include "engine/home_config.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "base/file.h"
#include "engine/yaml_internal.h"

namespace yard::engine {
namespace {

constexpr int kCoreNumberMax = CPU_SETSIZE - 1;

Error bad_list(std::string_view text) {
  return {Code::kInvalidArgument, fmt::format("'{}' is not a list of cores like 0-3,8", text)};
}

Result<int> parse_core(std::string_view text, std::string_view whole) {
  int core = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), core);
  if (failed != std::errc() || end != text.data() + text.size() || core < 0 ||
      core > kCoreNumberMax) {
    return bad_list(whole);
  }
  return core;
}

Result<Host> parse_host(const YAML::Node& node, std::string_view what) {
  YARD_TRY(internal::check_keys(node, {"name", "cores"}, what));
  Host host;
  host.address = "127.0.0.1";
  std::string cores;
  YARD_TRY(internal::read_field(node, "name", host.name, what));
  YARD_TRY(internal::read_field(node, "cores", cores, what));
  if (host.name.empty())
    return Error{Code::kInvalidArgument, fmt::format("{}: 'name' is missing", what)};
  auto parsed = parse_core_list(cores);
  if (!parsed) return std::move(parsed).error().while_(fmt::format("{}: 'cores'", what));
  host.cores = *std::move(parsed);
  return host;
}

Status check_hosts(const std::vector<Host>& hosts, std::string_view what,
                   const std::vector<int>& machine_cores) {
  std::set<std::string> names;
  std::set<int> taken;
  for (const Host& host : hosts) {
    if (!names.insert(host.name).second)
      return Error{Code::kInvalidArgument, fmt::format("{}: two hosts '{}'", what, host.name)};
    for (const int core : host.cores) {
      if (std::ranges::find(machine_cores, core) == machine_cores.end())
        return Error{Code::kInvalidArgument,
                     fmt::format("{}: host '{}': this machine has no core {} for us", what,
                                 host.name, core)};
      if (!taken.insert(core).second)
        return Error{Code::kInvalidArgument,
                     fmt::format("{}: host '{}': core {} is given twice", what, host.name, core)};
    }
  }
  return Ok{};
}

}  // namespace

Result<std::vector<int>> parse_core_list(std::string_view text) {
  std::vector<int> cores;
  for (std::string_view rest = text; !rest.empty() || cores.empty();) {
    const auto comma = rest.find(',');
    const auto item = rest.substr(0, comma);
    const auto dash = item.find('-');
    YARD_ASSIGN(const int first, parse_core(item.substr(0, dash), text));
    int last = first;
    if (dash != std::string_view::npos) {
      YARD_ASSIGN(last, parse_core(item.substr(dash + 1), text));
    }
    if (last < first || (!cores.empty() && first <= cores.back())) return bad_list(text);
    for (int core = first; core <= last; ++core) cores.push_back(core);
    if (comma == std::string_view::npos) return cores;
    rest.remove_prefix(comma + 1);
    if (rest.empty()) return bad_list(text);
  }
  return cores;
}

std::vector<int> cores_of_this_machine() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

Result<HomeConfig> parse_home_config(const std::string& text, std::string_view what,
                                     const std::vector<int>& machine_cores) {
  YARD_ASSIGN(const YAML::Node document, internal::parse_yaml(text, what));
  HomeConfig config;
  if (!document.IsNull()) {
    std::vector<std::string_view> known = {"hosts"};
    known.insert(known.end(), kPlatformKeys.begin(), kPlatformKeys.end());
    YARD_TRY(internal::check_keys(document, known, what));
    const YAML::Node hosts = document["hosts"];
    if (hosts && (!hosts.IsSequence() || hosts.size() == 0))
      return Error{Code::kInvalidArgument, fmt::format("{}: 'hosts' is not a list", what)};
    for (const auto& node : hosts) {
      YARD_ASSIGN(Host host, parse_host(node, fmt::format("{}: hosts", what)));
      config.hosts.push_back(std::move(host));
    }
  }
  YARD_ASSIGN(config.platform, internal::parse_platform_config(document, what, machine_cores));
  YARD_TRY(check_hosts(config.hosts, what, machine_cores));
  if (config.hosts.empty()) config.hosts.push_back({"local", "127.0.0.1", machine_cores});
  return config;
}

Result<HomeConfig> load_home_config(const std::string& path,
                                    const std::vector<int>& machine_cores) {
  auto text = read_file(path, uint64_t{1} << 20);
  if (text) return parse_home_config(*text, path, machine_cores);
  if (text.error().code != Code::kNotFound) return std::move(text).error();
  return parse_home_config("", path, machine_cores);
}

}  // namespace yard::engine
