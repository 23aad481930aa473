// Samples of shards into other shards: of another size or order, split into parts, unpacked,
// without what is bad in them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/stop_token.h"
#include "shards/bad_sample.h"
#include "shards/shard_set.h"
#include "storage/object_store.h"

namespace yard::shards {

struct ShardSource {
  std::shared_ptr<storage::ObjectStore> store;
  std::string key;
  std::string url() const { return store->url() + "/" + key; }
};

// One part of a split. Exactly one of the two is set, or neither: what the others leave.
struct SplitPart {
  std::string name;
  std::optional<double> weight;   // share of the samples, of the sum of all weights
  std::optional<uint64_t> count;  // so many samples
};
// Pure: the part of each key. Depends on each key and the seed alone where parts have weights, and
// on the set of keys where they have counts, never on the order; a key that is there twice falls
// into one part. kInvalidArgument: weights and counts mixed, more than one rest, none with weights,
// fewer samples than the counts ask for, a weight below 0 or no name.
Result<std::vector<uint32_t>> split_keys(std::span<const std::string_view> keys,
                                         std::span<const SplitPart> parts, uint64_t seed);

struct RewriteOptions {
  // Shards are "<prefix>-000000.tar" of the one part, "<folder of prefix><part>-000000.tar" of
  // more.
  ShardSetOptions set;
  std::vector<SplitPart> parts;          // empty: one, named by the prefix
  std::optional<uint64_t> shuffle_seed;  // none: in the order of the sources
  uint64_t split_seed = 0;
  // Puts the source shard's name before each key, as "a-000001/key": keys of different shards that
  // are the same stay apart.
  bool prefix_keys = false;
  bool group_by_key = false;
  BadSampleSink on_bad;
};

struct RewriteReport {
  struct Part {
    std::string name;
    std::vector<ShardSummary> shards;
    uint64_t sample_count = 0;
  };
  std::vector<Part> parts;
  uint64_t resumed_count = 0;
};

// Blocking; every content is checked against its index or scan. Plain shards are read in places by
// many requests at once, and a run that was broken off goes on as write_shard_set() says.
// Compressed ones are read from front to back, in order only: shuffle_seed is kInvalidArgument
// then. So are two samples of one key that would come into one shard, and a target that would
// replace a source. kCorrupt: a bad sample, where there is no on_bad.
Result<RewriteReport> rewrite(std::span<const ShardSource> sources, storage::ObjectStore& target,
                              const RewriteOptions& options, const StopToken& stop,
                              const std::function<void(uint64_t done, uint64_t total)>& progress);

}  // namespace yard::shards
