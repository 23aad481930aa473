// Every other rank's side of the rendezvous: finds rank 0, says hello, waits.
#include <fmt/format.h>

#include <algorithm>

#include "collective/membership_internal.h"

namespace yard::collective {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kRetryMin{10};
constexpr std::chrono::milliseconds kRetryMax{250};

// One attempt. kUnavailable: worth another.
class Attempt {
 public:
  Attempt(const RendezvousOptions& options, const std::string& host_identity, TlsTunnels* tunnels,
          const Patience& patience)
      : options_(options), host_identity_(host_identity), tunnels_(tunnels), patience_(patience) {}

  Result<Membership> run() {
    YARD_ASSIGN(UniqueFd fd, connect_tcp(options_.master_address, options_.master_port, patience_));
    Membership membership;
    YARD_ASSIGN(membership.doors, open_doors(local_address(fd.get())));
    const std::string address = peer_address(fd.get());
    YARD_ASSIGN(
        fd, secured(tunnels_, std::move(fd), TlsSide::kClient,
                    fmt::format("rank 0 at {}:{}", options_.master_address, options_.master_port)));
    YARD_TRY(send_all(fd.get(),
                      encode_hello({.rank = static_cast<uint32_t>(options_.rank),
                                    .world_size = static_cast<uint32_t>(options_.world_size),
                                    .generation = options_.generation,
                                    .run_id = options_.run_id,
                                    .host_identity = host_identity_,
                                    .host_name = options_.host_name,
                                    .data_port = local_port(membership.doors.data.get()),
                                    .reunion_port = local_port(membership.doors.reunion.get()),
                                    .team_name = membership.doors.team_name}),
                      patience_));
    YARD_ASSIGN(membership.welcome, await_welcome(fd.get()));
    std::string& address_of_rank_zero = membership.welcome.doors[0].address;
    if (address_of_rank_zero.empty()) address_of_rank_zero = address;
    membership.sockets.emplace(0, std::move(fd));
    return membership;
  }

  // Whom rank 0 was waiting for when we last heard.
  const std::string& missing() const { return missing_; }

 private:
  Result<Welcome> await_welcome(int fd) {
    FrameReader reader(kFramePayloadBytesMax);
    while (true) {
      YARD_ASSIGN(Frame frame, receive_frame(fd, reader, patience_));
      FrameFields fields(frame.payload);
      if (frame.type == FrameType::kWaiting) {
        missing_ = fields.text();
      } else if (frame.type == FrameType::kRefused) {
        const bool may_retry = fields.u8() != 0;
        Error error = fields.error();
        if (may_retry) error.code = Code::kUnavailable;
        return error;
      } else if (frame.type == FrameType::kWelcome) {
        return decode_welcome(frame, options_.world_size);
      } else {
        return Error{Code::kCorrupt, "rank 0 sent a message that has no place here"};
      }
    }
  }

  const RendezvousOptions& options_;
  const std::string& host_identity_;
  TlsTunnels* const tunnels_;
  const Patience& patience_;
  std::string missing_;
};

}  // namespace

Result<Membership> join_members(const RendezvousOptions& options, const std::string& host_identity,
                                TlsTunnels* tunnels, const Patience& patience) {
  std::string last_reason = "nobody listens";
  auto pause = kRetryMin;
  while (true) {
    Attempt attempt(options, host_identity, tunnels, patience);
    auto membership = attempt.run();
    if (membership) return membership;
    const Error& error = membership.error();
    if (error.code != Code::kUnavailable && error.code != Code::kDeadlineExceeded)
      return membership;
    if (error.code == Code::kDeadlineExceeded && SteadyClock::now() < patience.deadline)
      return membership;  // rank 0's verdict
    if (error.code == Code::kUnavailable) last_reason = error.message;
    const auto now = SteadyClock::now();
    if (now >= patience.deadline) {
      const auto waited_ms = options.connect_timeout.count();
      if (!attempt.missing().empty())
        return Error{Code::kDeadlineExceeded,
                     fmt::format("{} did not come within {} ms", attempt.missing(), waited_ms)};
      return Error{Code::kDeadlineExceeded,
                   fmt::format("rank 0 did not come within {} ms: {}:{}: {}", waited_ms,
                               options.master_address, options.master_port, last_reason)};
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(patience.deadline - now);
    if (patience.stop.wait_for(std::min(pause, left)))
      return Error{Code::kCancelled, "stop was asked"};
    pause = std::min(2 * pause, kRetryMax);
  }
}

}  // namespace yard::collective
