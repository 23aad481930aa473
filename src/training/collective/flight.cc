#include "collective/flight.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "collective/flight_recorder_internal.h"
#include "collective/membership_internal.h"

namespace yard::collective {
namespace {

constexpr int kTriesMax = 1000;

// What a slot held between two writes of it.
bool copy_slot(const FlightSlot& slot, FlightSlot* copy) {
  for (int i = 0; i < kTriesMax; ++i) {
    const uint32_t before = slot.version.load(std::memory_order_acquire);
    copy->waited_rank = slot.waited_rank;
    copy->issued_unix_us = slot.issued_unix_us;
    copy->started_after_us = slot.started_after_us;
    copy->ended_after_us = slot.ended_after_us;
    copy->call = slot.call;
    std::memcpy(copy->error, slot.error, sizeof slot.error);
    order_slot(std::memory_order_acquire);
    if (before % 2 == 0 && slot.version.load(std::memory_order_relaxed) == before) return true;
  }
  return false;
}

FlightRecord record_of(const FlightSlot& slot, int waited_now) {
  FlightRecord record;
  record.call = describe(slot.call);
  record.issued_unix_us = slot.issued_unix_us;
  record.started_after_us = slot.started_after_us;
  record.ended_after_us = slot.ended_after_us;
  const bool is_running = slot.started_after_us >= 0 && slot.ended_after_us < 0;
  record.waited_rank = is_running ? waited_now : slot.waited_rank;
  record.error.assign(slot.error, ::strnlen(slot.error, sizeof slot.error));
  return record;
}

// The last operation that it has begun, or has been asked for.
const FlightRecord* current(const FlightLog& log) {
  const FlightRecord* last = nullptr;
  for (const FlightRecord& record : log.records)
    if (last == nullptr || record.started_after_us >= 0) last = &record;
  return last;
}

std::string state_of(const FlightLog& log) {
  const FlightRecord* record = current(log);
  if (record == nullptr) return "has called nothing yet";
  if (!record->error.empty()) return fmt::format("failed in {}: {}", record->call, record->error);
  if (record->ended_after_us >= 0) return fmt::format("has ended {}", record->call);
  return fmt::format("is in {}", record->call);
}

}  // namespace

std::vector<FlightRecord> records_of(const FlightPages& pages) {
  std::vector<FlightRecord> records;
  const uint64_t issued = pages.header.issued_count.load(std::memory_order_acquire);
  const int waited_now = pages.header.waited_rank.load(std::memory_order_relaxed);
  const uint64_t first = issued < kFlightSlots ? 0 : issued - kFlightSlots;
  for (uint64_t entry = first; entry < issued; ++entry) {
    FlightSlot copy{};
    if (copy_slot(pages.slots[entry % kFlightSlots], &copy))
      records.push_back(record_of(copy, waited_now));
  }
  return records;
}

Result<FlightLog> read_flight(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return errno_error(path, errno);
  const Error corrupt{Code::kCorrupt, path + ": not a flight recorder's file of this version"};
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return errno_error(path, errno);
  if (status.st_size != static_cast<off_t>(sizeof(FlightPages))) return corrupt;
  void* at = ::mmap(nullptr, sizeof(FlightPages), PROT_READ, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) return errno_error(path, errno);
  const std::unique_ptr<void, void (*)(void*)> mapped(
      at, [](void* pages) { ::munmap(pages, sizeof(FlightPages)); });
  const auto& pages = *static_cast<const FlightPages*>(at);
  const FlightHeader& header = pages.header;
  if (std::memcmp(header.magic, kFlightMagic, sizeof header.magic) != 0 ||
      header.slot_bytes != sizeof(FlightSlot) || header.slot_count != kFlightSlots)
    return corrupt;
  return FlightLog{.rank = header.rank,
                   .world_size = header.world_size,
                   .pid = header.pid,
                   .generation = header.generation,
                   .waited_rank = header.waited_rank.load(std::memory_order_relaxed),
                   .records = records_of(pages)};
}

std::string flight_path(const std::string& job_dir, int rank) {
  return fmt::format("{}/flight/rank-{}.flight", job_dir, rank);
}

Result<std::vector<FlightLog>> read_flights(const std::string& job_dir) {
  std::vector<FlightLog> logs;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(job_dir + "/flight", error))
    if (entry.path().extension() == ".flight") {
      YARD_ASSIGN(FlightLog log, read_flight(entry.path()));
      logs.push_back(std::move(log));
    }
  if (logs.empty())
    return Error{Code::kNotFound, job_dir + ": no rank has kept a flight record here"};
  std::sort(logs.begin(), logs.end(),
            [](const FlightLog& a, const FlightLog& b) { return a.rank < b.rank; });
  return logs;
}

std::string diagnose(const std::vector<FlightLog>& all) {
  uint64_t newest = 0;
  for (const FlightLog& log : all) newest = std::max(newest, log.generation);
  std::map<int, const FlightLog*> logs;
  for (const FlightLog& log : all)
    if (log.generation == newest) logs[log.rank] = &log;
  // Who waits in which call for whom.
  std::map<std::pair<int, std::string>, std::vector<int>> waiting;
  std::string text;
  for (const auto& [rank, log] : logs) {
    const FlightRecord* record = current(*log);
    const bool is_running = record && record->started_after_us >= 0 && record->ended_after_us < 0;
    if (is_running && log->waited_rank >= 0)
      waiting[{log->waited_rank, record->call}].push_back(rank);
    else
      text += fmt::format("rank {} {}\n", rank, state_of(*log));
  }
  for (const auto& [key, ranks] : waiting) {
    const auto& [waited, call] = key;
    const auto found = logs.find(waited);
    text += fmt::format("{} wait{} in {} for rank {}, which {}\n", name_ranks(ranks),
                        ranks.size() == 1 ? "s" : "", call, waited,
                        found == logs.end() ? "has kept no record" : state_of(*found->second));
  }
  return text;
}

}  // namespace yard::collective
