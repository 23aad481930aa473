// ChannelConfig: an item of InputDataConfig, checked and with its defaults. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "jobs/host_plan.h"

namespace yard::channels {

enum class ChannelMode { kFile, kFastFile, kPipe };
enum class SourceKind { kPrefix, kManifest, kAugmentedManifest, kDirectory };

struct ChannelConfig {
  std::string name;
  ChannelMode mode = ChannelMode::kFile;
  SourceKind kind = SourceKind::kPrefix;
  std::string uri;                           // of the prefix or manifest
  bool is_sharded = false;                   // ShardedByS3Key
  std::vector<std::string> attribute_names;  // of an augmented manifest, in order
  std::vector<std::string> groups;           // of hosts that get it; empty: all
  bool is_gzip = false;                      // Pipe unpacks it
  bool as_record_io = false;
  std::optional<uint64_t> shuffle_seed;  // Pipe
  std::string directory;                 // of kDirectory
  bool is_writable = false;              // of kDirectory
};

// kInvalidArgument, the channel named: no source or two, an unknown word, what cannot go together.
Result<ChannelConfig> read_channel(const jobs::PlanChannel& channel, const std::string& input_mode);

// One file of File and FastFile mode, one object of Pipe.
struct KeyPath {
  std::string key;
  std::string path;  // below the channel's folder
};
// Where the keys under a prefix go: behind "prefix/" where the prefix is a folder, the name alone
// of a key that is the prefix itself, else behind the prefix's last '/'. Keys of folders (ending in
// '/') are left out. kInvalidArgument: a key that would leave the folder, or two with one path.
Result<std::vector<KeyPath>> paths_of_keys(const std::vector<std::string>& keys,
                                           const std::string& prefix);

// Every `count`-th of the items, from `index` on: whole objects, the same in all hosts.
template <typename T>
std::vector<T> share_of(const std::vector<T>& items, size_t index, size_t count) {
  std::vector<T> share;
  for (size_t i = index; i < items.size(); i += count) share.push_back(items[i]);
  return share;
}

// The order of an epoch, the same on every machine: 0 to count - 1, shuffled by seed and epoch.
std::vector<size_t> shuffled_order(size_t count, uint64_t seed, uint64_t epoch);

// Of a manifest: "[{"prefix": "s3://bucket/x/"}, "a", "b/c"]", or a list of s3:// URLs.
struct ManifestEntry {
  std::string uri;
  std::string path;
};
Result<std::vector<ManifestEntry>> parse_manifest(std::string_view text, std::string_view what);

// MXNet's record: magic, length, content, padded to four bytes. kInvalidArgument: 2^29 bytes or
// more.
Result<std::string> record_io_header(uint64_t size_bytes);
size_t record_io_padding(uint64_t size_bytes);

}  // namespace yard::channels
