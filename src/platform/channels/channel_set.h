// ChannelSet: the input of one host of a job: downloads, FastFile mounts, pipes, shared folders.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/stop_token.h"
#include "channels/channel_config.h"
#include "channels/download_cache.h"
#include "jobs/host_plan.h"
#include "storage/object_store.h"

namespace yard::channels {

// Opens what an s3:// URL names; thread-safe.
using OpenUrl = std::function<Result<storage::Location>(const std::string& url)>;

struct ChannelOptions {
  OpenUrl open;
  std::string data_dir;                         // /opt/ml/input/data of the host
  size_t host_index = 0;                        // ours, in the order of ranks
  std::vector<std::string> host_groups{{}};     // of all hosts, in that order
  uint64_t memory_bytes = uint64_t{256} << 20;  // of the downloads' buffers
  DownloadCache* cache = nullptr;  // what it holds of the same version is not downloaded again
  StopToken stop;
};

// Bytes of downloads; may be read while they run.
struct ChannelProgress {
  std::atomic<uint64_t> total_bytes = 0;
  std::atomic<uint64_t> done_bytes = 0;
  std::atomic<uint64_t> cached_bytes = 0;  // of those, taken from the cache
};

struct SharedFolder {
  std::string channel;
  std::string directory;
  bool is_writable = false;
};

class ChannelSet {
 public:
  // Lists, downloads, mounts and makes the pipes of all channels; returns when a script may read.
  // kNotFound: nothing lies under a channel's prefix; kInvalidArgument: a channel that cannot be;
  // kExhausted: the disk is full; kCancelled; the store's codes. The channel is named.
  static Result<std::unique_ptr<ChannelSet>> open(const std::vector<ChannelConfig>& channels,
                                                  const ChannelOptions& options,
                                                  ChannelProgress& progress);
  ~ChannelSet();  // takes mounts off, ends pipes

  // To be bound into the sandbox at /opt/ml/input/data/CHANNEL.
  const std::vector<SharedFolder>& shared_folders() const;
  bool has_mounts() const;
  // What went wrong since: a pipe that ended too soon.
  Status status() const;

 private:
  struct Impl;
  explicit ChannelSet(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

// Every object under `url`, as File mode would have it, below `folder`. Ok also when there is none.
Status download_prefix(const std::string& url, const std::string& folder,
                       const ChannelOptions& options, ChannelProgress& progress);

}  // namespace yard::channels
