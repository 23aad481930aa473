// write_shard_set(): shards of one prefix, made by assemble_shards(), that a broken-off run leaves
// so that the same run can go on.
//
// While it works, "<prefix>.packing" beside the shards says how many of them are done and of which
// plan. A second run with the same plan goes on behind them; the last thing it does is to remove
// that object. Another plan is refused, unless it may replace what is there.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "shards/shard_assembly.h"

namespace yard::shards {

struct ShardSetOptions {
  ShardWriterOptions shards;
  uint64_t memory_bytes = uint64_t{256} << 20;
  // Shards of the same prefix that are already there: refused, or replaced one by one; those that
  // are left over at the end are removed.
  bool replace = false;
};

struct ShardSet {
  std::vector<ShardSummary> shards;
  uint64_t resumed_count = 0;  // of them, made by the run before
};

// Shards and indexes of the prefix, by key.
Result<std::vector<std::string>> existing_shards(storage::ObjectStore& target,
                                                 const std::string& prefix);

// Of those, what is not among the shards that were written now.
Status remove_left_over(storage::ObjectStore& target, const std::vector<std::string>& existing,
                        const std::vector<ShardSummary>& written);

// kInvalidArgument: nothing to write, shards that are there already, or as plan_shards(). Other
// Errors as assemble_shards(). `samples_done` may be empty.
Result<ShardSet> write_shard_set(storage::ObjectStore& target,
                                 std::span<const SampleSource> samples,
                                 const ShardSetOptions& options, const StopToken& stop,
                                 const std::function<void(uint64_t)>& samples_done);

}  // namespace yard::shards
