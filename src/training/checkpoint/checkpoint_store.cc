#include "checkpoint/checkpoint_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "base/crc32c.h"
#include "base/log.h"
#include "checkpoint/read_plan_internal.h"

namespace yard::checkpoint {
namespace {

constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kManifestName = "manifest.json";
constexpr std::string_view kDataPrefix = "data-";
constexpr std::string_view kExchangePrefix = "exchange-";
constexpr std::chrono::hours kMessageAge{1};
constexpr uint64_t kManifestBytesMax = uint64_t{1} << 30;

std::string as_prefix(std::string_view prefix) {
  while (prefix.ends_with('/')) prefix.remove_suffix(1);
  return prefix.empty() ? std::string() : std::string(prefix) + "/";
}

// The step of "step-00001200/", of nothing else.
std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kStepPrefix) || !name.ends_with('/')) return std::nullopt;
  name = name.substr(kStepPrefix.size(), name.size() - kStepPrefix.size() - 1);
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc{} || end != name.data() + name.size() || step < 0) return std::nullopt;
  return step;
}

// "data-<id>" of "data-<id>/...".
std::string_view save_of(std::string_view name) {
  return name.substr(0, name.find('/'));
}

}  // namespace

std::vector<int64_t> steps_to_remove(std::span<const int64_t> steps, const RetentionRule& rule) {
  std::vector<int64_t> removed;
  if (rule.keep_last <= 0 || std::ssize(steps) <= rule.keep_last) return removed;
  for (const int64_t step : steps.first(steps.size() - static_cast<size_t>(rule.keep_last)))
    if (rule.keep_every_steps <= 0 || step % rule.keep_every_steps != 0) removed.push_back(step);
  return removed;
}

CheckpointStore::CheckpointStore(storage::ObjectStore& store, std::string_view prefix)
    : store_(store), prefix_(as_prefix(prefix)) {}

std::string CheckpointStore::folder_of(int64_t step) const {
  return fmt::format("{}{}{:08}/", prefix_, kStepPrefix, step);
}

std::string CheckpointStore::manifest_key(int64_t step) const {
  return folder_of(step) + std::string(kManifestName);
}

std::string CheckpointStore::url_of(std::string_view key) const {
  return fmt::format("{}/{}", store_.url(), key);
}

Result<std::vector<int64_t>> CheckpointStore::folders() const {
  std::vector<int64_t> steps;
  storage::ListRequest request{.prefix = prefix_ + std::string(kStepPrefix), .delimiter = "/"};
  for (;;) {
    YARD_ASSIGN(const storage::ListPage page, store_.list(request));
    for (const std::string& folder : page.common_prefixes)
      if (const auto step = step_of(std::string_view(folder).substr(prefix_.size())))
        if (folder == folder_of(*step)) steps.push_back(*step);
    if (page.next_start_after.empty()) break;
    request.start_after = page.next_start_after;
  }
  std::ranges::sort(steps);  // past 8 digits the order of keys is another
  return steps;
}

Result<std::vector<CheckpointInfo>> CheckpointStore::list() const {
  YARD_ASSIGN(const std::vector<int64_t> all, folders());
  std::vector<CheckpointInfo> found;
  for (const int64_t step : all) {
    const auto info = store_.head(manifest_key(step));
    if (!info && info.error().code != Code::kNotFound) return info.error();
    found.push_back({step, info.has_value()});
  }
  return found;
}

Result<std::vector<int64_t>> CheckpointStore::steps() const {
  YARD_ASSIGN(const std::vector<CheckpointInfo> all, list());
  std::vector<int64_t> whole;
  for (const CheckpointInfo& info : all)
    if (info.is_whole) whole.push_back(info.step);
  return whole;
}

Result<std::optional<CheckpointManifest>> CheckpointStore::latest() const {
  YARD_ASSIGN(const std::vector<int64_t> all, folders());
  for (auto step = all.rbegin(); step != all.rend(); ++step) {
    auto manifest = read(*step);
    if (manifest) return std::optional(*std::move(manifest));
    const Code code = manifest.error().code;
    if (code == Code::kCorrupt || code == Code::kInvalidArgument)
      log_warning("checkpoint passed over: {}", manifest.error().message);
    else if (code != Code::kNotFound)
      return std::move(manifest).error();
  }
  return std::optional<CheckpointManifest>();
}

Result<CheckpointManifest> CheckpointStore::read(int64_t step) const {
  const std::string key = manifest_key(step);
  YARD_ASSIGN(const std::string text, storage::get_all(store_, key, kManifestBytesMax));
  YARD_ASSIGN(CheckpointManifest manifest, parse_manifest(text, url_of(key)));
  if (manifest.step == step) return manifest;
  return Error{Code::kCorrupt, fmt::format("{}: says it is step {}", url_of(key), manifest.step)};
}

Status CheckpointStore::verify(const CheckpointManifest& manifest, const StopToken& stop,
                               const std::function<void(uint64_t)>& on_bytes) const {
  const std::string folder = folder_of(manifest.step);
  for (const FileRecord& file : manifest.files) {
    const std::string key = folder + file.name;
    const auto info = store_.head(key);
    if (!info && info.error().code == Code::kNotFound)
      return Error{Code::kCorrupt, url_of(key) + ": is gone"};
    if (!info) return info.error();
    if (info->size_bytes != file.size_bytes)
      return Error{Code::kCorrupt, fmt::format("{}: has {} bytes, not {}", url_of(key),
                                               info->size_bytes, file.size_bytes)};
    std::vector<std::byte> header(file.header_bytes);
    YARD_TRY(store_.get_range(key, info->etag, 0, header));
    if (crc32c(header) != file.header_crc32c)
      return Error{Code::kCorrupt, url_of(key) + ": the checksum of its header is wrong"};
  }
  ReadPlan plan(manifest, VerifyBlocks::kAll);
  for (const auto& [name, tensor] : manifest.tensors)
    for (const ChunkRecord& chunk : tensor.chunks) plan.add_check(name, tensor, chunk);
  return read_planned(store_, folder, manifest, plan, {.stop = stop, .on_bytes = on_bytes});
}

Status CheckpointStore::remove(int64_t step) const {
  YARD_TRY(store_.remove(manifest_key(step)));
  YARD_ASSIGN(const auto objects, storage::list_all(store_, folder_of(step)));
  std::vector<std::string> keys;
  for (const storage::ObjectInfo& object : objects) keys.push_back(object.key);
  return store_.remove_all(keys);
}

Status CheckpointStore::retain(const RetentionRule& rule) const {
  if (rule.keep_last <= 0) return Ok{};
  YARD_ASSIGN(const std::vector<int64_t> whole, steps());
  for (const int64_t step : steps_to_remove(whole, rule)) YARD_TRY(remove(step));
  return Ok{};
}

Result<uint64_t> CheckpointStore::sweep(std::chrono::seconds age_min, std::string_view spared_id,
                                        const Clock& clock) const {
  YARD_ASSIGN(const std::vector<int64_t> all, folders());
  std::vector<std::string> abandoned;
  for (const int64_t step : all) {
    YARD_ASSIGN(const auto keys, abandoned_files(step, clock.wall_now() - age_min, spared_id));
    abandoned.insert(abandoned.end(), keys.begin(), keys.end());
  }
  // Messages of ranks: who still reads them is at work, so these are old only where nobody does.
  const auto messages_end =
      clock.wall_now() - std::max<Clock::Wall::duration>(age_min, kMessageAge);
  YARD_ASSIGN(const auto messages,
              storage::list_all(store_, prefix_ + std::string(kExchangePrefix)));
  for (const storage::ObjectInfo& message : messages)
    if (message.modified <= messages_end) abandoned.push_back(message.key);
  YARD_TRY(store_.remove_all(abandoned));
  return abandoned.size();
}

Result<std::vector<std::string>> CheckpointStore::abandoned_files(
    int64_t step, Clock::Wall written_max, std::string_view spared_id) const {
  const std::string folder = folder_of(step);
  std::vector<std::string> abandoned;
  // Listed first: a manifest that comes meanwhile names files of the list, or none of them.
  YARD_ASSIGN(const auto objects, storage::list_all(store_, folder));
  std::set<std::string, std::less<>> named{std::string(kManifestName)};
  const auto manifest = read(step);
  if (manifest)
    for (const FileRecord& file : manifest->files) named.insert(file.name);
  else if (manifest.error().code != Code::kNotFound)
    return abandoned;  // damaged: whose files these are is not known
  const auto name_of = [&](const storage::ObjectInfo& object) {
    return std::string_view(object.key).substr(folder.size());
  };
  std::map<std::string_view, Clock::Wall> last_written;
  for (const storage::ObjectInfo& object : objects) {
    Clock::Wall& last = last_written[save_of(name_of(object))];
    last = std::max(last, object.modified);
  }
  for (const storage::ObjectInfo& object : objects) {
    const std::string_view save = save_of(name_of(object));
    const bool is_spared = save.substr(std::min(kDataPrefix.size(), save.size())) == spared_id;
    if (save.starts_with(kDataPrefix) && !is_spared && !named.contains(name_of(object)) &&
        last_written[save] <= written_max)
      abandoned.push_back(object.key);
  }
  return abandoned;
}

std::string data_file_name(std::string_view id, int rank, int world_size, size_t index) {
  return fmt::format("{}{}/{:05}-of-{:05}-{:03}.safetensors", kDataPrefix, id, rank, world_size,
                     index);
}

}  // namespace yard::checkpoint
