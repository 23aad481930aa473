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
#include "shards/shard_block_internal.h"
#include "shards/shard_index.h"
#include "shards/shard_layout_internal.h"
#include "storage/transfer_pool.h"

namespace yard::shards {
namespace {

// More would only leave the CPU's cache before it is written.
constexpr uint64_t kLocalBlocksMax = 8;

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
    std::memcpy(block.bytes.span().data() + piece.at,
                bytes.get() + (piece.source_offset() - read.begin), piece.size_bytes);
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
    YARD_TRY(check_checksum(piece, piece.crc32c));
  }
  return Ok{};
}

// One block being filled by tasks, waited for by the writer.
class Filling {
 public:
  explicit Filling(std::unique_ptr<Block> block) : block_(std::move(block)) {}

  // Reads are shared out one by one where they wait for a network, else in one task.
  void start(storage::TransferPool& pool) {
    const auto is_remote = [](const Block& block) {
      return std::ranges::any_of(block.reads, [&](const BlockRead& read) {
        return block.pieces[read.first_piece].member->object->store->speed().is_remote;
      });
    };
    const size_t reads_per_task = is_remote(*block_) ? 1 : std::max<size_t>(1, read_count());
    task_count_ = (read_count() + reads_per_task - 1) / reads_per_task;
    for (size_t begin = 0; begin < read_count(); begin += reads_per_task)
      pool.push(
          0,
          [this, begin, end = std::min(begin + reads_per_task, read_count())] {
            return run(begin, end);
          },
          [this] {
            end_task(0, Error{Code::kCancelled, "stopped"});
          });
  }

  Result<Block*> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return task_count_ == 0; });
    if (error_) return *error_;
    return block_.get();
  }

 private:
  size_t read_count() const { return block_->reads.size(); }

  Result<uint64_t> run(size_t begin, size_t end) {
    uint64_t moved = 0;
    for (size_t i = begin; i < end; ++i) {
      const BlockRead& read = block_->reads[i];
      if (auto done = run_read(*block_, read); !done) {
        end_task(i, done.error());
        return std::move(done).error();
      }
      moved += read.end - read.begin;
    }
    end_task(end, std::nullopt);
    return moved;
  }

  // The first read of the order decides the error.
  void end_task(size_t read, std::optional<Error> error) {
    const std::lock_guard lock(mutex_);
    if (error && (!error_ || read < error_read_)) {
      error_ = std::move(error);
      error_read_ = read;
    }
    if (--task_count_ == 0) changed_.notify_all();
  }

  const std::unique_ptr<Block> block_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t task_count_ = 0;
  std::optional<Error> error_;
  size_t error_read_ = 0;
};

// Takes blocks in order.
class BlockWriter {
 public:
  BlockWriter(storage::ObjectStore& target, std::span<const PlannedShard> shards,
              const AssemblyOptions& options, const AssemblyEvents& events)
      : target_(target), shards_(shards), options_(options), events_(events) {}

  Status write(Block& block) {
    if (!upload_) {
      key_ = shard_key(options_.prefix, block.shard);
      YARD_ASSIGN(upload_,
                  target_.upload(key_, {.size_bytes_hint = shards_[block.shard].size_bytes}));
      index_ = {};
    }
    for (const BlockPiece& piece : block.pieces) YARD_TRY(add(block, piece));
    YARD_TRY(upload_->write(block.bytes.span().first(block.size_bytes)));
    if (block.ends_shard) YARD_TRY(finish(block.shard));
    if (events_.on_samples)
      events_.on_samples(
          shards_[block.shard].first_sample +
          (block.ends_shard ? shards_[block.shard].sample_count : index_.sample_count()));
    return Ok{};
  }

 private:
  Status add(const Block& block, const BlockPiece& piece) {
    if (piece.is_whole()) {
      checksum_ = piece.crc32c;
    } else {
      checksum_ = crc32c(block.content(piece), piece.is_first() ? 0 : checksum_);
      if (piece.is_last()) YARD_TRY(check_checksum(piece, checksum_));
    }
    if (!piece.is_last()) return Ok{};
    auto added = index_.add(member_name(piece.sample->key, piece.member->extension),
                            piece.shard_offset, piece.member->size_bytes, checksum_);
    // What is damage in a shard that is read is a wrong request here.
    if (!added) return Error{Code::kInvalidArgument, added.error().message};
    return Ok{};
  }

  Status finish(uint64_t shard) {
    YARD_ASSIGN(const storage::ObjectInfo info, upload_->commit());
    upload_.reset();
    const uint64_t sample_count = index_.sample_count();
    YARD_TRY(storage::put_text(target_, index_key(key_), index_.finish(info).encode()));
    if (!events_.on_shard) return Ok{};
    return events_.on_shard(shard, {key_, info.size_bytes, sample_count});
  }

  storage::ObjectStore& target_;
  const std::span<const PlannedShard> shards_;
  const AssemblyOptions& options_;
  const AssemblyEvents& events_;
  std::unique_ptr<storage::Upload> upload_;
  std::string key_;
  ShardIndexBuilder index_;
  uint32_t checksum_ = 0;
};

bool has_remote_source(std::span<const SampleSource> samples) {
  return std::ranges::any_of(samples, [](const SampleSource& sample) {
    return std::ranges::any_of(sample.members, [](const MemberSource& member) {
      return member.object && member.object->store->speed().is_remote;
    });
  });
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
  const uint64_t window = std::max<uint64_t>(2, options.memory_bytes / kBlockBytes);
  BlockMaker maker(samples, shards, options.first_shard);
  std::deque<std::unique_ptr<Filling>> filling;
  // Its threads use what is above.
  storage::TransferPool pool(is_remote
                                 ? storage::TransferOptions{.stop = options.stop}
                                 : storage::TransferOptions{.transfer_count_first = core_count,
                                                            .transfer_count_max = core_count,
                                                            .stop = options.stop});
  BlockWriter writer(target, shards, options, events);
  for (;;) {
    while (filling.size() < (is_remote ? window : std::min(window, kLocalBlocksMax))) {
      auto block = maker.next();
      if (!block) break;
      filling.push_back(std::make_unique<Filling>(std::move(block)));
      filling.back()->start(pool);
    }
    if (options.stop.stopped()) return Error{Code::kCancelled, "stopped"};
    if (filling.empty()) return Ok{};
    YARD_ASSIGN(Block* const block, filling.front()->wait());
    YARD_TRY(writer.write(*block));
    filling.pop_front();
  }
}

}  // namespace yard::shards
