#include "channels/channel_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/random.h"
#include "channels/tar_tree.h"

namespace yard::channels {
namespace {

Error invalid(std::string message) {
  return {Code::kInvalidArgument, std::move(message)};
}

// The index of the word in `words`; kInvalidArgument for another one.
Result<size_t> word_or(const Json& json, std::string_view key,
                       std::initializer_list<std::string_view> words, std::string_view what) {
  YARD_ASSIGN(const auto text,
              json_field_or<std::string>(json, key, std::string(*words.begin()), what));
  const auto found = std::find(words.begin(), words.end(), std::string_view(text));
  if (found != words.end()) return size_t(found - words.begin());
  return invalid(fmt::format("{}: {} '{}' is not known here", what, key, text));
}

Result<std::string> text_or(const Json& json, std::string_view key, std::string fallback,
                            std::string_view what) {
  return json_field_or<std::string>(json, key, std::move(fallback), what);
}

Status read_s3_source(const Json& source, const std::string& what, ChannelConfig& channel) {
  YARD_ASSIGN(
      const size_t kind,
      word_or(source, "S3DataType", {"S3Prefix", "ManifestFile", "AugmentedManifestFile"}, what));
  channel.kind = static_cast<SourceKind>(kind);
  YARD_ASSIGN(channel.uri, json_field<std::string>(source, "S3Uri", what));
  YARD_ASSIGN(const size_t distribution, word_or(source, "S3DataDistributionType",
                                                 {"FullyReplicated", "ShardedByS3Key"}, what));
  channel.is_sharded = distribution == 1;
  using Names = std::vector<std::string>;
  YARD_ASSIGN(channel.attribute_names, json_field_or<Names>(source, "AttributeNames", {}, what));
  YARD_ASSIGN(channel.groups, json_field_or<Names>(source, "InstanceGroupNames", {}, what));
  return Ok{};
}

Status read_file_system(const Json& source, const std::string& what, const std::string& directory,
                        ChannelConfig& channel) {
  channel.kind = SourceKind::kDirectory;
  if (directory.empty()) {
    YARD_ASSIGN(const std::string id, text_or(source, "FileSystemId", "", what));
    return invalid(fmt::format("{}: file system '{}' is not mapped to a directory here", what, id));
  }
  YARD_ASSIGN(std::string inside, text_or(source, "DirectoryPath", "", what));
  channel.directory = directory;
  // "/" and nothing both mean the file system's root.
  if (inside.find_first_not_of('/') != std::string::npos) {
    YARD_ASSIGN(const std::string below,
                inner_path(std::string_view(inside).substr(inside.find_first_not_of('/'))));
    channel.directory += "/" + below;
  }
  YARD_ASSIGN(const size_t access, word_or(source, "FileSystemAccessMode", {"ro", "rw"}, what));
  channel.is_writable = access == 1;
  return Ok{};
}

Status read_source(const jobs::PlanChannel& channel, const std::string& what,
                   ChannelConfig& config) {
  YARD_ASSIGN(const Json source, json_field<Json>(channel.config, "DataSource", what));
  const bool is_s3 = source.is_object() && source.contains("S3DataSource");
  const bool is_files = source.is_object() && source.contains("FileSystemDataSource");
  if (is_s3 == is_files) return invalid(what + ": names one source of data, S3 or a file system");
  if (is_s3) return read_s3_source(source["S3DataSource"], what, config);
  return read_file_system(source["FileSystemDataSource"], what, channel.directory, config);
}

Status check_together(const ChannelConfig& channel, const std::string& what) {
  const bool is_pipe = channel.mode == ChannelMode::kPipe;
  if (channel.kind == SourceKind::kAugmentedManifest && !is_pipe)
    return invalid(what + ": an augmented manifest needs the input mode Pipe");
  if (channel.kind == SourceKind::kAugmentedManifest && channel.attribute_names.empty())
    return invalid(what + ": an augmented manifest needs AttributeNames");
  if (channel.kind == SourceKind::kDirectory && is_pipe)
    return invalid(what + ": a file system has no input mode Pipe");
  return Ok{};
}

}  // namespace

Result<ChannelConfig> read_channel(const jobs::PlanChannel& channel,
                                   const std::string& input_mode) {
  ChannelConfig config;
  const Json& json = channel.config;
  YARD_ASSIGN(config.name, json_field<std::string>(json, "ChannelName", "channel"));
  const std::string what = fmt::format("channel '{}'", config.name);
  YARD_TRY(read_source(channel, what, config));
  const Json own_mode = json.contains("InputMode") ? json : Json{{"InputMode", input_mode}};
  YARD_ASSIGN(const size_t mode,
              word_or(own_mode, "InputMode", {"File", "FastFile", "Pipe"}, what));
  config.mode = static_cast<ChannelMode>(mode);
  YARD_ASSIGN(const size_t compression, word_or(json, "CompressionType", {"None", "Gzip"}, what));
  config.is_gzip = compression == 1;
  YARD_ASSIGN(const size_t wrapper, word_or(json, "RecordWrapperType", {"None", "RecordIO"}, what));
  config.as_record_io = wrapper == 1;
  if (const auto shuffle = json.find("ShuffleConfig"); shuffle != json.end()) {
    YARD_ASSIGN(const int64_t seed, json_field<int64_t>(*shuffle, "Seed", what));
    config.shuffle_seed = static_cast<uint64_t>(seed);
  }
  YARD_TRY(check_together(config, what));
  return config;
}

Result<std::vector<KeyPath>> paths_of_keys(const std::vector<std::string>& keys,
                                           const std::string& prefix) {
  const std::string folder = prefix.empty() || prefix.ends_with('/') ? prefix : prefix + "/";
  const size_t cut = prefix.rfind('/') == std::string::npos ? 0 : prefix.rfind('/') + 1;
  std::vector<KeyPath> paths;
  std::set<std::string> taken;
  for (const std::string& key : keys) {
    if (!key.starts_with(prefix) || key.ends_with('/')) continue;
    size_t begin = key.starts_with(folder) ? folder.size() : cut;
    while (key[begin] == '/') ++begin;  // an empty part, which a file system does not have
    auto path = inner_path(std::string_view(key).substr(begin));
    if (!path) return std::move(path).error().while_(key);
    if (!taken.insert(*path).second)
      return invalid(fmt::format("two objects would become the file '{}'", *path));
    paths.push_back({key, *std::move(path)});
  }
  return paths;
}

std::vector<size_t> shuffled_order(size_t count, uint64_t seed, uint64_t epoch) {
  std::vector<size_t> order(count);
  if (count == 0) return order;
  const RandomPermutation permutation(count, seed, epoch);
  for (size_t i = 0; i < count; ++i) order[i] = size_t(permutation.permute(i));
  return order;
}

Result<std::vector<ManifestEntry>> parse_manifest(std::string_view text, std::string_view what) {
  YARD_ASSIGN(const Json list, parse_json(text, what));
  if (!list.is_array()) return invalid(fmt::format("{}: no manifest: not a list", what));
  std::vector<ManifestEntry> entries;
  std::string prefix;
  for (const Json& item : list) {
    if (item.is_object() && entries.empty() && prefix.empty()) {
      YARD_ASSIGN(prefix, json_field<std::string>(item, "prefix", what));
      continue;
    }
    if (!item.is_string()) return invalid(fmt::format("{}: an entry is no text", what));
    const std::string name = item.get<std::string>();
    const std::string_view url_mark = "s3://";
    std::string path = name;
    if (prefix.empty()) {
      if (!name.starts_with(url_mark) || name.find('/', url_mark.size()) == std::string::npos)
        return invalid(fmt::format("{}: '{}' has no prefix and is no s3:// URL", what, name));
      path = name.substr(name.find('/', url_mark.size()) + 1);
    }
    auto inner = inner_path(path);
    if (!inner) return std::move(inner).error().while_(what);
    entries.push_back({prefix + name, *std::move(inner)});
  }
  return entries;
}

Result<std::string> record_io_header(uint64_t size_bytes) {
  constexpr uint32_t kMagic = 0xced7230a;
  if (size_bytes >= uint64_t{1} << 29)
    return invalid(fmt::format("{} bytes are too many for a RecordIO record", size_bytes));
  std::string header;
  for (const uint32_t word : {kMagic, uint32_t(size_bytes)})
    for (int shift = 0; shift < 32; shift += 8) header += char((word >> shift) & 255);
  return header;
}

size_t record_io_padding(uint64_t size_bytes) {
  return size_t((4 - size_bytes % 4) % 4);
}

}  // namespace yard::channels
