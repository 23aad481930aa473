// FlightRecorder: the last operations of a rank, for whoever asks why it stands still.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "collective/call_internal.h"

namespace yard::collective {

struct FlightEntry {
  using Clock = std::chrono::system_clock;
  CallRecord call;
  Clock::time_point issued;
  Clock::time_point started;  // the epoch: not yet
  Clock::time_point ended;    // likewise
  int waited_rank = -1;
  std::string error;
};

// Thread-safe. Keeps the last 512.
class FlightRecorder {
 public:
  std::shared_ptr<FlightEntry> issued(const CallRecord& call);
  void started(FlightEntry& entry);
  // `waited_rank`: the last for which it had to wait, or -1.
  void ended(FlightEntry& entry, const Status& status, int waited_rank);
  // `waited_rank`: the one for which the operation that runs right now waits.
  std::vector<FlightRecord> records(int waited_rank) const;

 private:
  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<FlightEntry>> entries_;
};

}  // namespace yard::collective
