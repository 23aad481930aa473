// What becomes of a block: its contents are read and verified, then it is written in its turn.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "shards/member_picture_internal.h"
#include "shards/shard_assembly.h"
#include "shards/shard_block_internal.h"
#include "shards/shard_index.h"

namespace yard::shards {

// One of the block's reads. Of contents that are whole in it checksum and picture's size are noted.
// kCorrupt, naming object and member: another checksum than it must have.
Status run_read(Block& block, const BlockRead& read);

// Writes blocks, one after the other, from whichever thread has the next. Nothing is written behind
// the first error.
class BlockWriter {
 public:
  // All must outlive the writer.
  BlockWriter(storage::ObjectStore& target, std::span<const PlannedShard> shards,
              const AssemblyOptions& options)
      : target_(target), shards_(shards), options_(options) {}

  Status write(Block& block);
  void fail() { has_failed_ = true; }              // thread-safe
  bool has_failed() const { return has_failed_; }  // thread-safe

 private:
  Status write_block(Block& block);
  Status add(const Block& block, const BlockPiece& piece);
  Status finish(Block& block);

  storage::ObjectStore& target_;
  const std::span<const PlannedShard> shards_;
  const AssemblyOptions& options_;
  std::unique_ptr<storage::Upload> upload_;
  std::string key_;
  ShardIndexBuilder index_;
  // Of a content that comes in parts.
  uint32_t checksum_ = 0;
  std::optional<MemberPicture> picture_;
  std::atomic<bool> has_failed_ = false;
};

// Whose turn it is to write. Thread-safe.
class Turns {
 public:
  void wait_for(uint64_t number);
  void end();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t next_ = 0;
  int waiting_count_ = 0;
};

// Blocks whose files lie on this machine: each of `thread_count` threads lays a block down, reads
// it, and writes it in its turn, while it is still in its core's cache. From another core's cache
// it would take three times as long. As assemble_shards().
Status assemble_locally(BlockMaker& maker, BlockWriter& writer, int thread_count,
                        const StopToken& stop, const AssemblyEvents& events);

}  // namespace yard::shards
