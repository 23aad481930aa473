// PrepShard: one shard being written: tar, then index.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "shards/shard_index.h"
#include "shards/shard_writer.h"
#include "storage/object_store.h"

namespace yard::prep {

// Not thread-safe. Destroyed before commit() it leaves nothing.
class PrepShard {
 public:
  // `store` must outlive it.
  static Result<PrepShard> begin(storage::ObjectStore& store, std::string key);

  // Errors as ShardWriter::add().
  Status add(std::string_view sample_key, std::span<const shards::NewMember> members);
  // The shard's size if that sample were added, its end included.
  uint64_t size_bytes_with(std::string_view sample_key,
                           std::span<const shards::NewMember> members) const;
  // Durable and visible afterwards, and its index right after it.
  Result<storage::ObjectInfo> commit();

  const std::string& key() const { return key_; }
  uint64_t sample_count() const { return index_.sample_count(); }

 private:
  PrepShard(storage::ObjectStore& store, std::string key, std::unique_ptr<storage::Upload> upload)
      : store_(&store), key_(std::move(key)), upload_(std::move(upload)) {}
  Status write(std::span<const std::byte> bytes);
  Status flush();

  storage::ObjectStore* store_;
  std::string key_;
  std::unique_ptr<storage::Upload> upload_;
  std::vector<std::byte> buffer_;
  uint64_t size_bytes_ = 0;
  shards::ShardIndexBuilder index_;
};

}  // namespace yard::prep
