// Rank 0's side of the rendezvous: takes in every rank, turns strangers away.
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <set>

#include "base/ids.h"
#include "base/log.h"
#include "collective/membership_internal.h"

namespace yard::collective {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kWaitingInterval{500};
// Connections that have not yet said who they are; more wait in the kernel's queue.
constexpr size_t kCandidatesMax = 256;

class Hub {
 public:
  Hub(const RendezvousOptions& options, UniqueFd listener, TlsTunnels* tunnels,
      const Patience& patience)
      : options_(options), listener_(std::move(listener)), tunnels_(tunnels), patience_(patience) {}

  // All other ranks are there.
  Status gather() {
    while (members_.size() + 1 < static_cast<size_t>(options_.world_size)) {
      if (auto status = step(); !status) return refuse_all(std::move(status).error());
    }
    return Ok{};
  }

  Error refuse_all(Error error) {
    const std::string refusal = refused(error, 0);
    for (auto& [rank, member] : members_) send(member.fd, refusal);
    // Whoever has not said that he belongs to us may belong to those who come after us.
    const std::string come_again = refused(error, 1);
    for (Candidate& candidate : candidates_)
      send(candidate.fd, is_ours(candidate) ? refusal : come_again);
    return error;
  }

  struct Member {
    UniqueFd fd;
    Hello hello;
    std::string address;
  };
  std::map<int, Member>& members() { return members_; }

 private:
  struct Candidate {
    UniqueFd fd;
    std::string address;
    FrameReader reader{kSmallPayloadBytesMax};
    SteadyClock::time_point deadline;
  };

  bool is_ours(Candidate& candidate) const {
    auto frame = candidate.reader.read(candidate.fd.get());
    if (!frame || !*frame) return false;
    auto hello = decode_hello(**frame);
    return hello && is_ours(*hello);
  }
  bool is_ours(const Hello& hello) const {
    return hello.run_id == options_.run_id && hello.generation == options_.generation;
  }

  static std::string refused(const Error& error, uint8_t may_retry) {
    return FrameWriter(FrameType::kRefused).u8(may_retry).error(error).bytes();
  }

  static void send(const UniqueFd& fd, const std::string& bytes) {
    if (fd.valid()) ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 1; rank < options_.world_size; ++rank)
      if (!members_.contains(rank)) ranks.push_back(rank);
    return ranks;
  }

  // "rank 2 did not come within 5000 ms; rank 1 came and went again": who gave up waiting a moment
  // before us is not whom all were waiting for.
  std::string who_lacks() const {
    std::vector<int> absent;
    std::vector<int> gone;
    for (int rank : missing()) (came_.contains(rank) ? gone : absent).push_back(rank);
    std::string text;
    if (!absent.empty())
      text = fmt::format("{} did not come within {} ms", name_ranks(absent),
                         options_.connect_timeout.count());
    if (!gone.empty())
      text += fmt::format("{}{} came and went again", text.empty() ? "" : "; ", name_ranks(gone));
    if (tunnels_ == nullptr) return text;
    const std::string refusal = tunnels_->last_refusal();
    return refusal.empty() ? text : text + "; turned away: " + refusal;
  }

  Status step() {
    const auto now = SteadyClock::now();
    if (patience_.stop.stopped()) return Error{Code::kCancelled, "stop was asked"};
    if (now >= patience_.deadline) return Error{Code::kDeadlineExceeded, who_lacks()};
    if (now >= next_waiting_) tell_waiting(now);
    poll_once(now);
    accept_new(now);
    std::vector<Candidate> candidates = std::exchange(candidates_, {});
    for (Candidate& candidate : candidates) YARD_TRY(look_at(std::move(candidate)));
    drop_closed_members();
    return Ok{};
  }

  void poll_once(SteadyClock::time_point now) const {
    const bool full = candidates_.size() >= kCandidatesMax;
    std::vector<pollfd> polled{{.fd = full ? -1 : listener_.get(), .events = POLLIN, .revents = 0},
                               {.fd = patience_.stop.fd(), .events = POLLIN, .revents = 0}};
    for (const Candidate& candidate : candidates_)
      polled.push_back({.fd = candidate.fd.get(), .events = POLLIN, .revents = 0});
    for (const auto& [rank, member] : members_)
      polled.push_back({.fd = member.fd.get(), .events = POLLIN, .revents = 0});
    const auto until = std::min(patience_.deadline, next_waiting_);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now);
    ::poll(polled.data(), polled.size(), static_cast<int>(std::max<int64_t>(left.count(), 0)));
  }

  void accept_new(SteadyClock::time_point now) {
    while (candidates_.size() < kCandidatesMax) {
      UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd.valid()) return;
      set_tcp_options(fd.get());
      Candidate candidate;
      candidate.address = peer_address(fd.get());
      auto ours = secured(tunnels_, std::move(fd), TlsSide::kServer, candidate.address);
      if (!ours) continue;
      candidate.fd = *std::move(ours);
      candidate.deadline = now + kHelloTimeout;
      candidates_.push_back(std::move(candidate));
    }
  }

  // An Error here ends the rendezvous for all; a stranger is merely closed.
  Status look_at(Candidate candidate) {
    auto frame = candidate.reader.read(candidate.fd.get());
    if (frame && !*frame) {
      if (SteadyClock::now() < candidate.deadline) candidates_.push_back(std::move(candidate));
      return Ok{};
    }
    if (!frame) {
      log_debug("rendezvous: turned away {}: {}", candidate.address, frame.error().message);
      // It may be a rank that tries to talk TLS.
      if (frame.error().code == Code::kCorrupt && tunnels_ == nullptr)
        send(candidate.fd, refused({Code::kInvalidArgument,
                                    "this rank was given a key, and rank 0 talks without TLS"},
                                   0));
      return Ok{};
    }
    auto hello = decode_hello(**frame);
    if (!hello) return Ok{};
    return admit(std::move(candidate), *std::move(hello));
  }

  Status admit(Candidate candidate, Hello hello) {
    UniqueFd fd = std::move(candidate.fd);
    if (!is_ours(hello)) {
      // A newer generation may find its own rank 0 here once we are gone.
      const bool newer = hello.run_id == options_.run_id && hello.generation > options_.generation;
      send(fd, refused({Code::kInvalidArgument,
                        fmt::format("turned away: this is run '{}' generation {}, not run '{}' "
                                    "generation {}",
                                    options_.run_id, options_.generation, hello.run_id,
                                    hello.generation)},
                       newer ? 1 : 0));
      return Ok{};
    }
    const auto refuse = [&](std::string message) -> Status {
      Error error{Code::kInvalidArgument, std::move(message)};
      send(fd, refused(error, 0));
      return error;
    };
    if (hello.world_size != static_cast<uint32_t>(options_.world_size))
      return refuse(fmt::format("world sizes differ: rank 0 says {}, rank {} says {}",
                                options_.world_size, hello.rank, hello.world_size));
    if (hello.rank >= hello.world_size)
      return refuse(fmt::format("rank {} in a world of {}", hello.rank, hello.world_size));
    const int rank = static_cast<int>(hello.rank);
    drop_closed_members();
    if (rank == 0 || members_.contains(rank))
      return refuse(fmt::format("rank {} was given twice", rank));
    Member member{std::move(fd), std::move(hello), std::move(candidate.address)};
    send(member.fd, waiting_frame(rank));
    members_.emplace(rank, std::move(member));
    came_.insert(rank);
    return Ok{};
  }

  // A rank that died while waiting may come again.
  void drop_closed_members() {
    std::erase_if(members_, [](const auto& entry) {
      char byte = 0;
      const ssize_t got = ::recv(entry.second.fd.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
      // A member has nothing to say now either.
      return got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
    });
  }

  std::string waiting_frame(int except) const {
    std::vector<int> ranks = missing();
    std::erase(ranks, except);
    return FrameWriter(FrameType::kWaiting).text(ranks.empty() ? "" : name_ranks(ranks)).bytes();
  }

  void tell_waiting(SteadyClock::time_point now) {
    next_waiting_ = now + kWaitingInterval;
    const std::string frame = waiting_frame(-1);
    if (frame == last_waiting_) return;
    last_waiting_ = frame;
    for (auto& [rank, member] : members_) send(member.fd, frame);
  }

  const RendezvousOptions& options_;
  UniqueFd listener_;
  TlsTunnels* const tunnels_;
  const Patience& patience_;
  std::map<int, Member> members_;
  std::set<int> came_;  // also those who went again
  std::vector<Candidate> candidates_;
  SteadyClock::time_point next_waiting_ = SteadyClock::now() + kWaitingInterval;
  std::string last_waiting_;
};

std::vector<int>& host_of(std::map<std::string, size_t>& index_of,
                          std::vector<std::vector<int>>& hosts, const std::string& identity) {
  const auto [it, is_new] = index_of.emplace(identity, hosts.size());
  if (is_new) hosts.emplace_back();
  return hosts[it->second];
}

}  // namespace

Result<Membership> gather_members(const RendezvousOptions& options, UniqueFd listener,
                                  const std::string& host_identity, TlsTunnels* tunnels,
                                  const Patience& patience) {
  Membership membership;
  YARD_ASSIGN(membership.doors, open_doors(local_address(listener.get())));
  Hub hub(options, std::move(listener), tunnels, patience);
  YARD_TRY(hub.gather());

  Welcome& welcome = membership.welcome;
  welcome.session = random_name(32);
  std::map<std::string, size_t> index_of;
  host_of(index_of, welcome.hosts, host_identity).push_back(0);
  // The others know best under which address they reach us.
  welcome.doors.push_back({.address = "",
                           .port = local_port(membership.doors.data.get()),
                           .reunion_port = local_port(membership.doors.reunion.get()),
                           .team_name = membership.doors.team_name,
                           .host_name = options.host_name});
  for (auto& [rank, member] : hub.members()) {
    host_of(index_of, welcome.hosts, member.hello.host_identity).push_back(rank);
    welcome.doors.push_back({.address = member.address,
                             .port = member.hello.data_port,
                             .reunion_port = member.hello.reunion_port,
                             .team_name = member.hello.team_name,
                             .host_name = member.hello.host_name});
  }
  const std::string frame = encode_welcome(welcome, options.world_size);
  for (auto& [rank, member] : hub.members()) {
    if (auto sent = send_all(member.fd.get(), frame, patience); !sent)
      return hub.refuse_all(std::move(sent).error().while_(fmt::format("welcoming rank {}", rank)));
    membership.sockets.emplace(rank, std::move(member.fd));
  }
  return membership;
}

}  // namespace yard::collective
