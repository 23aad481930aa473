#include "loop/checkpoint_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "base/crc32c.h"
#include "base/log.h"

namespace yard::loop {
namespace {

constexpr std::string_view kPrefix = "checkpoints/step-";
constexpr std::string_view kManifest = "manifest.json";
constexpr int kFormatVersion = 1;

std::optional<int64_t> step_of(std::string_view key) {
  if (!key.starts_with(kPrefix)) return std::nullopt;
  key = key.substr(kPrefix.size(), key.find('/', kPrefix.size()) - kPrefix.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), step);
  if (error != std::errc{} || end != key.data() + key.size()) return std::nullopt;
  return step;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

Json describe(const CheckpointFile& file) {
  return {{"name", file.name},
          {"size_bytes", file.bytes.size()},
          {"crc32c", crc32c(bytes_of(file.bytes))}};
}

}  // namespace

std::string CheckpointFolder::key_of(int64_t global_step) {
  return fmt::format("{}{:08}", kPrefix, global_step);
}

Status CheckpointFolder::write(int64_t global_step, const std::vector<CheckpointFile>& files,
                               Json facts) {
  const std::string folder = key_of(global_step);
  // A damaged checkpoint of this step must not become whole again with half-new files.
  YARD_TRY(remove(global_step));
  facts["format"] = kFormatVersion;
  facts["global_step"] = global_step;
  facts["files"] = Json::array();
  Status status = Ok{};
  for (const CheckpointFile& file : files) {
    facts["files"].push_back(describe(file));
    auto put = store_.put(folder + "/" + file.name, bytes_of(file.bytes), {});
    if (!put) status = std::move(put).error();
    if (!status) break;
  }
  if (status) {
    auto put =
        storage::put_text(store_, fmt::format("{}/{}", folder, kManifest), facts.dump(2) + "\n");
    if (!put) status = std::move(put).error();
  }
  if (status) return Ok{};
  if (Status removed = remove(global_step); !removed)
    log_warning("{}: {}", folder, removed.error().message);
  return std::move(status).error().while_("saving checkpoint " + folder);
}

Result<std::vector<int64_t>> CheckpointFolder::steps() const {
  YARD_ASSIGN(const auto objects, storage::list_all(store_, kPrefix));
  std::set<int64_t> steps;
  for (const storage::ObjectInfo& object : objects)
    if (const auto step = step_of(object.key)) steps.insert(*step);
  return std::vector<int64_t>(steps.begin(), steps.end());
}

Result<FoundCheckpoint> CheckpointFolder::read_manifest(int64_t global_step) const {
  FoundCheckpoint found{.global_step = global_step, .key = key_of(global_step)};
  const std::string key = fmt::format("{}/{}", found.key, kManifest);
  constexpr uint64_t kManifestBytesMax = uint64_t{16} << 20;
  YARD_ASSIGN(const std::string text, storage::get_all(store_, key, kManifestBytesMax));
  YARD_ASSIGN(found.manifest, parse_json(text, key));
  YARD_ASSIGN(const int format, json_field<int>(found.manifest, "format", key));
  YARD_ASSIGN(const int64_t step, json_field<int64_t>(found.manifest, "global_step", key));
  if (format != kFormatVersion)
    return Error{Code::kInvalidArgument, fmt::format("{}: format {} is not known", key, format)};
  if (step != global_step)
    return Error{Code::kCorrupt, fmt::format("{}: says it is step {}", key, step)};
  return found;
}

Status CheckpointFolder::verify(const FoundCheckpoint& checkpoint) const {
  YARD_ASSIGN(const Json files, json_field<Json>(checkpoint.manifest, "files", checkpoint.key));
  if (!files.is_array())
    return Error{Code::kCorrupt, checkpoint.key + "/manifest.json: 'files' is not a list"};
  for (const Json& file : files) {
    YARD_ASSIGN(const auto name, json_field<std::string>(file, "name", checkpoint.key));
    YARD_ASSIGN(const auto size_bytes, json_field<uint64_t>(file, "size_bytes", checkpoint.key));
    YARD_ASSIGN(const auto checksum, json_field<uint32_t>(file, "crc32c", checkpoint.key));
    YARD_TRY(verify_file(checkpoint.key + "/" + name, size_bytes, checksum));
  }
  return Ok{};
}

Status CheckpointFolder::verify_file(const std::string& key, uint64_t size_bytes,
                                     uint32_t checksum) const {
  YARD_ASSIGN(const storage::ObjectInfo info, store_.head(key));
  if (info.size_bytes != size_bytes)
    return Error{Code::kCorrupt,
                 fmt::format("{}: {} bytes, should be {}", key, info.size_bytes, size_bytes)};
  constexpr uint64_t kPieceBytes = uint64_t{4} << 20;
  std::vector<std::byte> piece;
  uint32_t sum = 0;
  for (uint64_t offset = 0; offset < size_bytes; offset += piece.size()) {
    piece.resize(std::min(kPieceBytes, size_bytes - offset));
    YARD_TRY(store_.get_range(key, info.etag, offset, piece));
    sum = crc32c(piece, sum);
  }
  if (sum != checksum) return Error{Code::kCorrupt, key + ": its checksum is wrong"};
  return Ok{};
}

Result<std::optional<FoundCheckpoint>> CheckpointFolder::newest() const {
  YARD_ASSIGN(const std::vector<int64_t> all, steps());
  for (auto step = all.rbegin(); step != all.rend(); ++step) {
    auto found = read_manifest(*step);
    Status status = found ? verify(*found) : Status(found.error());
    if (status) return std::optional<FoundCheckpoint>(*std::move(found));
    // Without a manifest it is one that was never finished: nothing to worry about.
    if (status.error().code != Code::kNotFound)
      log_warning("checkpoint passed over: {}", status.error().message);
  }
  return std::optional<FoundCheckpoint>();
}

Status CheckpointFolder::clean(int64_t keep) {
  YARD_ASSIGN(const std::vector<int64_t> all, steps());
  int64_t kept = 0;
  for (auto step = all.rbegin(); step != all.rend(); ++step) {
    const bool whole = read_manifest(*step).has_value();
    if (!whole || kept++ >= keep) YARD_TRY(remove(*step));
  }
  return Ok{};
}

Status CheckpointFolder::remove(int64_t global_step) {
  const std::string folder = key_of(global_step);
  // First the manifest, so that an interrupted removal leaves nothing that looks whole.
  YARD_TRY(store_.remove(fmt::format("{}/{}", folder, kManifest)));
  YARD_ASSIGN(const auto objects, storage::list_all(store_, folder + "/"));
  for (const storage::ObjectInfo& object : objects) YARD_TRY(store_.remove(object.key));
  return Ok{};
}

}  // namespace yard::loop
