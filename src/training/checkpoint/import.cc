#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/crc32c.h"
#include "base/ids.h"
#include "checkpoint/convert.h"
#include "storage/parallel_get.h"

namespace yard::checkpoint {
namespace {

constexpr uint64_t kIndexBytesMax = uint64_t{256} << 20;

// Takes a safetensors file's bytes in order and sums the blocks of each tensor.
class BlockSummer {
 public:
  BlockSummer(const std::vector<FileEntry>& entries, uint64_t header_bytes)
      : entries_(entries), at_(0), header_bytes_(header_bytes), blocks_(entries.size()) {}

  void add(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const uint64_t end = next_border();
      const auto part = bytes.first(std::min<uint64_t>(bytes.size(), end - at_));
      sum_ = crc32c(part, sum_);
      at_ += part.size();
      bytes = bytes.subspan(part.size());
      if (at_ == end) close();
    }
  }
  uint32_t header_crc32c() const { return header_crc32c_; }
  // Of each entry.
  std::vector<std::vector<uint32_t>> take() { return std::move(blocks_); }

 private:
  // Where the header or the block ends that the next byte is of.
  uint64_t next_border() {
    if (at_ < header_bytes_) return header_bytes_;
    while (at_ >= entries_[entry_].offset + entries_[entry_].size_bytes) ++entry_;
    const FileEntry& entry = entries_[entry_];
    const uint64_t block = (at_ - entry.offset) / kBlockBytes;
    return std::min(entry.offset + (block + 1) * kBlockBytes, entry.offset + entry.size_bytes);
  }
  void close() {
    if (at_ == header_bytes_)
      header_crc32c_ = sum_;
    else
      blocks_[entry_].push_back(sum_);
    sum_ = 0;
  }

  const std::vector<FileEntry>& entries_;
  uint64_t at_;
  const uint64_t header_bytes_;
  size_t entry_ = 0;
  uint32_t sum_ = 0;
  uint32_t header_crc32c_ = 0;
  std::vector<std::vector<uint32_t>> blocks_;
};

class Importer {
 public:
  Importer(storage::ObjectStore& source, const CheckpointStore& checkpoints,
           const ImportOptions& options)
      : source_(source), checkpoints_(checkpoints), options_(options) {
    manifest_.id = random_name(20);
    manifest_.step = options.step;
    manifest_.created_unix_ms = unix_ms(Clock::real().wall_now());
    manifest_.metadata = options.metadata;
    manifest_.rank_metadata = {Json::object()};
  }

  Result<CheckpointManifest> run(std::string_view key) {
    YARD_ASSIGN(const std::vector<std::string> keys, find_files(std::string(key)));
    Status status = Ok{};
    for (size_t i = 0; status && i < keys.size(); ++i) status = copy_file(keys[i]);
    if (status) status = check_index();
    if (status) status = commit();
    if (status) return std::move(manifest_);
    std::vector<std::string> written;
    for (const FileRecord& file : manifest_.files)
      written.push_back(checkpoints_.folder_of(options_.step) + file.name);
    static_cast<void>(checkpoints_.store().remove_all(written));  // else the next sweep does
    return std::move(status).error();
  }

 private:
  std::string source_url(const std::string& key) const { return source_.url() + "/" + key; }

  Result<std::vector<std::string>> find_files(std::string key) {
    if (key.ends_with(".index.json")) return files_of_index(key);
    if (key.ends_with(".safetensors")) return std::vector<std::string>{key};
    if (!key.empty() && !key.ends_with('/')) key += '/';
    std::vector<std::string> files;
    std::vector<std::string> indexes;
    YARD_ASSIGN(const auto objects, storage::list_all(source_, key));
    for (const storage::ObjectInfo& object : objects) {
      if (object.key.find('/', key.size()) != std::string::npos) continue;  // of a folder in it
      if (object.key.ends_with(".safetensors.index.json")) indexes.push_back(object.key);
      if (object.key.ends_with(".safetensors")) files.push_back(object.key);
    }
    if (indexes.size() == 1) return files_of_index(indexes[0]);
    if (indexes.size() > 1)
      return Error{Code::kInvalidArgument, fmt::format("{}: has several indexes, name one: {}",
                                                       source_url(key), fmt::join(indexes, ", "))};
    if (files.empty())
      return Error{Code::kNotFound, source_url(key) + ": has no .safetensors file"};
    return files;
  }

  Result<std::vector<std::string>> files_of_index(const std::string& key) {
    YARD_ASSIGN(const std::string text, storage::get_all(source_, key, kIndexBytesMax));
    YARD_ASSIGN(const Json json, parse_json(text, source_url(key)));
    YARD_ASSIGN(const Json map, json_field<Json>(json, "weight_map", source_url(key)));
    const std::string folder = key.substr(0, key.rfind('/') + 1);
    std::vector<std::string> files;
    for (const auto& [name, file] : map.items()) {
      if (!file.is_string())
        return Error{Code::kCorrupt,
                     fmt::format("{}: tensor '{}' has no file", source_url(key), name)};
      weight_map_[name] = folder + file.get<std::string>();
      if (std::ranges::find(files, weight_map_[name]) == files.end())
        files.push_back(weight_map_[name]);
    }
    std::ranges::sort(files);
    return files;
  }

  Status copy_file(const std::string& key) {
    YARD_ASSIGN(const storage::ObjectInfo info, source_.head(key));
    YARD_ASSIGN(const uint64_t header_bytes, read_header_size(info));
    std::vector<std::byte> head(header_bytes);
    YARD_TRY(source_.get_range(key, info.etag, 0, head));
    YARD_ASSIGN(const SafetensorsHeader header,
                parse_header(head, info.size_bytes, source_url(key)));
    FileRecord file{data_file_name(manifest_.id, 0, 1, manifest_.files.size()), info.size_bytes,
                    header_bytes, 0};
    BlockSummer summer(header.entries, header_bytes);
    YARD_ASSIGN(const auto upload,
                checkpoints_.store().upload(checkpoints_.folder_of(options_.step) + file.name,
                                            {.size_bytes_hint = info.size_bytes}));
    YARD_TRY(storage::read_in_order(source_, info,
                                    [&](std::span<const std::byte> bytes) {
                                      summer.add(bytes);
                                      return upload->write(bytes);
                                    },
                                    {.stop = options_.stop}));
    YARD_TRY(upload->commit());
    file.header_crc32c = summer.header_crc32c();
    const auto blocks = summer.take();
    for (size_t i = 0; i < header.entries.size(); ++i)
      YARD_TRY(add_tensor(key, header.entries[i], blocks[i]));
    manifest_.files.push_back(std::move(file));
    return Ok{};
  }

  Result<uint64_t> read_header_size(const storage::ObjectInfo& info) {
    std::array<std::byte, 8> first{};
    const auto part = std::span(first).first(std::min<uint64_t>(first.size(), info.size_bytes));
    YARD_TRY(source_.get_range(info.key, info.etag, 0, part));
    return header_size_bytes(part, info.size_bytes, source_url(info.key));
  }

  Status add_tensor(const std::string& key, const FileEntry& entry,
                    const std::vector<uint32_t>& blocks) {
    ChunkRecord chunk{.file_index = static_cast<uint32_t>(manifest_.files.size()),
                      .offset = entry.offset,
                      .block_crc32c = blocks};
    const bool is_new =
        manifest_.tensors.try_emplace(entry.name, TensorRecord{entry.info, {chunk}}).second;
    if (!is_new)
      return Error{Code::kInvalidArgument, fmt::format("{}: tensor '{}' is in another file too",
                                                       source_url(key), entry.name)};
    found_in_[entry.name] = key;
    return Ok{};
  }

  // Every tensor that the index names must be where it says.
  Status check_index() const {
    for (const auto& [name, key] : weight_map_) {
      const auto found = found_in_.find(name);
      if (found == found_in_.end() || found->second != key)
        return Error{
            Code::kInvalidArgument,
            fmt::format("{}: has no tensor '{}', though the index says so", source_url(key), name)};
    }
    return Ok{};
  }

  Status commit() {
    const std::string key = checkpoints_.manifest_key(options_.step);
    const std::string text = format_manifest(manifest_);
    YARD_TRY(parse_manifest(text, checkpoints_.url_of(key)));
    YARD_TRY(storage::put_text(checkpoints_.store(), key, text));
    return Ok{};
  }

  storage::ObjectStore& source_;
  const CheckpointStore& checkpoints_;
  const ImportOptions& options_;
  CheckpointManifest manifest_;
  std::map<std::string, std::string> weight_map_;  // tensor to key, where there is an index
  std::map<std::string, std::string> found_in_;
};

}  // namespace

Result<CheckpointManifest> import_safetensors(storage::ObjectStore& source, std::string_view key,
                                              const CheckpointStore& checkpoints,
                                              const ImportOptions& options) {
  if (options.step < 0)
    return Error{Code::kInvalidArgument, fmt::format("{} is no step", options.step)};
  return Importer(source, checkpoints, options).run(key);
}

}  // namespace yard::checkpoint
