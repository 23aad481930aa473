#include "engine/platform_config.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>

#include "base/units.h"
#include "engine/yaml_internal.h"

namespace yard::engine {
namespace {

using internal::check_keys;
using internal::read_field;
using jobs::InstanceShape;

constexpr int64_t kSlicesMax = 4096;
constexpr int64_t kRetryCountMax = 1000;

Error wrong(std::string_view what, std::string_view problem) {
  return {Code::kInvalidArgument, fmt::format("{}: {}", what, problem)};
}

Status read_count(const YAML::Node& node, const char* key, int& out, int64_t min, int64_t max,
                  std::string_view what) {
  int64_t value = out;
  YARD_TRY(read_field(node, key, value, what));
  if (value < min || value > max)
    return wrong(what, fmt::format("'{}' is not from {} to {}", key, min, max));
  out = static_cast<int>(value);
  return Ok{};
}

Status read_amount(const YAML::Node& node, const char* key, double& out, std::string_view what) {
  YARD_TRY(read_field(node, key, out, what));
  if (!(out >= 0 && out <= 1e15)) return wrong(what, fmt::format("'{}' is below 0", key));
  return Ok{};
}

Status read_size(const YAML::Node& node, const char* key, uint64_t& out, std::string_view what) {
  std::string text;
  YARD_TRY(read_field(node, key, text, what));
  if (text.empty()) return Ok{};
  auto size = parse_size_bytes(text);
  if (!size) return std::move(size).error().while_(fmt::format("{}: '{}'", what, key));
  out = *size;
  return Ok{};
}

Status check_list(const YAML::Node& node, std::string_view key, std::string_view what) {
  if (node && !node.IsSequence()) return wrong(what, fmt::format("'{}' is not a list", key));
  return Ok{};
}

// `type` has been read; a type of its own is exclusive unless it says otherwise.
Status read_shape(const YAML::Node& node, std::string_view what, InstanceShape& shape) {
  const int cores_max = 1 << 20;
  YARD_TRY(read_count(node, "cores", shape.core_count, 0, cores_max, what));
  YARD_TRY(read_count(node, "gpus", shape.gpu_count, -1, cores_max, what));
  YARD_TRY(read_size(node, "memory", shape.memory_bytes, what));
  YARD_TRY(read_amount(node, "price_per_hour", shape.price_per_hour, what));
  YARD_TRY(read_field(node, "shared", shape.is_shared, what));
  return read_count(node, "max", shape.slice_count_max, 0, kSlicesMax, what);
}

Status check_shape(const InstanceShape& shape, const jobs::SliceConfig& slices,
                   std::string_view what) {
  const auto cores = static_cast<int>(slices.machine_cores.size());
  const auto gpus = static_cast<int>(slices.machine_gpus.size());
  if (shape.core_count > cores)
    return wrong(what, fmt::format("'{}' has {} cores, this machine has {} for us", shape.type,
                                   shape.core_count, cores));
  if (shape.gpu_count > gpus)
    return wrong(what, fmt::format("'{}' has {} GPUs, this machine has {}", shape.type,
                                   shape.gpu_count, gpus));
  return Ok{};
}

Status read_instance_types(const YAML::Node& document, std::string_view what,
                           jobs::SliceConfig& slices) {
  const YAML::Node types = document["instance_types"];
  YARD_TRY(check_list(types, "instance_types", what));
  const std::string inner = fmt::format("{}: instance_types", what);
  for (const auto& node : types) {
    YARD_TRY(check_keys(
        node, {"type", "cores", "gpus", "memory", "price_per_hour", "shared", "max"}, inner));
    InstanceShape shape{.type = "", .gpu_count = 0, .is_shared = false};
    YARD_TRY(read_field(node, "type", shape.type, inner));
    if (shape.type.empty()) return wrong(inner, "'type' is missing");
    if (std::ranges::find(slices.shapes, shape.type, &InstanceShape::type) != slices.shapes.end())
      return wrong(inner, fmt::format("'{}' is given twice", shape.type));
    YARD_TRY(read_shape(node, inner, shape));
    YARD_TRY(check_shape(shape, slices, inner));
    slices.shapes.push_back(std::move(shape));
  }
  return Ok{};
}

Status read_default_instance(const YAML::Node& document, std::string_view what,
                             jobs::SliceConfig& slices) {
  const YAML::Node node = document["default_instance"];
  if (!node) return Ok{};
  const std::string inner = fmt::format("{}: default_instance", what);
  YARD_TRY(check_keys(node, {"cores", "gpus", "memory", "price_per_hour", "shared", "max"}, inner));
  YARD_TRY(read_shape(node, inner, slices.default_shape));
  return check_shape(slices.default_shape, slices, inner);
}

Status read_slices(const YAML::Node& document, std::string_view what, jobs::SliceConfig& slices) {
  const YAML::Node node = document["slices"];
  if (!node) return Ok{};
  const std::string inner = fmt::format("{}: slices", what);
  YARD_TRY(check_keys(node, {"max", "faulty"}, inner));
  YARD_TRY(read_count(node, "max", slices.slice_count_max, 1, kSlicesMax, inner));
  YARD_TRY(check_list(node["faulty"], "faulty", inner));
  for (const auto& item : node["faulty"]) {
    int number = 0;
    const std::string text = item.IsScalar() ? item.Scalar() : "";
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (failed != std::errc() || end != text.data() + text.size() || number < 1)
      return wrong(inner, "'faulty' is not a list of slice numbers from 1");
    slices.faulty_slices.push_back(number);
  }
  return Ok{};
}

bool is_absolute(const std::string& path) {
  return path.starts_with('/');
}

Status read_images(const YAML::Node& document, std::string_view what, PlatformConfig& config) {
  const YAML::Node images = document["images"];
  YARD_TRY(check_list(images, "images", what));
  const std::string inner = fmt::format("{}: images", what);
  for (const auto& node : images) {
    YARD_TRY(check_keys(node, {"uri", "python", "root"}, inner));
    ImageRule rule;
    YARD_TRY(read_field(node, "uri", rule.uri_pattern, inner));
    YARD_TRY(read_field(node, "python", rule.runtime.python, inner));
    YARD_TRY(read_field(node, "root", rule.runtime.root, inner));
    if (rule.uri_pattern.empty()) return wrong(inner, "'uri' is missing");
    const std::string& path = rule.runtime.python.empty() ? rule.runtime.root : rule.runtime.python;
    if (rule.runtime.python.empty() == rule.runtime.root.empty() || !is_absolute(path))
      return wrong(inner, fmt::format("'{}' needs one of 'python' and 'root', an absolute path",
                                      rule.uri_pattern));
    config.images.push_back(std::move(rule));
  }
  return Ok{};
}

Status read_file_systems(const YAML::Node& document, std::string_view what,
                         PlatformConfig& config) {
  const YAML::Node node = document["file_systems"];
  if (!node) return Ok{};
  if (!node.IsMap()) return wrong(what, "'file_systems' is not a list of 'id: folder'");
  for (const auto& item : node) {
    const bool good = item.first.IsScalar() && item.second.IsScalar();
    const std::string folder = good ? item.second.Scalar() : "";
    if (!is_absolute(folder))
      return wrong(what, "'file_systems' is not a list of 'id: folder' with absolute folders");
    config.file_systems[item.first.Scalar()] = folder;
  }
  return Ok{};
}

Status read_retries(const YAML::Node& document, std::string_view what, PlatformConfig& config) {
  const YAML::Node node = document["retries"];
  if (!node) return Ok{};
  const std::string inner = fmt::format("{}: retries", what);
  std::vector<std::string_view> names;
  for (size_t i = 0; i < jobs::kFaultCauseCount; ++i)
    names.push_back(to_string(static_cast<jobs::FaultCause>(i)));
  YARD_TRY(check_keys(node, names, inner));
  for (size_t i = 0; i < jobs::kFaultCauseCount; ++i)
    YARD_TRY(
        read_count(node, names[i].data(), config.retries.by_cause[i], 0, kRetryCountMax, inner));
  return Ok{};
}

Status read_health(const YAML::Node& document, std::string_view what, jobs::PlanHealth& health) {
  const YAML::Node node = document["health"];
  if (!node) return Ok{};
  const std::string inner = fmt::format("{}: health", what);
  YARD_TRY(check_keys(node,
                      {"cpu_gflops_min", "memory_bytes_per_second_min", "disk_bytes_per_second_min",
                       "free_bytes_min", "clock_skew_s_max", "collective_bytes_per_second_min"},
                      inner));
  YARD_TRY(read_amount(node, "cpu_gflops_min", health.cpu_gflops_min, inner));
  YARD_TRY(
      read_amount(node, "memory_bytes_per_second_min", health.memory_bytes_per_second_min, inner));
  YARD_TRY(read_amount(node, "disk_bytes_per_second_min", health.disk_bytes_per_second_min, inner));
  YARD_TRY(read_amount(node, "clock_skew_s_max", health.clock_skew_s_max, inner));
  YARD_TRY(read_amount(node, "collective_bytes_per_second_min",
                       health.collective_bytes_per_second_min, inner));
  return read_size(node, "free_bytes_min", health.free_bytes_min, inner);
}

Status read_network(const YAML::Node& document, std::string_view what, PlatformConfig& config) {
  std::string word = "auto";
  YARD_TRY(read_field(document, "network", word, what));
  if (word == "own")
    config.network = jobs::PlanNetwork::kOwn;
  else if (word == "shared")
    config.network = jobs::PlanNetwork::kShared;
  else if (word != "auto")
    return wrong(what, "'network' is none of auto, own, shared");
  return Ok{};
}

}  // namespace

// Backtracks to the last star only: linear in practice, quadratic at worst.
bool fits_pattern(std::string_view pattern, std::string_view text) {
  size_t p = 0;
  size_t t = 0;
  size_t star = std::string_view::npos;
  size_t after_star_t = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after_star_t = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++after_star_t;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

Result<jobs::PlanRuntime> runtime_of_image(const PlatformConfig& config, std::string_view image,
                                           const std::string& default_python) {
  for (const auto& rule : config.images)
    if (fits_pattern(rule.uri_pattern, image)) return rule.runtime;
  if (!default_python.empty()) return jobs::PlanRuntime{.python = default_python, .root = ""};
  return Error{Code::kInvalidArgument,
               fmt::format("no rule under 'images' in yard.yaml fits '{}'", image)};
}

std::vector<int> gpus_of_this_machine() {
  constexpr int kGpuNumberMax = 64;
  std::vector<int> gpus;
  for (int gpu = 0; gpu < kGpuNumberMax; ++gpu)
    if (::access(fmt::format("/dev/nvidia{}", gpu).c_str(), F_OK) == 0) gpus.push_back(gpu);
  return gpus;
}

Result<PlatformConfig> internal::parse_platform_config(const YAML::Node& document,
                                                       std::string_view what,
                                                       const std::vector<int>& machine_cores) {
  PlatformConfig config;
  config.slices.machine_cores = machine_cores;
  config.slices.machine_gpus = gpus_of_this_machine();
  config.slices.machine_memory_bytes = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                                       static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  if (document.IsNull()) return config;
  YARD_TRY(read_slices(document, what, config.slices));
  YARD_TRY(read_instance_types(document, what, config.slices));
  YARD_TRY(read_default_instance(document, what, config.slices));
  YARD_TRY(read_images(document, what, config));
  YARD_TRY(read_file_systems(document, what, config));
  YARD_TRY(read_retries(document, what, config));
  YARD_TRY(read_health(document, what, config.health));
  YARD_TRY(read_network(document, what, config));
  YARD_TRY(read_amount(document, "hang_after_s", config.hang_after_s, what));
  YARD_TRY(read_amount(document, "hang_after_steps", config.hang_after_steps, what));
  YARD_TRY(read_amount(document, "stop_grace_s", config.stop_grace_s, what));
  return config;
}

}  // namespace yard::engine
