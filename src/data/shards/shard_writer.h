// ShardWriter: samples in, WebDataset shards of about one size out, each with its index.
//
// The same samples and options give the same bytes. A shard becomes visible whole, its index right
// after it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "storage/object_store.h"

namespace yard::shards {

struct ShardWriterOptions {
  std::string prefix = "shard";                 // shards are "<prefix>-000000.tar", and so on
  uint64_t size_bytes_max = uint64_t{1} << 30;  // a single larger sample has a shard of its own
};

struct NewMember {
  std::string extension;  // "txt", "seg.png": what follows the key's dot
  std::span<const std::byte> content;
};

struct ShardSummary {
  std::string key;
  uint64_t size_bytes = 0;
  uint64_t sample_count = 0;
};

// Not thread-safe. Destroying it discards the shard being written.
class ShardWriter {
 public:
  // `store` must outlive the writer. kInvalidArgument: the options are impossible.
  static Result<ShardWriter> create(storage::ObjectStore& store, const ShardWriterOptions& options);
  ShardWriter(ShardWriter&&) noexcept;
  ~ShardWriter();

  // Copies nothing beyond the call. kInvalidArgument: a key or extension that would be read back
  // as another, a key used twice in a shard, no members. The store's Errors, kExhausted when it is
  // full. After an Error the writer refuses everything with it; shards finished before stay.
  Status add(std::string_view key, std::span<const NewMember> members);

  // Finishes the last shard. Call once, last. The shards, in order.
  Result<std::vector<ShardSummary>> finish();

 private:
  struct Impl;
  explicit ShardWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace yard::shards
