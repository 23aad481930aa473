// Content: the bytes of open files, fetched by parallel ranged requests into one Memory.
//
// A file is one version of an object, pinned by its ETag: bytes of another are never given out. A
// part is a range of it, from the moment it is asked for until all of it went to the kernel. Reads
// are answered by a call, so that any number of readers wait without a thread of theirs.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "mount/disk_cache.h"
#include "mount/fetch_queue.h"
#include "mount/memory.h"
#include "mount/object_version.h"
#include "mount/read_ahead.h"
#include "storage/object_store.h"
#include "storage/store_wait.h"
#include "telemetry/counters.h"

namespace yard::mount {

struct ContentOptions {
  uint64_t window_bytes_max = uint64_t{64} << 20;  // of one reader
  // The version is gone from the store. Called on any thread.
  std::function<void(const ObjectVersion&)> on_changed;
};

// Thread-safe.
//
// Errors of reads: kCorrupt (the object changed, or the store gives wrong bytes), kNotFound (it was
// removed), kUnavailable and kDeadlineExceeded (the store stayed away for
// longer than StoreWait allows),
// kInvalidArgument (refused), kCancelled (stopped).
class Content {
 public:
  struct Handle;
  // Valid during the call only.
  using Pieces = std::vector<std::span<const std::byte>>;
  using Done = std::function<void(Result<Pieces>)>;

  // All but `options` outlive it; `cache` may be null. `queue` must be ended before it.
  Content(storage::ObjectStore& store, storage::StoreWait& wait, Memory& memory, FetchQueue& queue,
          DiskCache* cache, CounterRegistry& counters, ContentOptions options, StopToken stop,
          Clock& clock = Clock::real());
  ~Content();

  std::shared_ptr<Handle> open(const ObjectVersion& version);
  void close(const std::shared_ptr<Handle>& handle);

  // [offset, offset + size_bytes), cut at the end of the file. `done` is called once, on any
  // thread, in this call, too; it must not block.
  void read(const std::shared_ptr<Handle>& handle, uint64_t offset, uint64_t size_bytes, Done done);

  // Answers the reads that wait for memory, once `stop` was asked and the queue has ended.
  void end();

  // A file that will probably be opened soon: all of it, or its begin. False: there is no room.
  bool fetch_ahead(const ObjectVersion& version);

 private:
  struct Part;
  struct File;
  struct Read;
  struct Piece;
  using PartPointer = std::shared_ptr<Part>;
  using FilePointer = std::shared_ptr<File>;
  using ReadPointer = std::shared_ptr<Read>;
  using Reads = std::vector<ReadPointer>;
  struct Gap {
    uint64_t offset;
    uint64_t size_bytes;
  };

  // Under the mutex.
  FilePointer file_of(const ObjectVersion& version);
  bool begin(const ReadPointer& read);
  std::vector<Gap> gaps(const File& file, uint64_t offset, uint64_t end) const;
  PartPointer add_part(const FilePointer& file, const Gap& gap, Memory::Buffer buffer,
                       const Handle* owner);
  void attach(const ReadPointer& read);
  void extend_window(Handle& handle, const FilePointer& file, uint64_t from);
  Memory::Buffer take_ahead(uint64_t size_bytes);
  bool make_room(uint64_t size_bytes, bool unopened_only);
  void erase(const PartPointer& part);
  void abandon(File& file, const Handle* owner);
  void drop_if_idle(const FilePointer& file);
  uint64_t window_bytes_max() const;
  void set_window(Handle& handle, uint64_t window_bytes);
  Reads wake(Part& part);

  // Without it.
  void start(const PartPointer& part, FetchQueue::Urgency urgency);
  Result<uint64_t> fetch(const PartPointer& part);
  Result<uint64_t> fetch_from_store(const PartPointer& part);
  Status take_bytes(const PartPointer& part, uint64_t at, std::span<const std::byte> bytes);
  void finish(const PartPointer& part);
  void fail(const PartPointer& part, const Error& error);
  void complete(const Reads& reads);
  void serve_starved();

  storage::ObjectStore& store_;
  storage::StoreWait& wait_;
  Memory& memory_;
  FetchQueue& queue_;
  DiskCache* const cache_;
  const ContentOptions options_;
  const StopToken stop_;
  Clock& clock_;
  struct Counts {
    Counter &reads, &read_bytes, &late_reads, &wait_seconds, &fetched_bytes, &requests,
        &unused_bytes, &changed;
  } counts_;

  std::mutex mutex_;
  std::unordered_map<std::string, FilePointer> files_;  // the newest version of each key
  std::list<PartPointer> recent_;                       // all parts of files, newest first
  std::deque<ReadPointer> starved_;                     // wait for memory
  int stream_count_ = 0;                                // handles with a window
};

}  // namespace yard::mount
