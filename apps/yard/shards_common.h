// What the commands of `yard shards` share.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "shards/bad_sample.h"
#include "shards/rewrite.h"
#include "storage/location.h"
#include "storage/work_queue.h"
#include "store_options.h"

namespace yard::app {

void add_shards_read_commands(CLI::App& group, Context& context);    // ls, cat, check, index, stats
void add_shards_pack_command(CLI::App& group, Context& context);     // pack
void add_shards_repack_commands(CLI::App& group, Context& context);  // repack, split

// Shards as they are named; folders and prefixes stand for all that lie in them by their endings:
// .tar, and compressed as a whole .tar.gz, .tgz, .tar.zst.
Result<std::vector<shards::ShardSource>> find_shards(storage::Opener& opener,
                                                     const std::vector<std::string>& urls,
                                                     const StopToken& stop);

// The folder that a command writes to, made where it is a path. `prefix` ends in '/' or is empty.
struct TargetFolder {
  std::shared_ptr<storage::ObjectStore> store;
  std::string prefix;
};
Result<TargetFolder> open_target_folder(storage::Opener& opener, const std::string& url);

// --on-bad, --quarantine.
struct BadOptions {
  std::string policy = "fail";
  std::string path;
};
void add_bad_options(CLI::App& command, BadOptions& options);

// What becomes of bad samples. Thread-safe.
class BadSamples {
 public:
  // kInvalidArgument: a policy without its file.
  static Result<std::unique_ptr<BadSamples>> open(const BadOptions& options);
  ~BadSamples();

  shards::BadSampleSink sink();  // empty where the first bad sample is to end the work
  uint64_t count() const;
  // Closes the file, and tells how many there were, on stderr.
  Status finish();

 private:
  explicit BadSamples(const BadOptions& options) : options_(options) {}
  Status note(const shards::BadSample& sample);

  const BadOptions options_;
  std::FILE* file_ = nullptr;
  mutable std::mutex mutex_;
  uint64_t count_ = 0;
};

// "packing:  42%" on a terminal.
class PercentLine {
 public:
  PercentLine(std::string what, bool is_shown) : what_(std::move(what)), is_shown_(is_shown) {}
  ~PercentLine();
  void show(uint64_t done, uint64_t total);

 private:
  const std::string what_;
  const bool is_shown_;
  std::optional<uint64_t> percent_;
};

// Shards at once: as many as there are cores, or more where they lie behind a network.
int shards_at_once(const std::vector<shards::ShardSource>& shards);

// work() for each shard, several at once; emit() on this thread with what came of it, in order.
template <typename T>
Status for_each_shard(const std::vector<shards::ShardSource>& shards, const StopToken& stop,
                      const std::function<Result<T>(const shards::ShardSource&)>& work,
                      const std::function<Status(const shards::ShardSource&, Result<T>)>& emit) {
  struct Slot {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Result<T>> outcome;
  };
  const int at_once = shards_at_once(shards);
  std::vector<std::unique_ptr<Slot>> slots(shards.size());
  storage::WorkQueue queue(at_once);  // its threads use the slots
  size_t started = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    for (; started < std::min(shards.size(), i + size_t(at_once) + 1); ++started) {
      slots[started] = std::make_unique<Slot>();
      queue.push([&work, &stop, slot = slots[started].get(), shard = &shards[started]] {
        Result<T> outcome =
            stop.stopped() ? Result<T>(Error{Code::kCancelled, "stopped"}) : work(*shard);
        const std::lock_guard lock(slot->mutex);
        slot->outcome = std::move(outcome);
        slot->changed.notify_all();
      });
    }
    Slot& slot = *slots[i];
    std::unique_lock lock(slot.mutex);
    slot.changed.wait(lock, [&] { return slot.outcome.has_value(); });
    lock.unlock();
    if (stop.stopped()) return Error{Code::kCancelled, "stopped"};
    YARD_TRY(emit(shards[i], *std::move(slot.outcome)));
    slot.outcome.reset();
  }
  return Ok{};
}

}  // namespace yard::app
