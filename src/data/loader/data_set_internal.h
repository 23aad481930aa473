// All shards of a loader as one numbered list of samples.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "loader/loader.h"
#include "shards/shard_reader.h"

namespace yard::loader {

// Thread-safe. Indexes are kept in memory up to LoaderOptions::index_bytes_max; of those beyond,
// the ones used last.
class DataSet {
 public:
  // Where a sample's picture and caption lie.
  struct Place {
    std::shared_ptr<const shards::ShardReader> shard;
    uint64_t sample = 0;                                  // in the shard
    const shards::ShardIndex::Member* image = nullptr;    // nullptr: it has none
    const shards::ShardIndex::Member* caption = nullptr;  // nullptr: it has none
  };

  // Of kIndependent, the shards of the options' rank. The stores must outlive the set.
  static Result<std::unique_ptr<DataSet>> open(storage::ObjectStore& store,
                                               const LoaderOptions& options);

  uint64_t sample_count() const { return shards_.empty() ? 0 : shards_.back().end; }
  // As SamplePlanOptions::sources: empty for one.
  const std::vector<shards::WeightedSource>& sources() const { return sources_; }

  Result<Place> place(uint64_t sample_id);
  std::string key(const Place& place) const;  // "shard.tar/sample"
  // kCorrupt, with the members that there are, unless the sample has picture and caption.
  Status check(const Place& place) const;
  // Of the shards whose indexes are in memory.
  Status check_all();
  // Whether the shard in the store is still the one that was opened.
  bool is_unchanged(uint64_t sample_id);
  bool is_remote() const { return is_remote_; }

 private:
  struct Shard {
    storage::ObjectStore* store = nullptr;
    std::string key;
    uint64_t end = 0;  // samples in this shard and those before it
    std::string etag;  // of the version that was opened first; empty: none was
    std::shared_ptr<const shards::ShardReader> reader;  // nullptr: not in memory
    bool is_kept = false;
    std::list<size_t>::iterator recent;  // of one that is in memory and not kept
  };

  explicit DataSet(const LoaderOptions& options);
  Status add_source(const SourceOptions& source, storage::ObjectStore& store,
                    const LoaderOptions& options);
  Status open_shards(const LoaderOptions& options);
  Status open_shard(Shard& shard, uint64_t& sample_count);
  size_t shard_of(uint64_t sample_id) const;
  Result<std::shared_ptr<const shards::ShardReader>> reader_of(size_t number);
  Status remember(size_t number, const std::shared_ptr<const shards::ShardReader>& reader);

  const uint64_t index_bytes_max_;
  std::vector<std::string> image_members_;
  const std::string caption_member_;
  const bool is_raw_;
  bool is_remote_ = false;
  std::vector<shards::WeightedSource> sources_;
  std::vector<size_t> source_ends_;  // numbers of shards
  std::mutex mutex_;
  std::vector<Shard> shards_;  // readers, etags and lists of recent ones: under the mutex
  std::list<size_t> recent_;   // numbers of shards in memory that are not kept, the latest first
  uint64_t kept_bytes_ = 0;
  uint64_t recent_bytes_ = 0;
};

}  // namespace yard::loader
