#include "shards/shard_assembly.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_set>

#include "shards/block_passage_internal.h"
#include "shards/shard_layout_internal.h"
#include "storage/transfer_pool.h"

namespace yard::shards {
namespace {

// A core's cache holds it.
constexpr uint64_t kLocalBlockBytes = uint64_t{512} << 10;
constexpr uint64_t kLocalThreadsMax = 64;
constexpr uint64_t kRemoteBlockBytes = uint64_t{2} << 20;

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

Status assemble_by_requests(BlockMaker& maker, BlockWriter& writer, const AssemblyOptions& options,
                            const AssemblyEvents& events) {
  const uint64_t window = std::max<uint64_t>(2, options.memory_bytes / kRemoteBlockBytes);
  Turns turns;
  std::deque<std::unique_ptr<Passage>> passages;
  storage::TransferPool pool({.stop = options.stop});  // its threads use what is above
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
  BlockWriter writer(target, shards, options);
  if (has_remote_source(samples)) {
    BlockMaker maker(samples, shards, options.first_shard, kRemoteBlockBytes);
    return assemble_by_requests(maker, writer, options, events);
  }
  BlockMaker maker(samples, shards, options.first_shard, kLocalBlockBytes);
  const uint64_t core_count = std::max(1U, std::thread::hardware_concurrency());
  const uint64_t block_count_max = std::max<uint64_t>(1, options.memory_bytes / kLocalBlockBytes);
  const int thread_count = int(std::min({core_count, block_count_max, kLocalThreadsMax}));
  return assemble_locally(maker, writer, thread_count, options.stop, events);
}

}  // namespace yard::shards
