#include "prep/spec.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "base/nearest_name.h"
#include "base/units.h"
#include "prep/near_duplicates.h"
#include "queue/message_queues.h"

namespace yard::prep {
namespace {

// One map of the document. Fields that are not there leave their default.
class Map {
 public:
  static Result<Map> of(const YAML::Node& node, std::string path,
                        const std::vector<std::string_view>& known) {
    if (!node.IsMap())
      return Error{Code::kInvalidArgument, fmt::format("{}: not a map of keys", path)};
    for (const auto& entry : node) {
      const std::string key = entry.first.Scalar();
      if (std::ranges::find(known, key) == known.end())
        return Error{Code::kInvalidArgument,
                     fmt::format("{}: unknown key '{}'{}", path, key, suggestion(key, known))};
    }
    return Map(node, std::move(path));
  }

  Status get(const char* key, std::string& out) const {
    return read<std::string>(key, "a text", [&](std::string text) -> Status {
      out = std::move(text);
      return Ok{};
    });
  }
  Status get(const char* key, bool& out) const {
    return read<bool>(key, "true or false", [&](bool value) -> Status {
      out = value;
      return Ok{};
    });
  }
  Status get(const char* key, int64_t& out, int64_t min, int64_t max) const {
    return read<int64_t>(key, "a whole number", [&](int64_t value) -> Status {
      if (value < min || value > max)
        return refused(key, fmt::format("{} is not between {} and {}", value, min, max));
      out = value;
      return Ok{};
    });
  }
  Status get(const char* key, double& out) const {
    return read<double>(key, "a number", [&](double value) -> Status {
      if (!(value >= 0)) return refused(key, "it must be 0 or more");
      out = value;
      return Ok{};
    });
  }
  Status get_size(const char* key, uint64_t& out) const {
    return read<std::string>(key, "a size", [&](const std::string& text) -> Status {
      auto size = parse_size_bytes(text);
      if (!size || *size == 0) return refused(key, "no size like 256MiB: '" + text + "'");
      out = *size;
      return Ok{};
    });
  }
  Status get_duration(const char* key, std::chrono::milliseconds& out) const {
    return read<std::string>(key, "a duration", [&](const std::string& text) -> Status {
      auto duration = parse_duration(text);
      if (!duration) return refused(key, "no duration like 30s: '" + text + "'");
      out = *duration;
      return Ok{};
    });
  }
  Status get(const char* key, std::vector<std::string>& out) const {
    return read<std::vector<std::string>>(key, "a list of texts",
                                          [&](std::vector<std::string> list) -> Status {
                                            out = std::move(list);
                                            return Ok{};
                                          });
  }
  // Words out of `known`.
  Status get_words(const char* key, std::vector<std::string>& out,
                   const std::vector<std::string_view>& known) const {
    YARD_TRY(get(key, out));
    for (const std::string& word : out)
      if (std::ranges::find(known, word) == known.end())
        return refused(key, fmt::format("unknown '{}'{}", word, suggestion(word, known)));
    return Ok{};
  }

  YAML::Node child(const char* key) const { return node_[key]; }
  std::string path_of(const char* key) const { return path_ + ": " + key; }
  Error refused(const char* key, std::string_view why) const {
    return {Code::kInvalidArgument, fmt::format("{}: {}", path_of(key), why)};
  }

 private:
  Map(YAML::Node node, std::string path) : node_(std::move(node)), path_(std::move(path)) {}

  template <typename T, typename Take>
  Status read(const char* key, std::string_view wanted, Take take) const {
    const YAML::Node value = node_[key];
    if (!value || value.IsNull()) return Ok{};
    T read_value{};
    if (!YAML::convert<T>::decode(value, read_value))
      return refused(key, fmt::format("it must be {}", wanted));
    return take(std::move(read_value));
  }

  YAML::Node node_;
  std::string path_;
};

Status read_pictures(const Map& map, PictureRules& rules) {
  YARD_TRY(map.get_words("formats", rules.formats, {"jpeg", "png", "webp"}));
  YARD_TRY(map.get("side_min", rules.side_min, 1, 65'535));
  YARD_TRY(map.get("side_max", rules.side_max, 1, 65'535));
  YARD_TRY(map.get("pixels_max", rules.pixels_max, 1, int64_t{1} << 31));
  YARD_TRY(map.get_size("bytes_max", rules.bytes_max));
  YARD_TRY(map.get("aspect_min", rules.aspect_min));
  YARD_TRY(map.get("aspect_max", rules.aspect_max));
  YARD_TRY(map.get("sharpness_min", rules.sharpness_min));
  YARD_TRY(map.get("entropy_min", rules.entropy_min));
  YARD_TRY(map.get("alpha_coverage_min", rules.alpha_coverage_min));
  YARD_TRY(map.get("licences", rules.licences));
  YARD_TRY(map.get("caption_required", rules.caption_required));
  YARD_TRY(map.get_duration("caption_wait", rules.caption_wait));
  YARD_TRY(map.get("keep_duplicates", rules.keep_duplicates));
  int64_t distance = rules.near_duplicate_distance;
  YARD_TRY(map.get("near_duplicate_distance", distance, -1, NearDuplicates::kDistanceMax));
  rules.near_duplicate_distance = int(distance);
  if (rules.side_min > rules.side_max) return map.refused("side_min", "it is above side_max");
  if (rules.aspect_min > rules.aspect_max)
    return map.refused("aspect_min", "it is above aspect_max");
  return Ok{};
}

Status read_encode(const Map& map, EncodeRules& rules) {
  std::string format = "keep";
  YARD_TRY(map.get("format", format));
  if (format == "jpeg")
    rules.format = EncodeFormat::kJpeg;
  else if (format == "png")
    rules.format = EncodeFormat::kPng;
  else if (format != "keep")
    return map.refused("format", fmt::format("unknown '{}' (known: keep, jpeg, png)", format));
  int64_t quality = rules.quality;
  YARD_TRY(map.get("quality", quality, 1, 100));
  rules.quality = int(quality);
  return map.get("side_max", rules.side_max, 0, 65'535);
}

Result<StepSpec> read_step(const YAML::Node& node, const std::string& path) {
  YARD_ASSIGN(const Map map, Map::of(node, path, {"name", "command", "url", "batch", "timeout"}));
  StepSpec step;
  YARD_TRY(map.get("name", step.name));
  if (map.child("command").IsDefined() && map.child("command").IsScalar()) {
    YARD_ASSIGN(step.command, split_command(map.child("command").Scalar()));
  } else {
    YARD_TRY(map.get("command", step.command));
  }
  YARD_TRY(map.get("url", step.url));
  if (step.command.empty() == step.url.empty())
    return map.refused("command", "a step has either a command or a url");
  if (!step.url.empty() && !is_step_url(step.url))
    return map.refused("url", fmt::format("'{}' is neither http:// nor https://", step.url));
  if (step.name.empty()) step.name = step.url.empty() ? step.command.front() : step.url;
  YARD_TRY(map.get("batch", step.batch, 1, 1024));
  YARD_TRY(map.get_duration("timeout", step.timeout));
  if (step.timeout.count() <= 0) return map.refused("timeout", "it must be more than 0");
  return step;
}

Status read_queue(const Map& map, PrepSpec& spec) {
  YARD_TRY(map.get("path", spec.queue_path));
  YARD_TRY(map.get("name", spec.queue_name));
  YARD_TRY(map.get("sqs", spec.queue_sqs));
  YARD_TRY(map.get("notifications", spec.queue_notifications));
  std::chrono::milliseconds visibility = spec.visibility;
  YARD_TRY(map.get_duration("visibility", visibility));
  spec.visibility = std::chrono::duration_cast<std::chrono::seconds>(visibility);
  if (spec.visibility.count() < 1 || spec.visibility.count() > 43'200)
    return map.refused("visibility", "it must be 1s to 12h");
  YARD_TRY(map.get("receives_max", spec.receive_count_max, 1, 1000));
  if (!spec.queue_name.empty()) YARD_TRY(queue::check_queue_name(spec.queue_name));
  if (!spec.queue_sqs.empty()) YARD_TRY(queue::check_queue_name(spec.queue_sqs));
  if (!spec.queue_sqs.empty() && !(spec.queue_path.empty() && spec.queue_name.empty()))
    return map.refused("sqs", "a queue is in a file or behind SQS, not both");
  if (spec.queue_notifications && spec.queue_sqs.empty())
    return map.refused("notifications", "they go to a queue of SQS: 'sqs' is missing");
  return Ok{};
}

Status read_top(const Map& map, PrepSpec& spec) {
  YARD_TRY(map.get("name", spec.name));
  YARD_TRY(map.get("source", spec.source));
  YARD_TRY(map.get("output", spec.output));
  YARD_TRY(map.get("prefix", spec.prefix));
  YARD_TRY(map.get("state", spec.state));
  YARD_TRY(map.get_size("shard_size", spec.shard_bytes_max));
  YARD_TRY(map.get("shard_samples", spec.shard_samples_max, 1, 1'000'000));
  YARD_TRY(map.get("workers", spec.workers, 0, 1024));
  YARD_TRY(map.get_duration("flush", spec.flush));
  YARD_TRY(map.get_duration("rescan", spec.rescan));
  YARD_TRY(map.get("scan", spec.scan));
  YARD_TRY(map.get("end_marker", spec.end_marker));
  YARD_TRY(map.get_words("sidecars", spec.sidecars, {"txt", "json", "xmp"}));
  if (spec.source.empty()) return map.refused("source", "it is missing");
  if (spec.output.empty()) return map.refused("output", "it is missing");
  if (spec.prefix.empty() || spec.prefix.find('/') != spec.prefix.npos)
    return map.refused("prefix", "it must be a name without '/'");
  if (!spec.name.empty()) YARD_TRY(queue::check_queue_name(spec.name));
  return Ok{};
}

Result<PrepSpec> read_spec(const YAML::Node& root, const std::string& what) {
  YARD_ASSIGN(const Map map,
              Map::of(root, what,
                      {"name", "source", "output", "prefix", "state", "shard_size", "shard_samples",
                       "workers", "flush", "rescan", "scan", "end_marker", "sidecars", "queue",
                       "pictures", "encode", "defaults", "steps"}));
  PrepSpec spec;
  YARD_TRY(read_top(map, spec));
  if (const auto node = map.child("queue")) {
    YARD_ASSIGN(const Map queue,
                Map::of(node, map.path_of("queue"),
                        {"path", "name", "sqs", "notifications", "visibility", "receives_max"}));
    YARD_TRY(read_queue(queue, spec));
  }
  if (const auto node = map.child("pictures")) {
    YARD_ASSIGN(const Map pictures,
                Map::of(node, map.path_of("pictures"),
                        {"formats", "side_min", "side_max", "pixels_max", "bytes_max", "aspect_min",
                         "aspect_max", "sharpness_min", "entropy_min", "alpha_coverage_min",
                         "licences", "caption_required", "caption_wait", "keep_duplicates",
                         "near_duplicate_distance"}));
    YARD_TRY(read_pictures(pictures, spec.pictures));
  }
  if (const auto node = map.child("encode")) {
    YARD_ASSIGN(const Map encode,
                Map::of(node, map.path_of("encode"), {"format", "quality", "side_max"}));
    YARD_TRY(read_encode(encode, spec.encode));
  }
  if (const auto node = map.child("defaults")) {
    YARD_ASSIGN(const Map defaults,
                Map::of(node, map.path_of("defaults"), {"licence", "contributor"}));
    YARD_TRY(defaults.get("licence", spec.licence));
    YARD_TRY(defaults.get("contributor", spec.contributor));
  }
  if (const auto node = map.child("steps")) {
    if (!node.IsSequence()) return map.refused("steps", "it must be a list");
    for (size_t i = 0; i < node.size(); ++i) {
      YARD_ASSIGN(StepSpec step, read_step(node[i], fmt::format("{}.{}", map.path_of("steps"), i)));
      spec.steps.push_back(std::move(step));
    }
  }
  return spec;
}

}  // namespace

Result<PrepSpec> parse_prep_spec(const std::string& yaml, std::string_view what) {
  try {
    return read_spec(YAML::Load(yaml), std::string(what));
  } catch (const YAML::Exception& error) {
    return Error{Code::kInvalidArgument,
                 fmt::format("{}:{}: {}", what, error.mark.line + 1, error.msg)};
  }
}

bool is_step_url(std::string_view text) {
  return text.starts_with("http://") || text.starts_with("https://");
}

Result<std::vector<std::string>> split_command(std::string_view text) {
  std::vector<std::string> words;
  bool is_in_word = false;
  char quote = 0;
  for (const char c : text) {
    const bool is_space = c == ' ' || c == '\t' || c == '\n';
    if (quote == 0 && is_space) {
      is_in_word = false;
      continue;
    }
    if (!is_in_word) words.emplace_back();
    is_in_word = true;
    if (quote == 0 && (c == '"' || c == '\''))
      quote = c;
    else if (c == quote && quote != 0)
      quote = 0;
    else
      words.back() += c;
  }
  if (quote != 0)
    return Error{Code::kInvalidArgument, fmt::format("{}: a quote that does not end", text)};
  if (words.empty()) return Error{Code::kInvalidArgument, "the command is empty"};
  return words;
}

}  // namespace yard::prep
