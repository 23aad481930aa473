#include <fmt/format.h>

#include <cstring>

#include "base/crc32c.h"
#include "shards/block_passage_internal.h"
#include "shards/shard_layout_internal.h"

namespace yard::shards {
namespace {

Error wrong_checksum(const BlockPiece& piece) {
  return {Code::kCorrupt,
          fmt::format("{}: offset {}: sample '{}': the checksum of member '{}' is wrong",
                      piece.member->object->url(), piece.member->offset, piece.sample->key,
                      member_name(piece.sample->key, piece.member->extension))};
}

Status check_checksum(const BlockPiece& piece, uint32_t checksum) {
  if (piece.member->crc32c && *piece.member->crc32c != checksum) return wrong_checksum(piece);
  return Ok{};
}

// Several parts of one object that lie close to each other, by one request.
Status read_together(Block& block, const BlockRead& read) {
  const BlockPiece& first = block.pieces[read.first_piece];
  const auto bytes = std::make_unique_for_overwrite<std::byte[]>(read.end - read.begin);
  const SourceObject& object = *first.member->object;
  YARD_TRY(object.store->get_range(object.key, object.etag, read.begin,
                                   std::span(bytes.get(), read.end - read.begin)));
  for (size_t i = read.first_piece; i < read.first_piece + read.piece_count; ++i) {
    const BlockPiece& piece = block.pieces[i];
    std::memcpy(block.bytes.get() + piece.at, bytes.get() + (piece.source_offset() - read.begin),
                piece.size_bytes);
  }
  return Ok{};
}

}  // namespace

Status run_read(Block& block, const BlockRead& read) {
  BlockPiece& first = block.pieces[read.first_piece];
  if (read.piece_count == 1) {
    const SourceObject& object = *first.member->object;
    YARD_TRY(object.store->get_range(object.key, object.etag, read.begin, block.content(first)));
  } else {
    YARD_TRY(read_together(block, read));
  }
  for (size_t i = read.first_piece; i < read.first_piece + read.piece_count; ++i) {
    BlockPiece& piece = block.pieces[i];
    if (!piece.is_whole()) continue;  // its other parts may be still to come
    piece.crc32c = crc32c(block.content(piece));
    piece.picture = picture_size_of(piece.member->extension, block.content(piece));
    YARD_TRY(check_checksum(piece, piece.crc32c));
  }
  return Ok{};
}

Status BlockWriter::write(Block& block) {
  if (has_failed_) return Error{Code::kCancelled, "an earlier block failed"};
  Status written = write_block(block);
  if (!written) fail();
  return written;
}

Status BlockWriter::write_block(Block& block) {
  const PlannedShard& shard = shards_[block.shard];
  if (!upload_) {
    key_ = shard_key(options_.prefix, block.shard);
    YARD_ASSIGN(upload_, target_.upload(key_, {.size_bytes_hint = shard.size_bytes}));
    index_ = {};
  }
  for (const BlockPiece& piece : block.pieces) YARD_TRY(add(block, piece));
  YARD_TRY(upload_->write({block.bytes.get(), block.size_bytes}));
  block.samples_done = shard.first_sample + index_.sample_count();
  if (block.ends_shard) YARD_TRY(finish(block));
  return Ok{};
}

Status BlockWriter::add(const Block& block, const BlockPiece& piece) {
  std::optional<images::Size> picture = piece.picture;
  if (piece.is_whole()) {
    checksum_ = piece.crc32c;
  } else {
    if (piece.is_first()) picture_.emplace(piece.member->extension);
    checksum_ = crc32c(block.content(piece), piece.is_first() ? 0 : checksum_);
    picture_->take(block.content(piece));
    if (piece.is_last()) YARD_TRY(check_checksum(piece, checksum_));
    picture = picture_->size();
  }
  if (!piece.is_last()) return Ok{};
  auto added = index_.add(member_name(piece.sample->key, piece.member->extension),
                          piece.shard_offset, piece.member->size_bytes, checksum_, picture);
  // What is damage in a shard that is read is a wrong request here.
  if (!added) return Error{Code::kInvalidArgument, added.error().message};
  return Ok{};
}

Status BlockWriter::finish(Block& block) {
  YARD_ASSIGN(const storage::ObjectInfo info, upload_->commit());
  upload_.reset();
  const uint64_t sample_count = index_.sample_count();
  YARD_TRY(storage::put_text(target_, index_key(key_), index_.finish(info).encode()));
  block.finished = ShardSummary{key_, info.size_bytes, sample_count};
  return Ok{};
}

void Turns::wait_for(uint64_t number) {
  std::unique_lock lock(mutex_);
  ++waiting_count_;
  changed_.wait(lock, [&] { return next_ == number; });
  --waiting_count_;
}

void Turns::end() {
  const std::lock_guard lock(mutex_);
  ++next_;
  if (waiting_count_ > 0) changed_.notify_all();
}

}  // namespace yard::shards
