#include "loop/micro_batch.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "loop/agreement.h"

namespace yard::loop {
namespace {

std::string path_in(const std::string& output_dir) {
  return output_dir + "/micro_batches.json";
}

// An empty object where there is no file.
Result<Json> read_notes(const std::string& output_dir) {
  const std::string path = path_in(output_dir);
  auto text = read_file(path);
  if (!text && text.error().code == Code::kNotFound) return Json(Json::object());
  if (!text) return std::move(text).error();
  YARD_ASSIGN(Json notes, parse_json(*text, path));
  if (!notes.is_object()) return Error{Code::kInvalidArgument, path + ": not a map of stages"};
  return notes;
}

Status take(const Json& notes, const std::string& path, int rank_count, StageRecipe& stage) {
  if (!notes.contains(stage.name)) return Ok{};
  const std::string what = path + ": " + stage.name;
  YARD_ASSIGN(const auto asked, json_field<int64_t>(notes[stage.name], "asked", what));
  YARD_ASSIGN(const int ranks, json_field<int>(notes[stage.name], "ranks", what));
  YARD_ASSIGN(const auto used, json_field<int64_t>(notes[stage.name], "micro_batch", what));
  if (used < 1) return Error{Code::kInvalidArgument, what + ": 'micro_batch' must be at least 1"};
  if (asked == stage.micro_batch && ranks == rank_count) stage.micro_batch = used;
  return Ok{};
}

}  // namespace

Status note_micro_batch(const std::string& output_dir, const StageRecipe& stage, int rank_count) {
  YARD_ASSIGN(Json notes, read_notes(output_dir));
  notes[stage.name] = {{"asked", stage.asked_micro_batch},
                       {"ranks", rank_count},
                       {"micro_batch", stage.micro_batch}};
  return write_file_atomic(path_in(output_dir), notes.dump(2) + "\n");
}

Status take_noted_micro_batches(Recipe& recipe, const std::string& output_dir,
                                collective::Group& group) {
  for (StageRecipe& stage : recipe.stages) stage.asked_micro_batch = stage.micro_batch;
  Status taken = Ok{};
  if (group.rank() == 0) {
    auto notes = read_notes(output_dir);
    if (!notes) taken = notes.error();
    for (StageRecipe& stage : recipe.stages)
      if (taken) taken = take(*notes, path_in(output_dir), group.size(), stage);
  }
  YARD_TRY(agree(group, taken, "reading micro-batches"));
  std::vector<int64_t> used;
  for (const StageRecipe& stage : recipe.stages) used.push_back(stage.micro_batch);
  YARD_TRY(group.broadcast(std::as_writable_bytes(std::span(used)), 0)->wait());
  for (size_t i = 0; i < used.size(); ++i) recipe.stages[i].micro_batch = used[i];
  return Ok{};
}

int64_t choose_micro_batch(const MemoryPeaks& peaks, int64_t share, uint64_t budget_bytes) {
  YARD_CHECK(share >= 1);
  if (peaks.one_bytes >= budget_bytes) return 1;
  const uint64_t each = std::max(peaks.two_bytes, peaks.one_bytes + 1) - peaks.one_bytes;
  const uint64_t more = (budget_bytes - peaks.one_bytes) / each;
  const auto most = static_cast<int64_t>(std::min(more, static_cast<uint64_t>(share - 1))) + 1;
  const int64_t rounds = (share + most - 1) / most;
  return (share + rounds - 1) / rounds;
}

}  // namespace yard::loop
