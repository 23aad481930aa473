#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "shards/shard_block_internal.h"
#include "shards/shard_layout_internal.h"

namespace yard::shards {
namespace {

// Bytes that cost less to read and drop than another request does.
constexpr uint64_t kGapBytesMax = 64 << 10;

}  // namespace

std::unique_ptr<Block> BlockMaker::next() {
  if (shard_ >= shards_.size()) return nullptr;
  auto block = std::make_unique<Block>();
  if (spare_.empty()) {
    block->bytes = std::make_unique_for_overwrite<std::byte[]>(block_bytes_);
  } else {
    block->bytes = std::move(spare_.back()->bytes);
    spare_.pop_back();
  }
  block->shard = shard_;
  while (block->size_bytes < block_bytes_) {
    if (frame_done_ < frame_.size()) {
      const size_t size = std::min(frame_.size() - frame_done_, block_bytes_ - block->size_bytes);
      std::memcpy(block->bytes.get() + block->size_bytes, frame_.data() + frame_done_, size);
      frame_done_ += size;
      block->size_bytes += size;
      shard_bytes_ += size;
    } else if (is_ending_) {
      block->ends_shard = true;
      is_ending_ = false;
      shard_bytes_ = 0;
      ++shard_;
      return block;
    } else if (content_ != nullptr) {
      add_piece(*block);
    } else {
      advance();
    }
  }
  return block;
}

// What comes behind a content: its padding, then the next header or the shard's end.
void BlockMaker::advance() {
  frame_.assign(padded_to_block(shard_bytes_) - shard_bytes_, std::byte{0});
  frame_done_ = 0;
  const PlannedShard& shard = shards_[shard_];
  if (sample_ == shard.first_sample + shard.sample_count) {
    frame_.resize(frame_.size() + kEndMarkBytes);
    is_ending_ = true;
    return;
  }
  content_sample_ = &samples_[sample_];
  content_ = &content_sample_->members[member_];
  const auto header = tar_member_header(member_name(content_sample_->key, content_->extension),
                                        content_->size_bytes);
  frame_.insert(frame_.end(), header.begin(), header.end());
  content_offset_ = shard_bytes_ + frame_.size();
  content_done_ = 0;
  if (++member_ < content_sample_->members.size()) return;
  member_ = 0;
  ++sample_;
}

void BlockMaker::add_piece(Block& block) {
  BlockPiece piece{.sample = content_sample_,
                   .member = content_,
                   .position = content_done_,
                   .at = block.size_bytes,
                   .shard_offset = content_offset_};
  piece.size_bytes =
      std::min<uint64_t>(content_->size_bytes - content_done_, block_bytes_ - block.size_bytes);
  block.pieces.push_back(piece);
  if (!content_->object && piece.size_bytes > 0)
    std::memcpy(block.content(piece).data(), content_->text.data() + piece.position,
                piece.size_bytes);
  if (!content_->object) block.pieces.back().crc32c = crc32c(block.content(piece));
  if (content_->object && piece.size_bytes > 0) add_read(block);
  block.size_bytes += piece.size_bytes;
  shard_bytes_ += piece.size_bytes;
  content_done_ += piece.size_bytes;
  if (content_done_ == content_->size_bytes) content_ = nullptr;
}

void BlockMaker::add_read(Block& block) const {
  const BlockPiece& piece = block.pieces.back();
  const uint64_t begin = piece.source_offset();
  if (!block.reads.empty()) {
    BlockRead& last = block.reads.back();
    const bool follows = last.first_piece + last.piece_count == block.pieces.size() - 1;
    const bool is_same = block.pieces[last.first_piece].member->object == piece.member->object;
    if (follows && is_same && begin >= last.end && begin - last.end <= kGapBytesMax) {
      last.end = begin + piece.size_bytes;
      ++last.piece_count;
      return;
    }
  }
  block.reads.push_back({block.pieces.size() - 1, 1, begin, begin + piece.size_bytes});
}

}  // namespace yard::shards
