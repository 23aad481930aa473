#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "shards/block_passage_internal.h"

namespace yard::shards {
namespace {

// So often at most the caller hears of samples.
constexpr auto kProgressInterval = std::chrono::milliseconds(50);

class LocalAssembly {
 public:
  LocalAssembly(BlockMaker& maker, BlockWriter& writer, int thread_count, const StopToken& stop,
                const AssemblyEvents& events)
      : maker_(maker), writer_(writer), stop_(stop), events_(events), running_count_(thread_count) {
    for (int i = 0; i < thread_count; ++i) threads_.emplace_back([this] { work(); });
  }
  ~LocalAssembly() {
    for (std::thread& thread : threads_) thread.join();
  }

  // Tells of the samples until all threads have ended.
  Status follow() {
    std::unique_lock lock(mutex_);
    uint64_t told_samples = 0;
    for (bool is_last = false; !is_last;) {
      is_last = changed_.wait_for(lock, kProgressInterval, [&] { return running_count_ == 0; });
      const uint64_t samples_done = samples_done_;
      lock.unlock();
      if (events_.on_samples && samples_done > told_samples) events_.on_samples(samples_done);
      told_samples = samples_done;
      lock.lock();
    }
    if (error_) return *error_;
    return Ok{};
  }

 private:
  void work() {
    std::unique_ptr<Block> block;
    uint64_t number = 0;
    for (;;) {
      const Status taken = guarded([&] { return take(block, number); });
      if (!taken) end_with(taken.error());
      if (!taken || !block) break;
      const Status read = guarded([&] { return this->read(*block); });
      turns_.wait_for(number);
      end(*block, read ? guarded([&] { return write(*block); }) : read);
      turns_.end();
    }
    const std::lock_guard lock(mutex_);
    if (--running_count_ == 0) changed_.notify_all();
  }

  static Status guarded(const std::function<Status()>& step) {
    try {
      return step();
    } catch (const std::bad_alloc&) {
      return Error{Code::kExhausted, "out of memory for the blocks of a shard"};
    } catch (const std::exception& e) {
      return Error{Code::kInternal, fmt::format("assembling a shard: {}", e.what())};
    }
  }

  // The next block to read, in the memory of the one before; null: there is nothing to do.
  Status take(std::unique_ptr<Block>& block, uint64_t& number) {
    const std::lock_guard lock(making_);
    if (block) maker_.recycle(std::move(block));
    block = writer_.has_failed() ? nullptr : maker_.next();
    if (block) number = next_number_++;
    return Ok{};
  }

  Status read(Block& block) {
    for (const BlockRead& each : block.reads) {
      if (stop_.stopped()) return Error{Code::kCancelled, "stopped"};
      if (writer_.has_failed()) return Error{Code::kCancelled, "an earlier block failed"};
      YARD_TRY(run_read(block, each));
    }
    return Ok{};
  }

  // What is written of a shard is told before anything of the next one is.
  Status write(Block& block) {
    YARD_TRY(writer_.write(block));
    if (!block.finished || !events_.on_shard) return Ok{};
    return events_.on_shard(block.shard, *block.finished);
  }

  // In the block's turn, so that the first error of the order is the one that is told.
  void end(const Block& block, const Status& status) {
    if (!status) return end_with(status.error());
    const std::lock_guard lock(mutex_);
    samples_done_ = block.samples_done;
  }

  void end_with(const Error& error) {
    writer_.fail();
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
  }

  BlockMaker& maker_;
  BlockWriter& writer_;
  const StopToken& stop_;
  const AssemblyEvents& events_;
  Turns turns_;
  std::mutex making_;  // of the maker and the number
  uint64_t next_number_ = 0;
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  int running_count_;
  uint64_t samples_done_ = 0;
  std::optional<Error> error_;
  std::vector<std::thread> threads_;
};

}  // namespace

Status assemble_locally(BlockMaker& maker, BlockWriter& writer, int thread_count,
                        const StopToken& stop, const AssemblyEvents& events) {
  return LocalAssembly(maker, writer, thread_count, stop, events).follow();
}

}  // namespace yard::shards
