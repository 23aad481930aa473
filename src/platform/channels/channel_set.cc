#include "channels/channel_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "channels/channel_source_internal.h"
#include "channels/files_store.h"
#include "channels/pipe_feeder.h"
#include "mount/mount.h"
#include "transfer/copier.h"

namespace yard::channels {
namespace {

using storage::Location;

bool take_cached(const transfer::Copy& copy, DownloadCache* cache) {
  if (cache == nullptr || cache->size() == 0) return false;
  const auto folder = std::filesystem::path(copy.target_path).parent_path();
  return make_directories(folder).has_value() &&
         cache->take(copy.source_url(), copy.info.etag, copy.target_path);
}

Status download(const std::vector<SourceFile>& files, const std::string& folder,
                const ChannelOptions& options, ChannelProgress& progress) {
  YARD_TRY(make_directories(folder));
  for (const SourceFile& file : files) progress.total_bytes += file.info.size_bytes;
  transfer::CopierOptions copier_options;
  copier_options.transfer.memory_bytes_max = options.memory_bytes;
  copier_options.transfer.stop = options.stop;
  transfer::Copier copier(copier_options, [&](const transfer::Copy& copy, const Status& status) {
    if (!status) return;
    progress.done_bytes += copy.info.size_bytes;
    if (options.cache != nullptr)
      options.cache->note(copy.source_url(), copy.info.etag, copy.target_path);
  });
  for (const SourceFile& file : files) {
    transfer::Copy copy{.source = file.store,
                        .info = file.info,
                        .target_path = folder + "/" + file.path,
                        .target = {},
                        .target_key = {}};
    if (!take_cached(copy, options.cache)) {
      copier.add(std::move(copy));
      continue;
    }
    progress.done_bytes += file.info.size_bytes;
    progress.cached_bytes += file.info.size_bytes;
  }
  return copier.finish();
}

}  // namespace

struct ChannelSet::Impl {
  std::vector<SharedFolder> shared;
  std::vector<std::unique_ptr<mount::Mount>> mounts;
  std::vector<std::unique_ptr<PipeFeeder>> feeders;

  Status open(const ChannelConfig& channel, const ChannelOptions& options,
              ChannelProgress& progress);
  Status open_fast_file(const ChannelConfig& channel, const ChannelOptions& options);
  Status open_pipe(const ChannelConfig& channel, const ChannelOptions& options);
  Status open_directory(const ChannelConfig& channel, const ChannelOptions& options);
};

Status ChannelSet::Impl::open_fast_file(const ChannelConfig& channel,
                                        const ChannelOptions& options) {
  const std::string folder = options.data_dir + "/" + channel.name;
  YARD_TRY(make_directories(folder));
  Location location;
  mount::MountOptions mount;
  const bool is_manifest = channel.kind == SourceKind::kManifest;
  if (is_manifest) {
    YARD_ASSIGN(const auto files, files_of_channel(channel, options));
    YARD_ASSIGN(location.store, FilesStore::make(files, channel.uri));
  } else {
    YARD_ASSIGN(location, options.open(channel.uri));
    mount.prefix =
        location.key.empty() || location.key.ends_with('/') ? location.key : location.key + "/";
  }
  mount.mount_point = folder;
  mount.stop = options.stop;
  mount.drain_max = std::chrono::seconds(2);
  const HostShare share = share_of_host(channel, options);
  // Of a manifest it is a part already.
  if (channel.is_sharded && !is_manifest)
    mount.share =
        mount::ShareOptions{.index = uint32_t(share.index), .count = uint32_t(share.count)};
  YARD_ASSIGN(auto started, mount::Mount::start(location.store, std::move(mount)));
  if (started->was_empty())
    return Error{Code::kNotFound, fmt::format("no objects lie under {}", channel.uri)};
  mounts.push_back(std::move(started));
  return Ok{};
}

Status ChannelSet::Impl::open_pipe(const ChannelConfig& channel, const ChannelOptions& options) {
  std::vector<PipeRecord> records;
  if (channel.kind == SourceKind::kAugmentedManifest) {
    YARD_ASSIGN(records, records_of_manifest(channel, options));
  } else {
    YARD_ASSIGN(auto files, files_of_channel(channel, options));
    for (SourceFile& file : files)
      records.push_back({{.store = file.store, .info = std::move(file.info), .text = {}}});
  }
  YARD_ASSIGN(auto feeder, PipeFeeder::start(channel, std::move(records), options.data_dir));
  feeders.push_back(std::move(feeder));
  return Ok{};
}

Status ChannelSet::Impl::open_directory(const ChannelConfig& channel,
                                        const ChannelOptions& options) {
  // Opening says what is wrong with it better than a failing mount does.
  YARD_TRY(storage::open_directory(channel.directory));
  YARD_TRY(make_directories(options.data_dir + "/" + channel.name));
  shared.push_back({channel.name, channel.directory, channel.is_writable});
  return Ok{};
}

Status ChannelSet::Impl::open(const ChannelConfig& channel, const ChannelOptions& options,
                              ChannelProgress& progress) {
  if (channel.kind == SourceKind::kDirectory) return open_directory(channel, options);
  if (channel.mode == ChannelMode::kFastFile) return open_fast_file(channel, options);
  if (channel.mode == ChannelMode::kPipe) return open_pipe(channel, options);
  YARD_ASSIGN(const auto files, files_of_channel(channel, options));
  return download(files, options.data_dir + "/" + channel.name, options, progress);
}

ChannelSet::ChannelSet(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChannelSet::~ChannelSet() = default;

Result<std::unique_ptr<ChannelSet>> ChannelSet::open(const std::vector<ChannelConfig>& channels,
                                                     const ChannelOptions& options,
                                                     ChannelProgress& progress) {
  YARD_TRY(make_directories(options.data_dir));
  std::unique_ptr<ChannelSet> set(new ChannelSet(std::make_unique<Impl>()));
  for (const ChannelConfig& channel : channels) {
    if (!is_for_group(channel, options.host_groups[options.host_index])) continue;
    if (auto opened = set->impl_->open(channel, options, progress); !opened)
      return std::move(opened).error().while_(fmt::format("channel '{}'", channel.name));
  }
  return set;
}

const std::vector<SharedFolder>& ChannelSet::shared_folders() const {
  return impl_->shared;
}

bool ChannelSet::has_mounts() const {
  return !impl_->mounts.empty();
}

Status ChannelSet::status() const {
  for (const auto& feeder : impl_->feeders) YARD_TRY(feeder->status());
  return Ok{};
}

Status download_prefix(const std::string& url, const std::string& folder,
                       const ChannelOptions& options, ChannelProgress& progress) {
  YARD_ASSIGN(const auto files, files_of_prefix(url, options.open));
  return download(files, folder, options, progress);
}

}  // namespace yard::channels
