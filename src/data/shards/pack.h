// pack(): a tree of files into shards. Files that share folder and name up to the first dot are one
// sample: "cats/7.png" and "cats/7.txt" become sample "cats/7".
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/stop_token.h"
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
Result<FileGroups> group_files(const std::vector<storage::ObjectInfo>& files,
                               const std::vector<std::string>& extensions);

enum class MissingPolicy { kFail, kSkip };

struct PackOptions {
  ShardWriterOptions shards;
  std::vector<std::string> extensions;  // members to take; empty: all
  std::vector<std::string> picture_extensions = {"png", "jpg", "jpeg", "webp"};
  std::string caption_extension = "txt";
  // A picture without a caption. kSkip leaves it out and reports it.
  MissingPolicy missing_caption = MissingPolicy::kFail;
  // A sample without a picture, in a tree that has pictures.
  MissingPolicy missing_picture = MissingPolicy::kFail;
  // Shards of the same prefix that are already there: refused, or replaced one by one; those that
  // are left over at the end are removed.
  bool replace = false;
};

struct PackReport {
  std::vector<ShardSummary> shards;
  uint64_t sample_count = 0;
  uint64_t member_bytes = 0;
  std::vector<std::string> without_caption;  // keys left out
  std::vector<std::string> without_picture;
  std::vector<std::string> ignored;
};

struct PackProgress {
  uint64_t sample_count = 0;
  uint64_t samples_done = 0;
};

// Blocking, on the calling thread; holds one sample in memory. `progress` may be empty. Files are
// read once, each pinned as it was listed. kInvalidArgument: nothing to pack, a policy's file by
// name, shards already there; kCancelled.
Result<PackReport> pack(storage::ObjectStore& source, storage::ObjectStore& target,
                        const PackOptions& options, const StopToken& stop,
                        const std::function<void(const PackProgress&)>& progress);

}  // namespace yard::shards
