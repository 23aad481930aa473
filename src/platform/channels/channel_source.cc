#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "channels/channel_source_internal.h"
#include "storage/transfer_pool.h"

namespace yard::channels {
namespace {

using storage::Location;
using storage::ObjectInfo;

constexpr uint64_t kManifestBytesMax = uint64_t{1} << 30;

// Asks for all of them at once: a manifest names its objects one by one.
Result<std::vector<SourceFile>> heads_of(const std::vector<ManifestEntry>& entries,
                                         const ChannelOptions& options) {
  std::vector<SourceFile> files(entries.size());
  std::mutex mutex;
  Status first = Ok{};
  {
    storage::TransferPool pool({.stop = options.stop});
    const auto fail = [&](Error error) {
      const std::lock_guard lock(mutex);
      if (first) first = std::move(error);
    };
    for (size_t i = 0; i < entries.size(); ++i) {
      const auto task = [&, i]() -> Result<uint64_t> {
        auto location = options.open(entries[i].uri);
        auto info =
            location ? location->store->head(location->key) : Result<ObjectInfo>(location.error());
        if (!info) {
          fail(info.error());
          return info.error();
        }
        files[i] = {location->store, *std::move(info), entries[i].path};
        return uint64_t{1};
      };
      pool.push(0, task, [&] { fail({Code::kCancelled, "stopped"}); });
    }
    pool.wait_until_idle();
  }
  YARD_TRY(first);
  return files;
}

Result<std::string> read_manifest(const ChannelConfig& channel, const ChannelOptions& options) {
  YARD_ASSIGN(const Location location, options.open(channel.uri));
  return storage::get_all(*location.store, location.key, kManifestBytesMax);
}

Result<PipePart> part_of_attribute(const Json& line, const std::string& name,
                                   const std::string& what, const ChannelOptions& options) {
  const auto found = line.find(name);
  if (found == line.end())
    return Error{Code::kInvalidArgument, fmt::format("{}: attribute '{}' is missing", what, name)};
  if (!name.ends_with("-ref"))
    return PipePart{nullptr, {}, found->is_string() ? found->get<std::string>() : found->dump()};
  if (!found->is_string())
    return Error{Code::kInvalidArgument, fmt::format("{}: '{}' is no URL", what, name)};
  YARD_ASSIGN(const Location location, options.open(found->get<std::string>()));
  YARD_ASSIGN(ObjectInfo info, location.store->head(location.key));
  return PipePart{location.store, std::move(info), {}};
}

}  // namespace

HostShare share_of_host(const ChannelConfig& channel, const ChannelOptions& options) {
  HostShare share{0, 0};
  for (size_t i = 0; i < options.host_groups.size(); ++i) {
    if (!is_for_group(channel, options.host_groups[i])) continue;
    if (i < options.host_index) ++share.index;
    ++share.count;
  }
  return share;
}

bool is_for_group(const ChannelConfig& channel, const std::string& group) {
  return channel.groups.empty() || std::ranges::find(channel.groups, group) != channel.groups.end();
}

Result<std::vector<SourceFile>> files_of_prefix(const std::string& url, const OpenUrl& open) {
  YARD_ASSIGN(const Location location, open(url));
  YARD_ASSIGN(auto objects, storage::list_all(*location.store, location.key));
  std::map<std::string, ObjectInfo> by_key;
  std::vector<std::string> keys;
  for (ObjectInfo& info : objects) {
    keys.push_back(info.key);
    by_key[info.key] = std::move(info);
  }
  YARD_ASSIGN(const auto paths, paths_of_keys(keys, location.key));
  std::vector<SourceFile> files;
  for (const KeyPath& item : paths) files.push_back({location.store, by_key[item.key], item.path});
  return files;
}

Result<std::vector<SourceFile>> files_of_channel(const ChannelConfig& channel,
                                                 const ChannelOptions& options) {
  std::vector<SourceFile> files;
  const HostShare share = share_of_host(channel, options);
  if (channel.kind == SourceKind::kManifest) {
    YARD_ASSIGN(const std::string text, read_manifest(channel, options));
    YARD_ASSIGN(auto entries, parse_manifest(text, channel.uri));
    if (channel.is_sharded) entries = share_of(entries, share.index, share.count);
    return heads_of(entries, options);
  }
  YARD_ASSIGN(files, files_of_prefix(channel.uri, options.open));
  if (files.empty())
    return Error{Code::kNotFound, fmt::format("no objects lie under {}", channel.uri)};
  if (channel.is_sharded) files = share_of(files, share.index, share.count);
  return files;
}

Result<std::vector<PipeRecord>> records_of_manifest(const ChannelConfig& channel,
                                                    const ChannelOptions& options) {
  YARD_ASSIGN(const std::string text, read_manifest(channel, options));
  const HostShare share = share_of_host(channel, options);
  std::vector<PipeRecord> records;
  size_t line_number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const size_t index = line_number++;
    if (channel.is_sharded && index % share.count != share.index) continue;
    const std::string what = fmt::format("{}, line {}", channel.uri, index + 1);
    YARD_ASSIGN(const Json json, parse_json(line, what));
    PipeRecord record;
    for (const std::string& name : channel.attribute_names) {
      YARD_ASSIGN(PipePart part, part_of_attribute(json, name, what, options));
      record.push_back(std::move(part));
    }
    records.push_back(std::move(record));
  }
  if (line_number == 0)
    return Error{Code::kNotFound, fmt::format("no records are in {}", channel.uri)};
  return records;
}

}  // namespace yard::channels
