// Into shards: a tree of files (files that share folder and name up to the first dot are one
// sample: "cats/7.png" and "cats/7.txt" become sample "cats/7"), or what a manifest lists.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/stop_token.h"
#include "shards/bad_sample.h"
#include "shards/shard_set.h"
#include "shards/shard_writer.h"
#include "storage/object_store.h"

namespace yard::shards {

// The files of one sample, by name.
struct SampleFiles {
  std::string key;
  std::vector<storage::ObjectInfo> files;
};

struct FileGroups {
  std::vector<SampleFiles> samples;  // by key
  std::vector<std::string> ignored;  // files that belong to no sample: without a dot, or hidden
};

// Pure. Of the files keeps those with one of `extensions` (lower case), all when that is empty.
// kInvalidArgument, naming both: two files of a sample whose extensions differ only in case.
Result<FileGroups> group_files(std::vector<storage::ObjectInfo> files,
                               const std::vector<std::string>& extensions);

enum class MissingPolicy { kFail, kSkip };

struct PackOptions {
  ShardWriterOptions shards;
  std::vector<std::string> extensions;  // members to take; empty: all
  std::vector<std::string> picture_extensions = {"png", "jpg", "jpeg", "webp"};
  std::string caption_extension = "txt";
  // Of a tree: a picture without a caption. kSkip leaves it out and reports it.
  MissingPolicy missing_caption = MissingPolicy::kFail;
  // Of a tree: a sample without a picture, where there are pictures.
  MissingPolicy missing_picture = MissingPolicy::kFail;
  // Shards of the same prefix that are already there: refused, or replaced one by one; those that
  // are left over at the end are removed.
  bool replace = false;
  // Samples that no shard can hold, of a manifest also those of which a file is missing.
  BadSampleSink on_bad;
  uint64_t memory_bytes = uint64_t{256} << 20;
};

struct PackReport {
  std::vector<ShardSummary> shards;
  uint64_t sample_count = 0;
  uint64_t member_bytes = 0;
  uint64_t resumed_count = 0;                // shards that a run before had made
  std::vector<std::string> without_caption;  // keys left out
  std::vector<std::string> without_picture;
  std::vector<std::string> ignored;
};

struct PackProgress {
  uint64_t sample_count = 0;
  uint64_t samples_done = 0;
};

// A folder of a store: keys under `prefix`, which is empty or ends in '/'.
struct PackTree {
  std::shared_ptr<storage::ObjectStore> store;
  std::string prefix;
};

// Blocking. `progress` may be empty. Files are read once, by many requests at once, each pinned as
// it was listed; written is the same whatever came first. A run that is broken off leaves whole
// shards only, and the same call goes on behind them. kInvalidArgument: nothing to pack, a policy's
// file by name, shards already there; kCorrupt: a file changed meanwhile; kCancelled.
Result<PackReport> pack(const PackTree& source, storage::ObjectStore& target,
                        const PackOptions& options, const StopToken& stop,
                        const std::function<void(const PackProgress&)>& progress);

struct PackManifest {
  std::string url;   // for messages
  std::string text;  // JSON lines
  // What a path or URL of the manifest means.
  std::function<Result<storage::Location>(const std::string&)> open;
};
// The same of the manifest's samples, in its order. Errors name the manifest's line. kNotFound: a
// file is missing; kInvalidArgument: a key twice, or a line that is not as it should be.
Result<PackReport> pack(const PackManifest& source, storage::ObjectStore& target,
                        const PackOptions& options, const StopToken& stop,
                        const std::function<void(const PackProgress&)>& progress);

}  // namespace yard::shards
