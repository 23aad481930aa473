#include "collective/team_internal.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <new>
#include <string_view>

namespace yard::collective {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr size_t kLineBytes = 64;
constexpr size_t kMessageBytesMax = 1000;
constexpr size_t kResultBytes = 2 * kStageBytes;  // half types are kept twice as wide
constexpr size_t kResultBytesPerRank = 256;
// A wake-up may be lost with the process that owed it, so nobody sleeps longer than this.
constexpr std::chrono::milliseconds kSleepMax{20};
// Before it sleeps a rank looks for some microseconds, and then lets others run for about the time
// that falling asleep and being woken would take.
constexpr int kPausesMax = 200;
constexpr std::chrono::microseconds kYieldMax{40};

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Shared between processes, hence without FUTEX_PRIVATE_FLAG.
void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, std::chrono::nanoseconds timeout) {
  const timespec left{.tv_sec = timeout.count() / 1'000'000'000,
                      .tv_nsec = timeout.count() % 1'000'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &left, nullptr, 0);
}
void futex_wake_all(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Counters wrap around; they are never further apart than half their range.
bool reached(uint32_t counter, uint32_t target) {
  return static_cast<int32_t>(counter - target) >= 0;
}

}  // namespace

struct alignas(kLineBytes) Team::Header {
  std::atomic<uint32_t> arrivals;  // barrier b is complete at b * size
  std::atomic<uint32_t> sleepers;
  alignas(kLineBytes) std::atomic<uint32_t> abort_claimed;
  std::atomic<uint32_t> aborted;  // code and message below are whole
  uint32_t abort_code;
  uint32_t abort_message_bytes;
  std::array<char, kMessageBytesMax> abort_message;
};

struct alignas(kLineBytes) Team::RankBlock {
  std::atomic<uint32_t> barrier_count;
  std::atomic<uint32_t> left;
  alignas(kLineBytes) std::array<CallRecord, 2> records;
};

static_assert(std::atomic<uint32_t>::is_always_lock_free);

namespace {
constexpr size_t kDataBytesPerRank = 2 * kSmallSlotBytes + kStageBytes;
}

size_t Team::result_bytes_of(const TeamPlace& place) {
  if (place.alone) return 0;
  return std::max(kResultBytes, kResultBytesPerRank * static_cast<size_t>(place.world_size));
}

size_t Team::segment_bytes(const TeamPlace& place) {
  const size_t size = place.ranks.size();
  return round_up(sizeof(Header) + size * sizeof(RankBlock), 4096) + size * kDataBytesPerRank +
         result_bytes_of(place);
}

Team::Team(TeamPlace place, SharedMemory segment, Failure& failure,
           std::chrono::milliseconds operation_timeout)
    : place_(std::move(place)),
      segment_(std::move(segment)),
      failure_(failure),
      operation_timeout_(operation_timeout) {
  YARD_CHECK(segment_.size_bytes() == segment_bytes(place_));
  segment_.close_fd();
  failure_.add_listener([this](const Error& error) { publish(error); });
}

Team::~Team() = default;

// The kernel gave the memory zeroed, which is the initial state of all of it.
Team::Header& Team::header() const {
  return *std::launder(reinterpret_cast<Header*>(segment_.data()));
}

Team::RankBlock& Team::block(size_t index) const {
  YARD_CHECK(index < size());
  return *std::launder(
      reinterpret_cast<RankBlock*>(segment_.data() + sizeof(Header) + index * sizeof(RankBlock)));
}

std::byte* Team::data_of(size_t index) const {
  YARD_CHECK(index < size());
  return segment_.data() + round_up(sizeof(Header) + size() * sizeof(RankBlock), 4096) +
         index * kDataBytesPerRank;
}

CallRecord& Team::record(size_t index, uint64_t sequence) const {
  return block(index).records[sequence % 2];
}

std::byte* Team::small_slot(size_t index, uint64_t sequence) const {
  return data_of(index) + (sequence % 2) * kSmallSlotBytes;
}

std::byte* Team::stage(size_t index) const {
  return data_of(index) + 2 * kSmallSlotBytes;
}

std::byte* Team::result() const {
  return data_of(size() - 1) + kDataBytesPerRank;
}

size_t Team::result_bytes() const {
  return result_bytes_of(place_);
}

Status Team::barrier(const CallRecord& call) {
  if (failure_.failed()) return failure_.status();
  const auto team_size = static_cast<uint32_t>(size());
  ++barrier_count_;
  const uint32_t target = barrier_count_ * team_size;
  block(index()).barrier_count.store(barrier_count_, std::memory_order_release);
  // Sequentially consistent with the sleepers' count: either the last to arrive sees the sleeper,
  // or the sleeper sees the arrival.
  const uint32_t arrivals = header().arrivals.fetch_add(1, std::memory_order_seq_cst) + 1;
  if (arrivals == target) {
    if (header().sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(header().arrivals);
    return Ok{};
  }
  if (reached(arrivals, target) || spin(target)) return Ok{};
  const Status status = sleep_until_there(target, call);
  failure_.set_waited_rank(-1);
  return status;
}

bool Team::spin(uint32_t target) const {
  const auto there = [&] {
    return reached(header().arrivals.load(std::memory_order_acquire), target);
  };
  for (int i = 0; i < kPausesMax; ++i) {
    if (there()) return true;
    pause_cpu();
  }
  // The one we wait for may be waiting for this core.
  const auto end = SteadyClock::now() + kYieldMax;
  do {
    ::sched_yield();
    if (there()) return true;
  } while (SteadyClock::now() < end);
  return false;
}

Status Team::sleep_until_there(uint32_t target, const CallRecord& call) {
  const auto deadline = SteadyClock::now() + operation_timeout_;
  while (true) {
    YARD_TRY(check_peers(target, call));
    failure_.set_waited_rank(missing_rank());
    header().sleepers.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t arrivals = header().arrivals.load(std::memory_order_seq_cst);
    if (!reached(arrivals, target)) futex_wait(header().arrivals, arrivals, kSleepMax);
    header().sleepers.fetch_sub(1, std::memory_order_seq_cst);
    if (reached(header().arrivals.load(std::memory_order_acquire), target)) return Ok{};
    if (SteadyClock::now() >= deadline && missing_rank() >= 0)
      return failure_.report_after({}, timed_out(call));
  }
}

Status Team::check_peers(uint32_t target, const CallRecord& call) {
  adopt_abort();
  if (failure_.failed()) return failure_.status();
  const Header& shared = header();
  for (size_t i = 0; i < size(); ++i) {
    if (block(i).left.load(std::memory_order_acquire) == 0) continue;
    // It may have arrived before it left; what it wrote stays readable.
    if (reached(block(i).barrier_count.load(std::memory_order_acquire), barrier_count_)) continue;
    if (reached(shared.arrivals.load(std::memory_order_acquire), target)) continue;
    return failure_.report_after(
        {}, {Code::kUnavailable, fmt::format("{}: {} has left the group", describe(call),
                                             failure_.name_of(place_.ranks[i]))});
  }
  return Ok{};
}

void Team::adopt_abort() {
  const Header& shared = header();
  if (failure_.failed() || shared.aborted.load(std::memory_order_acquire) == 0) return;
  const size_t size_bytes = std::min<size_t>(shared.abort_message_bytes, kMessageBytesMax);
  const auto code = std::min(shared.abort_code, static_cast<uint32_t>(Code::kInternal));
  failure_.report({static_cast<Code>(code), std::string(shared.abort_message.data(), size_bytes)});
}

int Team::missing_rank() const {
  for (size_t i = 0; i < size(); ++i)
    if (!reached(block(i).barrier_count.load(std::memory_order_acquire), barrier_count_))
      return place_.ranks[i];
  return -1;  // it came just now
}

Error Team::timed_out(const CallRecord& call) const {
  int waited = missing_rank();
  if (waited >= 0 && !place_.alone) waited = failure_.culprit_of(waited);
  return {Code::kDeadlineExceeded,
          fmt::format("{}: waited {} ms for {}", describe(call), operation_timeout_.count(),
                      failure_.name_of(waited))};
}

void Team::publish(const Error& error) {
  Header& shared = header();
  if (shared.abort_claimed.exchange(1, std::memory_order_acq_rel) == 0) {
    shared.abort_code = static_cast<uint32_t>(error.code);
    shared.abort_message_bytes =
        static_cast<uint32_t>(std::min(error.message.size(), kMessageBytesMax));
    std::memcpy(shared.abort_message.data(), error.message.data(), shared.abort_message_bytes);
    shared.aborted.store(1, std::memory_order_release);
  }
  wake_all();
}

// Sleepers who wake without an arrival look for the reason themselves.
void Team::wake_all() {
  futex_wake_all(header().arrivals);
}

void Team::leave() {
  block(index()).left.store(1, std::memory_order_release);
  wake_all();
}

bool Team::has_left(int rank) const {
  for (size_t i = 0; i < size(); ++i)
    if (place_.ranks[i] == rank) return block(i).left.load(std::memory_order_acquire) != 0;
  return false;
}

}  // namespace yard::collective
