#include "pipeline/pipeline_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "pipeline/pipeline_document.h"

namespace yard::pipeline {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kHostCountMax = 1024;
constexpr int64_t kRanksPerHostMax = 64;
constexpr int64_t kRetriesMax = 100;
constexpr int64_t kRuntimeMax_s = 28 * 86'400;
constexpr size_t kStepNameBytesMax = 24;  // what is left of a job's name
// A role is asked for by the API and means nothing to this platform.
constexpr std::string_view kAnyRole = "arn:aws:iam::123456789012:role/trainyard";
constexpr std::string_view kAnyImage = "trainyard";
constexpr std::string_view kAnyInstance = "ml.m5.large";

Error wrong(std::string_view what, std::string_view problem) {
  return {Code::kInvalidArgument, fmt::format("{}: {}", what, problem)};
}

// As names of jobs have it.
bool is_name(std::string_view text) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  return !text.empty() && text.size() <= kStepNameBytesMax && is_letter(text.front()) &&
         is_letter(text.back()) &&
         std::ranges::all_of(text, [&](char c) { return is_letter(c) || c == '-'; });
}

Status check_name(std::string_view name, std::string_view what) {
  if (is_name(name)) return Ok{};
  return wrong(what, fmt::format("'name': '{}' is not 1 to {} letters, digits and inner hyphens",
                                 name, kStepNameBytesMax));
}

Status check_s3(const std::string& url, std::string_view key, std::string_view what) {
  if (url.starts_with("s3://") && url.size() > 5 && url[5] != '/') return Ok{};
  return wrong(what, fmt::format("'{}': '{}' is not of the form s3://BUCKET/PREFIX", key, url));
}

Result<int64_t> whole(const Json& json, const char* key, int64_t fallback, int64_t min, int64_t max,
                      std::string_view what) {
  YARD_ASSIGN(const int64_t value, json_field_or<int64_t>(json, key, fallback, what));
  if (value < min || value > max)
    return wrong(what, fmt::format("'{}' is not from {} to {}", key, min, max));
  return value;
}

std::string text_of_value(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// "key: value" of plain values, as texts.
Result<std::map<std::string, std::string>> texts(const Json& json, const char* key,
                                                 std::string_view what) {
  std::map<std::string, std::string> map;
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return map;
  if (!found->is_object()) return wrong(what, fmt::format("'{}' is not a map of names", key));
  for (const auto& [name, value] : found->items()) {
    if (value.is_structured())
      return wrong(what, fmt::format("'{}.{}' is not a plain value", key, name));
    map[name] = text_of_value(value);
  }
  return map;
}

Result<std::map<std::string, std::string>> urls(const Json& json, const char* key,
                                                std::string_view what) {
  YARD_ASSIGN(auto map, texts(json, key, what));
  for (const auto& [name, url] : map) {
    YARD_TRY(check_s3(url, fmt::format("{}.{}", key, name), what));
    if (!is_name(name)) return wrong(what, fmt::format("'{}': '{}' is no name", key, name));
  }
  return map;
}

// A word, or several.
Result<std::vector<std::string>> words(const Json& json, const char* key, std::string_view what) {
  if (const auto found = json.find(key); found != json.end() && found->is_string())
    return std::vector<std::string>{found->get<std::string>()};
  return json_field_or(json, key, std::vector<std::string>(), what);
}

Result<StepKind> kind_of(const Json& json, std::string_view what) {
  std::vector<StepKind> kinds;
  for (const StepKind kind : {StepKind::kPrep, StepKind::kProcess, StepKind::kTrain})
    if (json.contains(to_string(kind))) kinds.push_back(kind);
  if (kinds.size() != 1)
    return wrong(what,
                 "a step has one of 'prep' (a spec), 'process' (a command) and 'train' "
                 "(a recipe)");
  return kinds.front();
}

std::vector<std::string_view> known_keys(StepKind kind) {
  std::vector<std::string_view> keys = {
      "name",          "needs",   "image",       "instance_type", "hosts", "price_per_host_hour",
      "max_runtime_s", "retries", "environment", to_string(kind)};
  if (kind == StepKind::kProcess) keys.insert(keys.end(), {"inputs", "outputs"});
  if (kind == StepKind::kTrain)
    keys.insert(keys.end(),
                {"inputs", "until", "ranks_per_host", "input_mode", "checkpoints_kept", "set"});
  return keys;
}

Status read_train(const Json& json, const std::string& what, PipelineStep& step) {
  YARD_ASSIGN(step.until, json_field_or<std::string>(json, "until", "", what));
  YARD_ASSIGN(const int64_t ranks, whole(json, "ranks_per_host", 1, 1, kRanksPerHostMax, what));
  step.ranks_per_host = static_cast<int>(ranks);
  YARD_ASSIGN(step.input_mode, json_field_or<std::string>(json, "input_mode", "File", what));
  if (step.input_mode != "File" && step.input_mode != "FastFile")
    return wrong(what,
                 fmt::format("'input_mode': '{}' is neither File nor FastFile", step.input_mode));
  YARD_ASSIGN(const int64_t kept, whole(json, "checkpoints_kept", 2, 0, 1'000'000, what));
  step.checkpoints_kept = static_cast<int>(kept);
  YARD_ASSIGN(const auto values, texts(json, "set", what));
  for (const auto& [key, value] : values) step.overrides.push_back(key + "=" + value);
  return Ok{};
}

Status read_work(const Json& json, const std::string& what, const std::string& dir,
                 PipelineStep& step) {
  const std::string key(to_string(step.kind));
  if (step.kind == StepKind::kProcess) {
    YARD_ASSIGN(step.command, json_field<std::vector<std::string>>(json, key, what));
    if (step.command.empty()) return wrong(what, "'process': the command is empty");
    YARD_ASSIGN(step.outputs, urls(json, "outputs", what));
  } else {
    YARD_ASSIGN(const auto file, json_field<std::string>(json, key, what));
    if (file.empty()) return wrong(what, fmt::format("'{}' names no file", key));
    step.file = (fs::path(dir) / file).lexically_normal();
  }
  YARD_ASSIGN(step.inputs, urls(json, "inputs", what));
  return step.kind == StepKind::kTrain ? read_train(json, what, step) : Status(Ok{});
}

struct Defaults {
  std::string image;
  std::string instance_type;
  double price_per_host_hour = 0;
};

Status read_hosts(const Json& json, const std::string& what, const Defaults& defaults,
                  PipelineStep& step) {
  YARD_ASSIGN(step.image, json_field_or(json, "image", defaults.image, what));
  YARD_ASSIGN(step.instance_type,
              json_field_or(json, "instance_type", defaults.instance_type, what));
  YARD_ASSIGN(step.price_per_host_hour,
              json_field_or(json, "price_per_host_hour", defaults.price_per_host_hour, what));
  if (!(step.price_per_host_hour >= 0)) return wrong(what, "'price_per_host_hour' is below 0");
  YARD_ASSIGN(const int64_t hosts, whole(json, "hosts", 1, 1, kHostCountMax, what));
  step.host_count = static_cast<int>(hosts);
  if (step.kind == StepKind::kProcess && hosts != 1)
    return wrong(what, "'hosts': a 'process' step has one host");
  YARD_ASSIGN(step.max_runtime_s,
              whole(json, "max_runtime_s", step.max_runtime_s, 1, kRuntimeMax_s, what));
  YARD_ASSIGN(const int64_t retries, whole(json, "retries", step.retries, 0, kRetriesMax, what));
  step.retries = static_cast<int>(retries);
  YARD_ASSIGN(step.environment, texts(json, "environment", what));
  return Ok{};
}

Status check_needs(const PipelineStep& step, const std::vector<PipelineStep>& earlier,
                   const std::string& what) {
  for (const std::string& need : step.needs)
    if (std::ranges::find(earlier, need, &PipelineStep::name) == earlier.end())
      return wrong(what, fmt::format("'needs': no earlier step has the name '{}'", need));
  return Ok{};
}

Result<PipelineStep> read_step(const Json& json, const std::string& where, size_t index,
                               const std::string& dir, const Defaults& defaults) {
  const std::string place = fmt::format("{}: steps.{}", where, index);
  PipelineStep step;
  YARD_ASSIGN(step.name, json_field<std::string>(json, "name", place));
  YARD_TRY(check_name(step.name, place));
  const std::string what = fmt::format("{}: steps.{}", where, step.name);
  YARD_ASSIGN(step.kind, kind_of(json, what));
  YARD_TRY(refuse_unknown_keys(json, known_keys(step.kind), what));
  YARD_ASSIGN(step.needs, words(json, "needs", what));
  YARD_TRY(read_hosts(json, what, defaults, step));
  YARD_TRY(read_work(json, what, dir, step));
  return step;
}

}  // namespace

std::string_view to_string(StepKind kind) {
  switch (kind) {
    case StepKind::kPrep:
      return "prep";
    case StepKind::kProcess:
      return "process";
    case StepKind::kTrain:
      return "train";
  }
  YARD_UNREACHABLE();
}

const PipelineStep* PipelineSpec::find(std::string_view step_name) const {
  const auto found = std::ranges::find(steps, step_name, &PipelineStep::name);
  return found == steps.end() ? nullptr : &*found;
}

const PipelineStep* PipelineSpec::resumed_by(const PipelineStep& step) const {
  // Breadth first: what the step itself names comes before what lies further back.
  std::vector<std::string> wave = step.needs;
  std::set<std::string> seen;
  while (!wave.empty()) {
    std::vector<std::string> next;
    for (const std::string& name : wave) {
      const PipelineStep* earlier = find(name);
      if (earlier == nullptr || !seen.insert(name).second) continue;
      if (earlier->kind == StepKind::kTrain) return earlier;
      next.insert(next.end(), earlier->needs.begin(), earlier->needs.end());
    }
    wave = std::move(next);
  }
  return nullptr;
}

bool is_pipeline(const std::string& yaml) {
  const auto document = json_of_yaml(yaml, "file");
  return document && document->is_object() && document->contains("steps");
}

Result<PipelineSpec> parse_pipeline(const std::string& yaml, const std::string& what,
                                    const std::string& dir,
                                    const std::vector<std::string>& overrides) {
  YARD_ASSIGN(Json document, json_of_yaml(yaml, what));
  for (const std::string& assignment : overrides) YARD_TRY(set_value(document, assignment));
  YARD_TRY(refuse_unknown_keys(
      document, {"name", "store", "role", "image", "instance_type", "price_per_host_hour", "steps"},
      what));
  PipelineSpec spec;
  YARD_ASSIGN(spec.name, json_field_or<std::string>(document, "name", fs::path(what).stem(), what));
  YARD_TRY(check_name(spec.name, what));
  YARD_ASSIGN(spec.store, json_field<std::string>(document, "store", what));
  YARD_TRY(check_s3(spec.store, "store", what));
  while (spec.store.ends_with('/')) spec.store.pop_back();
  YARD_ASSIGN(spec.role, json_field_or(document, "role", std::string(kAnyRole), what));
  Defaults defaults;
  YARD_ASSIGN(defaults.image, json_field_or(document, "image", std::string(kAnyImage), what));
  YARD_ASSIGN(defaults.instance_type,
              json_field_or(document, "instance_type", std::string(kAnyInstance), what));
  YARD_ASSIGN(defaults.price_per_host_hour,
              json_field_or(document, "price_per_host_hour", 0.0, what));
  const Json& steps = document["steps"];
  if (!steps.is_array() || steps.empty()) return wrong(what, "'steps' is not a list of steps");
  for (size_t i = 0; i < steps.size(); ++i) {
    YARD_ASSIGN(PipelineStep step, read_step(steps[i], what, i, dir, defaults));
    if (spec.find(step.name) != nullptr)
      return wrong(what, fmt::format("two steps have the name '{}'", step.name));
    YARD_TRY(check_needs(step, spec.steps, fmt::format("{}: steps.{}", what, step.name)));
    spec.steps.push_back(std::move(step));
  }
  return spec;
}

Json identity_of(const PipelineStep& step, const std::string& file_text) {
  return {{"kind", to_string(step.kind)},
          {"needs", step.needs},
          {"command", step.command},
          {"inputs", step.inputs},
          {"outputs", step.outputs},
          {"until", step.until},
          {"set", step.overrides},
          {"environment", step.environment},
          {"file", file_text}};
}

}  // namespace yard::pipeline
