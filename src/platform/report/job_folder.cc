#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/file.h"
#include "base/json.h"
#include "images/picture.h"
#include "report/html.h"
#include "report/job_folder_internal.h"
#include "report/sample_tiles.h"

namespace yard::report {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kHeartbeatFileBytesMax = uint64_t{1} << 30;
constexpr uint64_t kSmallFileBytesMax = uint64_t{64} << 20;

// Files other than heartbeats are welcome, not needed: a job that died early has none of them.
std::optional<std::string> read_optional(const std::string& path) {
  Result<std::string> content = read_file(path, kSmallFileBytesMax);
  if (!content) return std::nullopt;
  return *std::move(content);
}

Json read_json_object(const std::string& path) {
  const std::optional<std::string> content = read_optional(path);
  if (!content) return Json::object();
  Result<Json> parsed = parse_json(*content, path);
  return parsed && parsed->is_object() ? *std::move(parsed) : Json::object();
}

template <typename T>
T field(const Json& object, std::string_view key, T neutral) {
  Result<T> value = json_field_or<T>(object, key, neutral, "job folder");
  return value ? *std::move(value) : std::move(neutral);
}

void read_ledger(const std::string& dir, JobFacts& facts) {
  constexpr std::string_view kParts[] = {"productive", "startup",    "data_wait",
                                         "comm_wait",  "checkpoint", "evaluation",
                                         "lost_work",  "recovery",   "other"};
  const Json ledger = read_json_object(dir + "/ledger.json");
  facts.wall_s = field<double>(ledger, "wall_s", 0);
  facts.price_per_host_hour = field<double>(ledger, "price_per_host_hour", 0);
  if (ledger.empty()) return;
  for (const std::string_view part : kParts) {
    facts.ledger.push_back({std::string(part), field<double>(ledger, std::string(part) + "_s", 0)});
  }
}

// The text of an event that the report shows; nullopt for the others, which the ranks tell better.
std::optional<SupervisorEvent> supervisor_event(const Json& line) {
  const auto event = field<std::string>(line, "event", "");
  const auto rank = field<int64_t>(line, "rank", 0);
  SupervisorEvent out;
  out.time = field<double>(line, "t", 0);
  if (event == "chaos_kill") {
    out.name = "killed on purpose";
    out.text = fmt::format("rank {} after step {}", rank, field<int64_t>(line, "global_step", 0));
    out.bad = true;
  } else if (event == "fault") {
    out.name = "fault";
    out.text = fmt::format("rank {}: {}", rank, field<std::string>(line, "detail", ""));
    out.bad = true;
  } else if (event == "recovered") {
    out.name = "recovered";
    out.text = fmt::format("{} from the fault to the end of the first new step",
                           format_seconds(field<double>(line, "recovery_s", 0)));
  } else if (event == "stop_asked") {
    out.name = "stop asked";
    out.text = "by " + field<std::string>(line, "by", "");
  } else if (event == "ended") {
    out.name = field<std::string>(line, "state", "ended");
    out.text = field<std::string>(line, "reason", "");
    out.bad = out.name == "failed";
  } else {
    return std::nullopt;
  }
  return out;
}

void read_events(const std::string& dir, JobFacts& facts) {
  const std::string content = read_optional(dir + "/events.jsonl").value_or("");
  for (size_t begin = 0, end; (end = content.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    const Result<Json> line = parse_json(std::string_view(content).substr(begin, end - begin), "");
    if (!line || !line->is_object()) continue;
    if (auto event = supervisor_event(*line)) facts.events.push_back(*std::move(event));
  }
}

std::string command_line(const Json& spec) {
  const auto command = field<std::vector<std::string>>(spec, "command", {});
  std::string out;
  for (size_t i = 0; i < command.size(); ++i) {
    out += i == 0 ? fs::path(command[0]).filename().string() : " " + command[i];
  }
  return out;
}

// The parts of the exported pipeline, by its model_index.json: "UNet2DConditionModel + ...".
std::string model_of(const std::string& dir, const RunHistory& history) {
  for (const Event& event : history.events) {
    if (event.kind != EventKind::kFinish) continue;
    const Json index = read_json_object(fs::path(dir) / event.text / "pipeline/model_index.json");
    std::string out;
    for (const char* part : {"unet", "vae", "text_encoder"}) {
      const auto names = field<std::vector<std::string>>(index, part, {});
      if (names.size() == 2) out += (out.empty() ? "" : " + ") + names[1];
    }
    if (!out.empty()) return out;
  }
  return {};
}

JobFacts read_facts(const std::string& dir, const RunHistory& history) {
  const Json spec = read_json_object(dir + "/job.json");
  const Json status = read_json_object(dir + "/status.json");
  JobFacts facts;
  const fs::path folder = fs::path(dir).lexically_normal();
  const std::string folder_name =
      folder.has_filename() ? folder.filename().string() : folder.parent_path().filename().string();
  facts.name = field<std::string>(spec, "name", folder_name);
  facts.state = field<std::string>(status, "state", "");
  facts.command = command_line(spec);
  facts.model = model_of(dir, history);
  facts.recipe = read_optional(dir + "/recipe.yaml").value_or("");
  read_ledger(dir, facts);
  read_events(dir, facts);
  return facts;
}

Result<RunHistory> read_history(const std::string& dir) {
  std::error_code error;
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(dir + "/heartbeats", error)) {
    if (entry.path().extension() == ".jsonl") paths.push_back(entry.path());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return errno_error(dir + "/heartbeats", error.value());
  }
  std::sort(paths.begin(), paths.end());
  RunHistoryReader reader;
  for (const std::string& path : paths) {
    YARD_ASSIGN(const std::string content, read_file(path, kHeartbeatFileBytesMax));
    reader.add(content);
  }
  return std::move(reader).finish();
}

int resolution_of(const RunHistory& history, const std::string& stage) {
  for (const Stage& known : history.stages) {
    if (known.name == stage) return static_cast<int>(known.resolution);
  }
  return 0;
}

Result<std::vector<std::string>> cut_into_uris(const std::string& png, const SampleGrid& grid,
                                               int resolution) {
  const auto bytes = std::as_bytes(std::span(png));
  YARD_ASSIGN(const images::Picture picture, images::decode(bytes, {}));
  const int count = static_cast<int>(grid.prompts.size());
  const auto layout = find_tile_layout(picture.width, picture.height, count, resolution);
  if (!layout) return std::vector<std::string>{png_data_uri(bytes)};
  std::vector<std::string> uris;
  for (const images::Picture& tile : cut_tiles(picture, *layout, count)) {
    YARD_ASSIGN(const std::vector<std::byte> encoded, images::encode_png(tile));
    uris.push_back(png_data_uri(encoded));
  }
  return uris;
}

SamplePictures read_sample(const std::string& dir, const SampleGrid& grid, int resolution) {
  SamplePictures out{grid, {}, {}};
  const Result<std::string> png = read_file(fs::path(dir) / grid.path, kSmallFileBytesMax);
  if (!png) {
    out.missing = png.error().message;
    return out;
  }
  Result<std::vector<std::string>> uris = cut_into_uris(*png, grid, resolution);
  if (uris) {
    out.data_uris = *std::move(uris);
  } else {
    out.missing = grid.path + ": " + uris.error().message;
  }
  return out;
}

}  // namespace

Result<JobFolder> read_job_folder(const std::string& dir) {
  std::error_code error;
  if (!fs::is_directory(dir, error)) return Error{Code::kNotFound, dir + ": no such folder"};
  JobFolder out;
  YARD_ASSIGN(out.history, read_history(dir));
  out.facts = read_facts(dir, out.history);
  const bool any = out.history.end_time > 0 || fs::exists(dir + "/job.json", error);
  if (!any) {
    return Error{Code::kNotFound, dir + ": neither job.json nor heartbeats/: not a job's folder"};
  }
  for (const SampleGrid& grid : out.history.samples) {
    out.samples.push_back(read_sample(dir, grid, resolution_of(out.history, grid.stage)));
  }
  return out;
}

}  // namespace yard::report
