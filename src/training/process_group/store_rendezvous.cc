#include "process_group/store_rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "base/ids.h"

namespace yard::process_group {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr char kKey[] = "yard/rank0";
// Instead of deleting the key: a store's get() of a key that has gone since waits for its return.
constexpr char kWithdrawn[] = "withdrawn";
constexpr milliseconds kPollMin{1};
constexpr milliseconds kPollMax{50};
// How often who is connecting looks whether rank 0 has moved: only after a failure it has.
constexpr milliseconds kWatchInterval{200};
constexpr size_t kSecretLength = 32;

// What rank 0 says.
struct Notice {
  uint64_t generation = 0;
  uint16_t port = 0;
  std::string secret;
  std::string address;
  bool operator==(const Notice&) const = default;
};

std::string encode(const Notice& notice) {
  return fmt::format("{} {} {} {}", notice.generation, notice.port, notice.secret, notice.address);
}

Result<Notice> decode(const std::string& text) {
  std::istringstream in(text);
  Notice notice;
  if (in >> notice.generation >> notice.port >> notice.secret >> notice.address) return notice;
  return Error{Code::kCorrupt, fmt::format("the store's key {} holds something else", kKey)};
}

// Where c10d's exceptions become Errors.
template <typename Body>
auto ask_store(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const c10::Error& e) {
    return Error{Code::kUnavailable, fmt::format("the store: {}", e.what_without_backtrace())};
  } catch (const std::exception& e) {
    return Error{Code::kUnavailable, fmt::format("the store: {}", e.what())};
  }
}

// nullopt: rank 0 has not come yet.
Result<std::optional<Notice>> look_up(c10d::Store& store) {
  return ask_store([&]() -> Result<std::optional<Notice>> {
    if (!store.check({kKey})) return std::optional<Notice>();
    const std::string text = store.get_to_str(kKey);
    if (text == kWithdrawn) return std::optional<Notice>();
    YARD_ASSIGN(Notice notice, decode(text));
    return std::optional(std::move(notice));
  });
}

// Looks after rank 0's notice while a connection is tried with another one, which may be left over
// from a group that failed.
class Watch {
 public:
  Watch(c10d::Store& store, const Notice& known, const StopToken& stop) {
    thread_ = std::thread([&store, known, stop, this] { run(store, known, stop); });
  }
  ~Watch() {
    ended_.request();
    thread_.join();
  }
  StopToken token() const { return given_up_.token(); }

 private:
  void run(c10d::Store& store, const Notice& known, const StopToken& stop) {
    while (!ended_.token().wait_for(kWatchInterval) && !stop.stopped()) {
      auto now = look_up(store);
      if (now && *now && **now != known) break;
    }
    given_up_.request();
  }

  StopSource ended_;
  StopSource given_up_;
  std::thread thread_;
};

collective::RendezvousOptions options_of(const StorePlace& place, const Notice& notice,
                                         milliseconds patience) {
  return {.rank = place.rank,
          .world_size = place.world_size,
          .master_address = notice.address,
          .master_port = notice.port,
          .run_id = notice.secret,
          .generation = place.generation,
          .connect_timeout = patience,
          .operation_timeout = place.timeout,
          .flight_path = place.flight_path,
          .f32_between_hosts = place.wire,
          .host_identity = place.host_identity,
          .streams_between_hosts = place.streams,
          .tls_key = place.tls_key};
}

Status publish(c10d::Store& store, const Notice& notice) {
  return ask_store([&]() -> Status {
    store.set(kKey, encode(notice));
    return Ok{};
  });
}

void withdraw(c10d::Store& store) {
  // A notice that stays does no harm: see Watch.
  (void)ask_store([&]() -> Status {
    store.set(kKey, std::string(kWithdrawn));
    return Ok{};
  });
}

Result<Connection> lead(c10d::Store& store, const StorePlace& place, const StopToken& stop) {
  Notice notice{.generation = place.generation,
                .secret = random_name(kSecretLength),
                .address = place.address};
  auto options = options_of(place, notice, place.timeout);
  options.announce = [&](uint16_t port) {
    notice.port = port;
    return publish(store, notice);
  };
  auto group = collective::connect(options, stop);
  // All have read it, or nobody shall.
  withdraw(store);
  if (!group) return std::move(group).error();
  return Connection{*std::move(group), notice.secret};
}

Error too_late(const StorePlace& place) {
  return {Code::kDeadlineExceeded,
          fmt::format("rank 0 has not come to the rendezvous within {} ms", place.timeout.count())};
}

// Waits for a notice of this attempt.
Result<Notice> await_notice(c10d::Store& store, const StorePlace& place, Clock::time_point deadline,
                            const StopToken& stop) {
  milliseconds pause = kPollMin;
  while (true) {
    YARD_ASSIGN(auto notice, look_up(store));
    if (notice && notice->generation == place.generation) return *std::move(notice);
    if (notice && notice->generation > place.generation)
      return Error{Code::kInvalidArgument,
                   fmt::format("this process belongs to attempt {}, the group is of attempt {}",
                               place.generation, notice->generation)};
    if (stop.wait_for(pause)) return Error{Code::kCancelled, "the rendezvous was interrupted"};
    if (Clock::now() >= deadline) return too_late(place);
    pause = std::min(pause * 2, kPollMax);
  }
}

Result<Connection> follow(c10d::Store& store, const StorePlace& place, const StopToken& stop) {
  const auto deadline = Clock::now() + place.timeout;
  while (true) {
    YARD_ASSIGN(const Notice notice, await_notice(store, place, deadline, stop));
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    if (left <= milliseconds(0)) return too_late(place);
    auto group = [&] {
      const Watch watch(store, notice, stop);
      return collective::connect(options_of(place, notice, left), watch.token());
    }();
    if (group) return Connection{*std::move(group), notice.secret};
    if (stop.stopped()) return std::move(group).error();
    YARD_ASSIGN(const auto now, look_up(store));
    if (!now || *now == notice) return std::move(group).error();
  }
}

}  // namespace

Result<Connection> connect_through(const c10::intrusive_ptr<c10d::Store>& store,
                                   const StorePlace& place, const StopToken& stop) {
  if (place.world_size == 1)
    return Connection{collective::single_rank_group(), random_name(kSecretLength)};
  return place.rank == 0 ? lead(*store, place, stop) : follow(*store, place, stop);
}

}  // namespace yard::process_group
