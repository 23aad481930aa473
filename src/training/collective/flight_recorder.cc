#include "collective/flight_recorder_internal.h"

namespace yard::collective {
namespace {

constexpr size_t kEntriesMax = 512;

int64_t microseconds(FlightEntry::Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

bool is_set(FlightEntry::Clock::time_point time) {
  return time != FlightEntry::Clock::time_point();
}

FlightRecord record_of(const FlightEntry& entry, int waited_rank) {
  FlightRecord record;
  record.call = describe(entry.call);
  record.issued_unix_us = microseconds(entry.issued.time_since_epoch());
  if (is_set(entry.started)) record.started_after_us = microseconds(entry.started - entry.issued);
  if (is_set(entry.ended)) record.ended_after_us = microseconds(entry.ended - entry.issued);
  const bool is_running = is_set(entry.started) && !is_set(entry.ended);
  record.waited_rank = is_running ? waited_rank : entry.waited_rank;
  record.error = entry.error;
  return record;
}

}  // namespace

std::shared_ptr<FlightEntry> FlightRecorder::issued(const CallRecord& call) {
  auto entry = std::make_shared<FlightEntry>();
  entry->call = call;
  entry->issued = FlightEntry::Clock::now();
  std::lock_guard lock(mutex_);
  if (entries_.size() == kEntriesMax) entries_.pop_front();
  entries_.push_back(entry);
  return entry;
}

void FlightRecorder::started(FlightEntry& entry) {
  const auto now = FlightEntry::Clock::now();
  std::lock_guard lock(mutex_);
  entry.started = now;
}

void FlightRecorder::ended(FlightEntry& entry, const Status& status, int waited_rank) {
  const auto now = FlightEntry::Clock::now();
  std::lock_guard lock(mutex_);
  entry.ended = now;
  entry.waited_rank = waited_rank;
  if (!status) entry.error = status.error().message;
}

std::vector<FlightRecord> FlightRecorder::records(int waited_rank) const {
  std::lock_guard lock(mutex_);
  std::vector<FlightRecord> records;
  for (const auto& entry : entries_) records.push_back(record_of(*entry, waited_rank));
  return records;
}

}  // namespace yard::collective
