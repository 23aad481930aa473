// FlightRecorder: the last operations of a rank, for whoever asks why it stands still.
//
// Its slots lie in memory, or in a file that is mapped: that one tells of a rank that hangs, was
// stopped or killed, too. See flight.h for reading it, and for the layout.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "collective/call_internal.h"
#include "collective/flight.h"

namespace yard::collective {

inline constexpr size_t kFlightSlots = 512;

// Written by one thread at a time; read by other processes meanwhile: `version` is odd while the
// slot is being written.
struct FlightSlot {
  std::atomic<uint32_t> version;
  int32_t waited_rank;
  int64_t issued_unix_us;  // 0: never used
  int64_t started_after_us;
  int64_t ended_after_us;
  CallRecord call;
  char error[200];
};

struct FlightHeader {
  char magic[8];
  uint32_t slot_bytes;
  uint32_t slot_count;
  int32_t rank;
  int32_t world_size;
  int64_t pid;
  uint64_t generation;
  std::atomic<uint64_t> issued_count;  // the next slot is issued_count % slot_count
  std::atomic<int32_t> waited_rank;    // for which it waits right now, -1: none
};

struct FlightPages {
  FlightHeader header;
  FlightSlot slots[kFlightSlots];
};

inline constexpr char kFlightMagic[9] = "YARDFLT1";

// Between a slot's version and its contents, for readers in other processes. The thread sanitizer
// knows no fences; those it looks at, in this process, hold the recorder's mutex.
inline void order_slot([[maybe_unused]] std::memory_order order) {
#if !defined(__SANITIZE_THREAD__)
  std::atomic_thread_fence(order);
#endif
}

// Oldest first. A slot that is being written the whole time is left out.
std::vector<FlightRecord> records_of(const FlightPages& pages);

using FlightEntry = uint64_t;  // the how-manieth operation was issued

// Thread-safe.
class FlightRecorder {
 public:
  // `path`: the file, replaced; empty: memory only.
  static Result<std::shared_ptr<FlightRecorder>> create(const std::string& path, int rank,
                                                        int world_size, uint64_t generation);
  ~FlightRecorder();

  FlightEntry issued(const CallRecord& call);
  void started(FlightEntry entry);
  // `waited_rank`: the last for which it had to wait, or -1.
  void ended(FlightEntry entry, const Status& status, int waited_rank);
  std::atomic<int32_t>& waited_rank() { return pages_->header.waited_rank; }
  std::vector<FlightRecord> records() const;

 private:
  explicit FlightRecorder(FlightPages* pages) : pages_(pages) {}
  FlightSlot* slot_of(FlightEntry entry);  // null when it was overwritten

  mutable std::mutex mutex_;
  FlightPages* pages_;
};

}  // namespace yard::collective
