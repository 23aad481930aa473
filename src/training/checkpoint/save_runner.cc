#include <fmt/format.h>

#include <algorithm>

#include "base/ids.h"
#include "base/log.h"
#include "checkpoint/agreement_internal.h"
#include "checkpoint/save_runner_internal.h"

namespace yard::checkpoint {
namespace {

constexpr size_t kIdLength = 20;  // of 36 letters and digits: no two saves share one

Json to_json(const WrittenFiles& written) {
  Json files = Json::array();
  for (const FileRecord& file : written.files)
    files.push_back({file.name, file.size_bytes, file.header_bytes, file.header_crc32c});
  Json chunks = Json::array();
  for (const WrittenChunk& chunk : written.chunks)
    chunks.push_back(
        {chunk.index, chunk.record.file_index, chunk.record.offset, chunk.record.block_crc32c});
  return {{"files", std::move(files)}, {"chunks", std::move(chunks)}};
}

// Checked only as far as memory safety needs: ranks of one run speak the same version, and the
// manifest made of it is checked as a whole.
Result<WrittenFiles> written_from_json(const Json& json, const std::string& what) {
  WrittenFiles written;
  const auto malformed = [&] { return Error{Code::kCorrupt, what + ": a report is malformed"}; };
  YARD_ASSIGN(const auto files, json_field<std::vector<Json>>(json, "files", what));
  for (const Json& file : files) {
    if (!file.is_array() || file.size() != 4 || !file[0].is_string() ||
        !std::all_of(file.begin() + 1, file.end(), json_internal::holds<uint64_t>))
      return malformed();
    written.files.push_back({file[0].get<std::string>(), file[1].get<uint64_t>(),
                             file[2].get<uint64_t>(), file[3].get<uint32_t>()});
  }
  YARD_ASSIGN(const auto chunks, json_field<std::vector<Json>>(json, "chunks", what));
  for (const Json& chunk : chunks) {
    if (!chunk.is_array() || chunk.size() != 4 ||
        !std::all_of(chunk.begin(), chunk.end() - 1, json_internal::holds<uint64_t>) ||
        !json_internal::holds<std::vector<uint32_t>>(chunk[3]))
      return malformed();
    written.chunks.push_back({chunk[0].get<size_t>(),
                              {.file_index = chunk[1].get<uint32_t>(),
                               .offset = chunk[2].get<uint64_t>(),
                               .block_crc32c = chunk[3].get<std::vector<uint32_t>>()}});
  }
  return written;
}

// The layouts and flags of all ranks.
struct Plans {
  std::vector<Layout> layouts;
  Flags has_bytes;
};

Result<Plans> plans_of(const std::vector<Json>& messages) {
  Plans plans;
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    const std::string what = fmt::format("layout of rank {}", rank);
    YARD_ASSIGN(const Json layout, json_field<Json>(messages[rank], "layout", what));
    YARD_ASSIGN(plans.layouts.emplace_back(), layout_from_json(layout, what));
    YARD_ASSIGN(const auto missing,
                json_field<std::vector<size_t>>(messages[rank], "missing", what));
    std::vector<bool>& flags = plans.has_bytes.emplace_back(plans.layouts.back().size(), true);
    for (const size_t index : missing) {
      if (index >= flags.size()) return Error{Code::kCorrupt, what + ": is malformed"};
      flags[index] = false;
    }
  }
  return plans;
}

}  // namespace

Status SaveRunner::run(const SaveJob& job) {
  WrittenFiles written;
  auto id = agree_to_begin(job);
  Status status = id ? run_steps(job, *id, written) : Status(id.error());
  if (!status) {
    planned_.reset();  // the next save copies everything, and asks again who writes what
    needs_sweep_ = true;
    return std::move(status).error().while_(
        fmt::format("saving {}", checkpoints_.url_of(checkpoints_.folder_of(job.step))));
  }
  if (is_first()) clean_up();
  return Ok{};
}

Result<std::string> SaveRunner::agree_to_begin(const SaveJob& job) {
  Json message{{"step", job.step}, {"is_new", owned(job.layout) == nullptr}};
  if (is_first()) message["id"] = random_name(kIdLength);
  YARD_ASSIGN(const auto messages,
              tell_all(exchange_, job.error ? Status(*job.error) : Ok{}, message));
  bool is_new = false;
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    YARD_ASSIGN(const auto step, json_field<int64_t>(messages[rank], "step", "a save's begin"));
    YARD_ASSIGN(const bool rank_is_new,
                json_field<bool>(messages[rank], "is_new", "a save's begin"));
    if (step != job.step)
      return Error{Code::kInvalidArgument, fmt::format("rank {} saves step {}, rank {} step {}",
                                                       exchange_.rank(), job.step, rank, step)};
    is_new = is_new || rank_is_new;
  }
  if (is_new) YARD_TRY(plan(job));
  return json_field<std::string>(messages[0], "id", "a save's begin");
}

Status SaveRunner::plan(const SaveJob& job) {
  Json missing = Json::array();
  for (size_t i = 0; i < job.has_bytes.size(); ++i)
    if (!job.has_bytes[i]) missing.push_back(i);
  YARD_ASSIGN(const auto messages,
              tell_all(exchange_, Ok{},
                       {{"layout", checkpoint::to_json(job.layout)}, {"missing", missing}}));
  YARD_ASSIGN(Plans plans, plans_of(messages));
  YARD_ASSIGN(const Flags owns, plan_owners(plans.layouts, plans.has_bytes));
  planned_ = Planned{job.layout, owns[static_cast<size_t>(exchange_.rank())], {}};
  if (is_first()) planned_->layouts = std::move(plans.layouts);
  return Ok{};
}

// The first tier. Without it the checkpoint in the store is still worth having.
void SaveRunner::keep_in_memory(const SaveJob& job, const std::string& id) {
  if (options_.memory.peers == nullptr) return;
  const Status kept = options_.memory.peers->keep(
      *options_.memory.group,
      {.id = id, .step = job.step, .layout = job.layout, .notes = job.notes});
  if (!kept)
    log_warning("step {} is not kept in peers' memory: {}", job.step, kept.error().message);
}

Status SaveRunner::run_steps(const SaveJob& job, const std::string& id, WrittenFiles& written) {
  keep_in_memory(job, id);
  const RankFiles where{job.step, id, exchange_.rank(), exchange_.size()};
  auto files = write_rank_files(checkpoints_, where, job.layout, planned_->owned, job.bytes,
                                {options_.files, options_.writer_count, options_.read_back});
  Json report = Json::object();
  if (files) {
    written = *std::move(files);
    report = to_json(written);
    report["notes"] = job.notes.rank_metadata;
  }
  auto reports =
      tell_all(exchange_, files ? Status(Ok{}) : Status(files.error()), std::move(report));
  Status committed = reports ? Status(Ok{}) : Status(reports.error());
  if (reports) {
    if (is_first()) committed = commit(job, id, *reports);
    auto outcome = tell_all(exchange_, committed, Json::object());
    if (!outcome) committed = outcome.error();
  }
  if (committed) return Ok{};
  // Where the manifest may be there nevertheless its files must stay.
  const Code code = committed.error().code;
  const bool may_be_there =
      reports && (code == Code::kUnavailable || code == Code::kDeadlineExceeded);
  if (!may_be_there) remove_rank_files(checkpoints_, job.step, written.files);
  return committed;
}

Status SaveRunner::commit(const SaveJob& job, const std::string& id,
                          const std::vector<Json>& reports) {
  YARD_ASSIGN(const CheckpointManifest manifest, make_manifest(job, id, reports));
  const std::string key = checkpoints_.manifest_key(job.step);
  const std::string text = format_manifest(manifest);
  // A reader would refuse it, so it must not come to be.
  YARD_TRY(parse_manifest(text, checkpoints_.url_of(key)));
  needs_sweep_ = needs_sweep_ || checkpoints_.store().head(key).has_value();  // replaces one
  auto put = storage::put_text(checkpoints_.store(), key, text);
  if (put) return Ok{};
  const auto there = checkpoints_.read(job.step);  // only the answer may have been lost
  if (there && there->id == id) return Ok{};
  return std::move(put).error();
}

Result<CheckpointManifest> SaveRunner::make_manifest(const SaveJob& job, const std::string& id,
                                                     const std::vector<Json>& reports) const {
  CheckpointManifest manifest{.id = id,
                              .step = job.step,
                              .world_size = exchange_.size(),
                              .created_unix_ms = unix_ms(Clock::real().wall_now()),
                              .metadata = job.notes.metadata};
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const std::string what = fmt::format("report of rank {}", rank);
    YARD_ASSIGN(WrittenFiles written, written_from_json(reports[rank], what));
    YARD_ASSIGN(manifest.rank_metadata.emplace_back(),
                json_field<Json>(reports[rank], "notes", what));
    const Layout& layout = planned_->layouts[rank];
    for (WrittenChunk& chunk : written.chunks) {
      if (chunk.index >= layout.size()) return Error{Code::kCorrupt, what + ": is malformed"};
      const ChunkInfo& info = layout[chunk.index];
      chunk.record.region = info.region;
      chunk.record.file_index += static_cast<uint32_t>(manifest.files.size());
      TensorRecord& tensor = manifest.tensors[info.name];
      tensor.info = info.info;
      tensor.chunks.push_back(std::move(chunk.record));
    }
    manifest.files.insert(manifest.files.end(), written.files.begin(), written.files.end());
  }
  return manifest;
}

// Nothing here harms the checkpoint that is there now, so nothing here fails the save.
void SaveRunner::clean_up() {
  if (Status retained = checkpoints_.retain(options_.retention); !retained)
    log_warning("old checkpoints stay: {}", retained.error().message);
  if (!needs_sweep_) return;
  const auto swept = checkpoints_.sweep(std::chrono::seconds(0));
  if (!swept) log_warning("left-over files of saves stay: {}", swept.error().message);
  needs_sweep_ = !swept.has_value();
}

}  // namespace yard::checkpoint
