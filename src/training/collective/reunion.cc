#include "collective/reunion_internal.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/ids.h"
#include "collective/membership_internal.h"
#include "collective/socket_internal.h"

namespace yard::collective {
namespace {

using SteadyClock = std::chrono::steady_clock;

// A host that answers not even this fast is as good as none.
constexpr std::chrono::milliseconds kReachTimeout{2000};
constexpr std::chrono::milliseconds kStep{50};
constexpr size_t kCandidatesMax = 256;
// A leader that closes its door and opens it again has begun anew.
constexpr int kTriesMax = 3;

bool is_closed(const UniqueFd& fd) {
  char byte = 0;
  const ssize_t got = ::recv(fd.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && !would_block(errno));
}

// What one rank has found out about the others.
class Survey {
 public:
  Survey(const ReunionPlace& place, const ShrinkOptions& options) : place_(place) {
    left_out_.insert(options.without.begin(), options.without.end());
  }

  bool is_left_out(int rank) const { return left_out_.contains(rank); }
  bool is_dead(int rank) const { return dead_.contains(rank); }
  bool is_silent(int rank) const { return silent_.contains(rank); }
  bool is_settled(int rank) const {
    return is_left_out(rank) || is_dead(rank) || is_silent(rank) || rank == place_.rank;
  }
  void say_silent(int rank) { silent_.insert(rank); }
  std::set<int> silent() const {
    std::set<int> ranks;
    for (const int rank : silent_)
      if (!is_left_out(rank)) ranks.insert(rank);
    return ranks;
  }

  // A connection to the door of `rank`; none: what becomes of it is known now.
  UniqueFd reach(int rank, SteadyClock::time_point deadline) {
    const PeerDoor& door = place_.doors[static_cast<size_t>(rank)];
    const Patience patience{.deadline = std::min(deadline, SteadyClock::now() + kReachTimeout)};
    bool is_refused = false;
    auto fd = connect_tcp(door.address, door.reunion_port, patience, &is_refused);
    // A process that is just ending resets what came before its door closed.
    for (int i = 0; i < kTriesMax && !fd && !is_refused && fd.error().code == Code::kUnavailable;
         ++i)
      fd = connect_tcp(door.address, door.reunion_port, patience, &is_refused);
    if (fd) fd = secured(place_.tunnels, *std::move(fd), TlsSide::kClient, door.address);
    if (fd) return *std::move(fd);
    if (is_refused)
      dead_.insert(rank);
    else
      silence_host_of(rank);
    return {};
  }

 private:
  // Asking its other ranks would take as long each.
  void silence_host_of(int rank) {
    for (const auto& ranks : place_.hosts)
      if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end())
        for (const int each : ranks)
          if (!is_settled(each)) silent_.insert(each);
  }

  const ReunionPlace& place_;
  std::set<int> left_out_;
  std::set<int> dead_;
  std::set<int> silent_;
};

Error left_out(int rank, int by) {
  return {Code::kInvalidArgument, fmt::format("rank {} was left out by rank {}", rank, by)};
}

// ---- the rank that leads

class Leader {
 public:
  Leader(const ReunionPlace& place, Survey& survey, SteadyClock::time_point deadline)
      : place_(place), survey_(survey), deadline_(deadline) {}

  Result<Reunited> run() {
    while (!missing().empty() && SteadyClock::now() < deadline_) step();
    for (const int rank : missing()) survey_.say_silent(rank);
    std::set<int> together{place_.rank};
    for (const auto& [rank, fd] : members_) together.insert(rank);
    std::set<int> in_doubt = survey_.silent();
    for (const int rank : together) in_doubt.erase(rank);
    if (!is_majority(together, in_doubt)) {
      const std::vector<int> doubtful(in_doubt.begin(), in_doubt.end());
      return refuse_all(
          {Code::kUnavailable,
           fmt::format("{} cannot be asked and may be a group without us: {} of {} "
                       "are no majority",
                       name_ranks(doubtful), together.size(), together.size() + in_doubt.size())});
    }
    return begin(together);
  }

 private:
  struct Candidate {
    UniqueFd fd;
    FrameReader reader{kSmallPayloadBytesMax};
    SteadyClock::time_point deadline;
  };

  // Ranks that live, as far as we know, and have not come.
  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < static_cast<int>(place_.doors.size()); ++rank)
      if (!members_.contains(rank) && !survey_.is_settled(rank)) ranks.push_back(rank);
    return ranks;
  }

  void step() {
    accept_new();
    std::vector<Candidate> candidates = std::exchange(candidates_, {});
    for (Candidate& candidate : candidates) look_at(std::move(candidate));
    std::erase_if(members_, [](const auto& entry) { return is_closed(entry.second); });
    std::erase_if(probes_, [](const auto& entry) { return is_closed(entry.second); });
    for (const int rank : missing()) {
      if (probes_.contains(rank) || survey_.is_settled(rank)) continue;
      UniqueFd probe = survey_.reach(rank, deadline_);
      if (probe.valid()) probes_.emplace(rank, std::move(probe));
    }
    if (!missing().empty()) wait();
  }

  void wait() const {
    std::vector<pollfd> polled{{.fd = place_.listener, .events = POLLIN, .revents = 0}};
    const auto add = [&](const UniqueFd& fd) {
      polled.push_back({.fd = fd.get(), .events = POLLIN, .revents = 0});
    };
    for (const Candidate& candidate : candidates_) add(candidate.fd);
    for (const auto& [rank, fd] : members_) add(fd);
    for (const auto& [rank, fd] : probes_) add(fd);
    ::poll(polled.data(), polled.size(), static_cast<int>(kStep.count()));
  }

  void accept_new() {
    while (candidates_.size() < kCandidatesMax) {
      UniqueFd fd(::accept4(place_.listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd.valid()) return;
      set_tcp_options(fd.get());
      const std::string peer = peer_address(fd.get());
      auto ours = secured(place_.tunnels, std::move(fd), TlsSide::kServer, peer);
      if (!ours) continue;
      Candidate candidate;
      candidate.fd = *std::move(ours);
      candidate.deadline = SteadyClock::now() + kHelloTimeout;
      candidates_.push_back(std::move(candidate));
    }
  }

  void look_at(Candidate candidate) {
    auto frame = candidate.reader.read(candidate.fd.get());
    if (frame && !*frame) {
      if (SteadyClock::now() < candidate.deadline) candidates_.push_back(std::move(candidate));
      return;
    }
    const auto name = frame ? name_of_neighbour(**frame, place_.session) : std::nullopt;
    if (!name || name->rank < 0 || name->rank >= static_cast<int>(place_.doors.size())) return;
    if (survey_.is_left_out(name->rank))
      refuse(candidate.fd, left_out(name->rank, place_.rank));
    else if (name->rank != place_.rank)
      members_.insert_or_assign(name->rank, std::move(candidate.fd));
  }

  static void refuse(const UniqueFd& fd, const Error& error) {
    const std::string bytes = FrameWriter(FrameType::kRefused).u8(0).error(error).bytes();
    ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  Error refuse_all(Error error) {
    for (const auto& [rank, fd] : members_) refuse(fd, error);
    return error;
  }

  Result<Reunited> begin(const std::set<int>& together) {
    Reunited reunited;
    reunited.size = static_cast<int>(together.size());
    reunited.leader = place_.rank;
    reunited.run_id = random_name(32);
    auto listener = listen_tcp(place_.own_address, 0);
    if (!listener) return refuse_all(std::move(listener).error());
    reunited.listener = *std::move(listener);
    reunited.port = local_port(reunited.listener.get());
    int place = 0;
    for (const int rank : together) {
      if (rank == place_.rank) {
        reunited.rank = place++;
        continue;
      }
      const std::string frame = FrameWriter(FrameType::kSurvivors)
                                    .u32(static_cast<uint32_t>(place++))
                                    .u32(static_cast<uint32_t>(reunited.size))
                                    .u16(reunited.port)
                                    .text(reunited.run_id)
                                    .bytes();
      // One that dies now is missed at the rendezvous.
      (void)send_all(members_.at(rank).get(), frame, {.deadline = deadline_ + kReachTimeout});
    }
    return reunited;
  }

  const ReunionPlace& place_;
  Survey& survey_;
  const SteadyClock::time_point deadline_;
  std::map<int, UniqueFd> members_;
  std::map<int, UniqueFd> probes_;  // to doors of ranks that have not come: they show who dies
  std::vector<Candidate> candidates_;
};

// ---- the others

Result<Reunited> place_in(const Frame& frame, int leader) {
  FrameFields fields(frame.payload);
  if (frame.type == FrameType::kRefused) {
    (void)fields.u8();
    return fields.error();
  }
  Reunited reunited;
  const uint32_t rank = fields.u32();
  const uint32_t size = fields.u32();
  reunited.port = fields.u16();
  reunited.run_id = fields.text();
  constexpr uint32_t kRanksMax = 4096;
  if (frame.type != FrameType::kSurvivors || !fields.complete() || size > kRanksMax || rank == 0 ||
      rank >= size)
    return Error{Code::kCorrupt,
                 fmt::format("rank {} sent a message that has no place here", leader)};
  reunited.rank = static_cast<int>(rank);
  reunited.size = static_cast<int>(size);
  reunited.leader = leader;
  return reunited;
}

// What `leader` tells; nothing: it is dead or silent, as the survey says then.
Result<std::optional<Reunited>> follow(const ReunionPlace& place, int leader, Survey& survey,
                                       SteadyClock::time_point deadline) {
  for (int i = 0; i < kTriesMax && SteadyClock::now() < deadline; ++i) {
    UniqueFd fd = survey.reach(leader, deadline);
    if (!fd.valid()) return std::optional<Reunited>();
    const Patience patience{.deadline = deadline};
    FrameReader reader(kSmallPayloadBytesMax);
    if (!send_all(fd.get(), neighbour_hello(place.session, {.rank = place.rank}), patience))
      continue;
    auto frame = receive_frame(fd.get(), reader, patience);
    if (frame) {
      YARD_ASSIGN(Reunited reunited, place_in(*frame, leader));
      return std::optional<Reunited>(std::move(reunited));
    }
    if (frame.error().code == Code::kDeadlineExceeded) break;
  }
  survey.say_silent(leader);
  return std::optional<Reunited>();
}

}  // namespace

bool is_majority(const std::set<int>& together, const std::set<int>& in_doubt) {
  if (in_doubt.empty() || together.empty()) return !together.empty();
  if (together.size() != in_doubt.size()) return together.size() > in_doubt.size();
  return *together.begin() < *in_doubt.begin();
}

Result<Reunited> reunite(const ReunionPlace& place, const ShrinkOptions& options) {
  Survey survey(place, options);
  for (int rank = 0; rank < place.rank; ++rank) {
    if (survey.is_settled(rank)) continue;
    // It may begin as late as `timeout` after us, and then waits as long for the others.
    const auto until = SteadyClock::now() + 2 * options.timeout;
    YARD_ASSIGN(std::optional<Reunited> reunited, follow(place, rank, survey, until));
    if (reunited) return std::move(*reunited);
  }
  return Leader(place, survey, SteadyClock::now() + options.timeout).run();
}

}  // namespace yard::collective
