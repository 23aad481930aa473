// All shards of a loader as one numbered list of samples.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loader/loader.h"
#include "shards/shard_reader.h"

namespace yard::loader {

// Immutable, thread-safe.
class DataSet {
 public:
  // Where a sample's picture and caption lie.
  struct Place {
    const shards::ShardReader* shard = nullptr;
    uint64_t sample = 0;                                  // in the shard
    const shards::ShardIndex::Member* image = nullptr;    // nullptr: it has none
    const shards::ShardIndex::Member* caption = nullptr;  // nullptr: it has none
  };

  // `store` must outlive the set.
  static Result<DataSet> open(storage::ObjectStore& store, const LoaderOptions& options);

  uint64_t sample_count() const { return ends_.empty() ? 0 : ends_.back(); }
  Place place(uint64_t sample_id) const;
  std::string key(const Place& place) const;  // "shard.tar/sample"
  // kCorrupt, with the members that there are, unless the sample has picture and caption.
  Status check(const Place& place) const;
  Status check_all() const;
  // Whether the shard in the store is still the one that was opened.
  bool is_unchanged(const Place& place) const;

 private:
  storage::ObjectStore* store_ = nullptr;
  std::vector<shards::ShardReader> shards_;
  std::vector<uint64_t> ends_;  // ends_[i]: samples in the shards 0..i
  std::vector<std::string> image_members_;
  std::string caption_member_;
};

}  // namespace yard::loader
