#include "collective/flight_recorder_internal.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/file.h"

namespace yard::collective {
namespace {

int64_t unix_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Others that read meanwhile see an odd version and look again.
template <typename Write>
void write_slot(FlightSlot& slot, Write write) {
  const uint32_t version = slot.version.load(std::memory_order_relaxed);
  slot.version.store(version + 1, std::memory_order_relaxed);
  order_slot(std::memory_order_release);
  write();
  slot.version.store(version + 2, std::memory_order_release);
}

Result<void*> map_pages(const std::string& path) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  UniqueFd fd;
  if (!path.empty()) {
    // A process of an older attempt may still have the old file mapped.
    ::unlink(path.c_str());
    fd.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd.valid()) return errno_error(path, errno);
    // Reserved: a full disk must not be a SIGBUS later.
    const int error = ::posix_fallocate(fd.get(), 0, sizeof(FlightPages));
    if (error != 0) return errno_error(path, error);
    flags = MAP_SHARED;
  }
  void* at = ::mmap(nullptr, sizeof(FlightPages), PROT_READ | PROT_WRITE, flags, fd.get(), 0);
  if (at == MAP_FAILED) return errno_error("mapping the flight recorder", errno);
  return at;
}

}  // namespace

Result<std::shared_ptr<FlightRecorder>> FlightRecorder::create(const std::string& path, int rank,
                                                               int world_size,
                                                               uint64_t generation) {
  YARD_ASSIGN(void* const at, map_pages(path));
  auto* pages = new (at) FlightPages{};
  FlightHeader& header = pages->header;
  header.slot_bytes = sizeof(FlightSlot);
  header.slot_count = kFlightSlots;
  header.rank = rank;
  header.world_size = world_size;
  header.pid = ::getpid();
  header.generation = generation;
  header.waited_rank = -1;
  std::memcpy(header.magic, kFlightMagic, sizeof header.magic);
  return std::shared_ptr<FlightRecorder>(new FlightRecorder(pages));
}

FlightRecorder::~FlightRecorder() {
  ::munmap(pages_, sizeof(FlightPages));
}

FlightSlot* FlightRecorder::slot_of(FlightEntry entry) {
  const uint64_t issued = pages_->header.issued_count.load(std::memory_order_relaxed);
  return entry + kFlightSlots <= issued ? nullptr : &pages_->slots[entry % kFlightSlots];
}

FlightEntry FlightRecorder::issued(const CallRecord& call) {
  const int64_t now = unix_us();
  std::lock_guard lock(mutex_);
  const FlightEntry entry = pages_->header.issued_count.load(std::memory_order_relaxed);
  FlightSlot& slot = pages_->slots[entry % kFlightSlots];
  write_slot(slot, [&] {
    slot.call = call;
    slot.issued_unix_us = now;
    slot.started_after_us = -1;
    slot.ended_after_us = -1;
    slot.waited_rank = -1;
    slot.error[0] = '\0';
  });
  pages_->header.issued_count.store(entry + 1, std::memory_order_release);
  return entry;
}

void FlightRecorder::started(FlightEntry entry) {
  const int64_t now = unix_us();
  std::lock_guard lock(mutex_);
  FlightSlot* slot = slot_of(entry);
  if (slot == nullptr) return;
  write_slot(*slot, [&] { slot->started_after_us = now - slot->issued_unix_us; });
}

void FlightRecorder::ended(FlightEntry entry, const Status& status, int waited_rank) {
  const int64_t now = unix_us();
  std::lock_guard lock(mutex_);
  FlightSlot* slot = slot_of(entry);
  if (slot == nullptr) return;
  write_slot(*slot, [&] {
    slot->ended_after_us = now - slot->issued_unix_us;
    slot->waited_rank = waited_rank;
    if (!status) {
      const std::string& text = status.error().message;
      const size_t size = std::min(text.size(), sizeof slot->error - 1);
      std::memcpy(slot->error, text.data(), size);
      slot->error[size] = '\0';
    }
  });
}

std::vector<FlightRecord> FlightRecorder::records() const {
  std::lock_guard lock(mutex_);
  return records_of(*pages_);
}

}  // namespace yard::collective
