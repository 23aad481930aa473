#include "shards/shard_assembly.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_set>

#include "base/crc32c.h"
#include "shards/member_picture_internal.h"
#include "shards/shard_block_internal.h"
#include "shards/shard_index.h"
#include "shards/shard_layout_internal.h"
#include "storage/transfer_pool.h"

namespace yard::shards {
namespace {

// Files of this machine: what a thread has read is still in its core's cache when it writes it.
// From another core's cache it would take three times as long.
constexpr uint64_t kLocalBlockBytes = uint64_t{512} << 10;
constexpr uint64_t kLocalBlocksPerCore = 4;
constexpr uint64_t kRemoteBlockBytes = uint64_t{2} << 20;

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

// Writes blocks, one after the other, from whichever thread has the next. Nothing is written behind
// the first error.
class BlockWriter {
 public:
  BlockWriter(storage::ObjectStore& target, std::span<const PlannedShard> shards,
              const AssemblyOptions& options)
      : target_(target), shards_(shards), options_(options) {}

  Status write(Block& block) {
    if (has_failed_) return Error{Code::kCancelled, "an earlier block failed"};
    Status written = write_block(block);
    if (!written) fail();
    return written;
  }
  void fail() { has_failed_ = true; }
  bool has_failed() const { return has_failed_; }  // thread-safe

 private:
  Status write_block(Block& block) {
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

  Status add(const Block& block, const BlockPiece& piece) {
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

  Status finish(Block& block) {
    YARD_ASSIGN(const storage::ObjectInfo info, upload_->commit());
    upload_.reset();
    const uint64_t sample_count = index_.sample_count();
    YARD_TRY(storage::put_text(target_, index_key(key_), index_.finish(info).encode()));
    block.finished = ShardSummary{key_, info.size_bytes, sample_count};
    return Ok{};
  }

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

// Who is to write next. Thread-safe.
class Turns {
 public:
  void wait_for(uint64_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return next_ == number; });
  }
  void end() {
    const std::lock_guard lock(mutex_);
    ++next_;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t next_ = 0;
};

// One block on its way: filled by tasks, then written in its turn; by the thread that filled it,
// where one did, else by the one that waits for it.
class Passage {
 public:
  Passage(std::unique_ptr<Block> block, uint64_t number, Turns& turns, BlockWriter& writer)
      : block_(std::move(block)), number_(number), turns_(turns), writer_(writer) {}

  void start(storage::TransferPool& pool) {
    // Reads are shared out one by one where they wait for a network.
    is_shared_out_ = std::ranges::any_of(block_->reads, [&](const BlockRead& read) {
      return block_->pieces[read.first_piece].member->object->store->speed().is_remote;
    });
    const size_t count = is_shared_out_ ? block_->reads.size() : 1;
    task_count_ = count;
    for (size_t i = 0; i < count; ++i)
      pool.push(
          0, [this, i] { return run(i); },
          [this, i] {
            end_task(i, Error{Code::kCancelled, "stopped"});
          });
  }

  // Until it is written.
  Result<std::unique_ptr<Block>> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return task_count_ == 0; });
    if (is_shared_out_) write();
    if (error_) return *error_;
    return std::move(block_);
  }

 private:
  Result<uint64_t> run(size_t task) {
    uint64_t moved = 0;
    const size_t end = is_shared_out_ ? task + 1 : block_->reads.size();
    std::optional<Error> error;
    if (writer_.has_failed()) error = Error{Code::kCancelled, "an earlier block failed"};
    for (size_t i = task; i < end && !error; ++i) {
      const BlockRead& read = block_->reads[i];
      if (auto done = run_read(*block_, read); !done) error = done.error();
      moved += read.end - read.begin;
    }
    end_task(task, error);
    if (error) return *error;
    return moved;
  }

  // The first read of the order decides the error.
  void end_task(size_t task, std::optional<Error> error) {
    std::unique_lock lock(mutex_);
    if (error && (!error_ || task < error_task_)) {
      error_ = std::move(error);
      error_task_ = task;
    }
    if (!is_shared_out_) {
      lock.unlock();
      write();
      lock.lock();
    }
    if (--task_count_ == 0) changed_.notify_all();
  }

  // Nobody else uses the block any more.
  void write() {
    turns_.wait_for(number_);
    if (error_)
      writer_.fail();
    else if (auto written = writer_.write(*block_); !written)
      error_ = written.error();
    turns_.end();
  }

  std::unique_ptr<Block> block_;
  const uint64_t number_;
  Turns& turns_;
  BlockWriter& writer_;
  bool is_shared_out_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t task_count_ = 0;
  std::optional<Error> error_;
  size_t error_task_ = 0;
};

bool has_remote_source(std::span<const SampleSource> samples) {
  return std::ranges::any_of(samples, [](const SampleSource& sample) {
    return std::ranges::any_of(sample.members, [](const MemberSource& member) {
      return member.object && member.object->store->speed().is_remote;
    });
  });
}

Status tell(const AssemblyEvents& events, const Block& block) {
  if (block.finished && events.on_shard) YARD_TRY(events.on_shard(block.shard, *block.finished));
  if (events.on_samples) events.on_samples(block.samples_done);
  return Ok{};
}

}  // namespace

Result<std::vector<PlannedShard>> plan_shards(std::span<const SampleSource> samples,
                                              uint64_t size_bytes_max) {
  if (size_bytes_max == 0)
    return Error{Code::kInvalidArgument, "the size of a shard must be more than 0 bytes"};
  std::vector<PlannedShard> shards;
  std::unordered_set<std::string_view> keys;  // of the last shard
  for (uint64_t i = 0; i < samples.size(); ++i) {
    const SampleSource& sample = samples[i];
    if (sample.members.empty())
      return Error{Code::kInvalidArgument, fmt::format("sample '{}' has no members", sample.key)};
    uint64_t size_bytes = 0;
    for (const MemberSource& member : sample.members) {
      YARD_TRY(check_member(sample.key, member.extension));
      size_bytes += frame_bytes(member_name(sample.key, member.extension), member.size_bytes);
    }
    if (shards.empty() || shards.back().size_bytes + size_bytes > size_bytes_max) {
      shards.push_back({i, 0, kEndMarkBytes});
      keys.clear();
    }
    if (!keys.insert(sample.key).second)
      return Error{Code::kInvalidArgument,
                   fmt::format("two samples of one shard would have the key '{}'", sample.key)};
    ++shards.back().sample_count;
    shards.back().size_bytes += size_bytes;
  }
  return shards;
}

Status assemble_shards(storage::ObjectStore& target, std::span<const SampleSource> samples,
                       std::span<const PlannedShard> shards, const AssemblyOptions& options,
                       const AssemblyEvents& events) {
  const bool is_remote = has_remote_source(samples);
  const int core_count = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const uint64_t block_bytes = is_remote ? kRemoteBlockBytes : kLocalBlockBytes;
  uint64_t window = std::max<uint64_t>(2, options.memory_bytes / block_bytes);
  if (!is_remote) window = std::min(window, kLocalBlocksPerCore * uint64_t(core_count));
  BlockMaker maker(samples, shards, options.first_shard, block_bytes);
  BlockWriter writer(target, shards, options);
  Turns turns;
  std::deque<std::unique_ptr<Passage>> passages;
  // Its threads use what is above.
  storage::TransferPool pool(is_remote
                                 ? storage::TransferOptions{.stop = options.stop}
                                 : storage::TransferOptions{.transfer_count_first = core_count,
                                                            .transfer_count_max = core_count,
                                                            .stop = options.stop});
  std::optional<Error> error;
  for (uint64_t number = 0;;) {
    while (!error && passages.size() < window) {
      auto block = maker.next();
      if (!block) break;
      passages.push_back(std::make_unique<Passage>(std::move(block), number++, turns, writer));
      passages.back()->start(pool);
    }
    if (passages.empty()) break;
    // After an error too: those behind wait for their turn.
    auto block = passages.front()->wait();
    passages.pop_front();
    if (error) continue;
    Status told = block ? tell(events, **block) : Status(block.error());
    if (told) {
      maker.recycle(*std::move(block));
    } else {
      error = told.error();
      writer.fail();
    }
  }
  if (error) return *error;
  return Ok{};
}

}  // namespace yard::shards
