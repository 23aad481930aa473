// Blocks: the bytes of planned shards, cut into pieces that are read and written at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "images/view.h"
#include "shards/shard_assembly.h"

namespace yard::shards {

// A member's content, or a part of it, in a block.
struct BlockPiece {
  const SampleSource* sample = nullptr;
  const MemberSource* member = nullptr;
  uint64_t position = 0;  // in the content
  size_t size_bytes = 0;
  size_t at = 0;              // in the block
  uint64_t shard_offset = 0;  // of the whole content
  // Once it is read, where it is whole.
  uint32_t crc32c = 0;
  std::optional<images::Size> picture;

  bool is_first() const { return position == 0; }
  bool is_last() const { return position + size_bytes == member->size_bytes; }
  bool is_whole() const { return is_first() && is_last(); }
  uint64_t source_offset() const { return member->offset + position; }
};

// The bytes [begin, end) of an object, for pieces that follow each other.
struct BlockRead {
  size_t first_piece = 0;
  size_t piece_count = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct Block {
  uint64_t shard = 0;
  std::unique_ptr<std::byte[]> bytes;  // of BlockMaker's size
  size_t size_bytes = 0;
  bool ends_shard = false;
  uint64_t samples_done = 0;             // of all, once it is written
  std::optional<ShardSummary> finished;  // where it ended its shard
  std::vector<BlockPiece> pieces;
  std::vector<BlockRead> reads;

  std::span<std::byte> content(const BlockPiece& piece) const {
    return {bytes.get() + piece.at, piece.size_bytes};
  }
};

// Lays the shards down block by block: headers, padding and texts are in their places, the rest is
// to be read. Not thread-safe.
class BlockMaker {
 public:
  BlockMaker(std::span<const SampleSource> samples, std::span<const PlannedShard> shards,
             uint64_t first_shard, uint64_t block_bytes)
      : samples_(samples), shards_(shards), block_bytes_(block_bytes), shard_(first_shard) {
    if (shard_ < shards_.size()) sample_ = shards_[shard_].first_sample;
  }

  std::unique_ptr<Block> next();  // nullptr past the last
  // Its memory is used again: fresh pages cost as much as filling them.
  void recycle(std::unique_ptr<Block> block) { spare_.push_back(std::move(block)); }

 private:
  void advance();
  void add_piece(Block& block);
  void add_read(Block& block) const;

  std::vector<std::unique_ptr<Block>> spare_;
  const std::span<const SampleSource> samples_;
  const std::span<const PlannedShard> shards_;
  const uint64_t block_bytes_;
  uint64_t shard_;
  uint64_t sample_ = 0;
  size_t member_ = 0;
  uint64_t shard_bytes_ = 0;      // laid down of this shard
  std::vector<std::byte> frame_;  // header or padding that is to come first
  size_t frame_done_ = 0;
  const SampleSource* content_sample_ = nullptr;  // of the content that follows
  const MemberSource* content_ = nullptr;         // nullptr: none
  uint64_t content_done_ = 0;
  uint64_t content_offset_ = 0;
  bool is_ending_ = false;  // the frame is the end mark
};

}  // namespace yard::shards
