#include "collective/rendezvous.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "collective/group_internal.h"
#include "collective/hardware.h"
#include "collective/membership_internal.h"

namespace yard::collective {
namespace {

constexpr int kWorldSizeMax = 4096;
constexpr int kStreamsMax = 16;
constexpr size_t kNameBytesMax = 256;
constexpr size_t kHostNameBytesMax = 64;
// How long ranks have to say whom they wait for: of no weight to those who have waited for so much
// longer, and enough on a busy machine.
constexpr std::chrono::milliseconds kAnswerTimeoutMin{250};
constexpr std::chrono::milliseconds kAnswerTimeoutMax{2000};

Status check(const RendezvousOptions& options) {
  const auto refuse = [](std::string message) {
    return Error{Code::kInvalidArgument, std::move(message)};
  };
  if (options.world_size < 1 || options.world_size > kWorldSizeMax)
    return refuse(
        fmt::format("world size {} is not in [1, {}]", options.world_size, kWorldSizeMax));
  if (options.rank < 0 || options.rank >= options.world_size)
    return refuse(fmt::format("rank {} in a world of {}", options.rank, options.world_size));
  if (options.world_size > 1 && options.master_port == 0 &&
      (options.rank != 0 || !options.announce))
    return refuse("the master port must be given");
  if (options.run_id.size() > kNameBytesMax || options.host_identity.size() > kNameBytesMax)
    return refuse(fmt::format("run id or host identity is longer than {} bytes", kNameBytesMax));
  if (options.host_name.size() > kHostNameBytesMax)
    return refuse(fmt::format("host name is longer than {} bytes", kHostNameBytesMax));
  if (options.streams_between_hosts < 0 || options.streams_between_hosts > kStreamsMax)
    return refuse(fmt::format("{} connections between hosts are not in [0, {}]",
                              options.streams_between_hosts, kStreamsMax));
  if (options.connect_timeout.count() <= 0 || options.operation_timeout.count() <= 0)
    return refuse("timeouts must be positive");
  return Ok{};
}

Topology topology_of(const RendezvousOptions& options, const Welcome& welcome) {
  Topology topology;
  topology.rank = options.rank;
  topology.size = options.world_size;
  topology.hosts = welcome.hosts;
  topology.host_index = topology.host_of(options.rank);
  return topology;
}

std::vector<std::string> host_names_of(const Welcome& welcome) {
  std::vector<std::string> names;
  for (const PeerDoor& door : welcome.doors) names.push_back(door.host_name);
  return names;
}

TeamPlace place_of(const Topology& topology) {
  TeamPlace place;
  place.ranks = topology.hosts[topology.host_index];
  while (place.ranks[place.index] != topology.rank) ++place.index;
  place.alone = topology.hosts.size() == 1;
  place.world_size = topology.size;
  return place;
}

Status make_team(Connected& parts, Membership& membership, const Patience& patience) {
  const auto leader = static_cast<size_t>(parts.place.ranks[0]);
  const TeamDoor door{.listener = membership.doors.team.get(),
                      .leader_name = membership.welcome.doors[leader].team_name,
                      .session = membership.welcome.session};
  YARD_ASSIGN(parts.team_sockets, connect_team(parts.place, door, patience));
  YARD_ASSIGN(SharedMemory segment, share_memory(parts.place, parts.team_sockets,
                                                 Team::segment_bytes(parts.place), patience));
  parts.team = std::make_unique<Team>(parts.place, std::move(segment), *parts.failure,
                                      parts.options.operation_timeout);
  return Ok{};
}

Status make_links(Connected& parts, Membership& membership, const Patience& patience) {
  if (parts.place.index >= parts.topology.rail_count() || parts.place.alone) return Ok{};
  LinksPlace place;
  for (const auto& ranks : parts.topology.hosts) place.ranks.push_back(ranks[parts.place.index]);
  place.index = parts.topology.host_index;
  const auto asked_count = static_cast<size_t>(parts.options.streams_between_hosts);
  // All tunnels are one thread's.
  const size_t tried_count = parts.tunnels ? 1 : kStreamsTried;
  const LinksDoor door{.listener = membership.doors.data.get(),
                       .doors = &membership.welcome.doors,
                       .session = membership.welcome.session,
                       .tunnels = parts.tunnels.get(),
                       .stream_count = asked_count == 0 ? tried_count : asked_count,
                       .used_count = std::max<size_t>(asked_count, 1)};
  YARD_ASSIGN(parts.links, connect_links(place, door, *parts.failure,
                                         parts.options.operation_timeout, patience));
  parts.rail = std::make_unique<HostAlgorithms>(*parts.links, parts.options.between_hosts,
                                                parts.options.f32_between_hosts);
  return Ok{};
}

// A process of our host is watched by those who have a connection to it in the team: the leader by
// all, the others by the leader.
void watch_processes(Connected& parts) {
  for (size_t i = 0; i < parts.team_sockets.size(); ++i) {
    if (!parts.team_sockets[i].valid()) continue;
    const int pid = peer_process(parts.team_sockets[i].get()).pid;
    if (pid == ::getpid()) continue;  // ranks as threads
    UniqueFd pidfd = open_pidfd(pid);
    if (!pidfd.valid()) continue;
    const int peer_rank = parts.place.index == 0 ? parts.place.ranks[i] : parts.place.ranks[0];
    parts.control->watch(peer_rank, std::move(pidfd), [team = parts.team.get(), peer_rank] {
      team->adopt_abort();
      return team->has_left(peer_rank);
    });
  }
}

void make_messages(Connected& parts, Membership membership) {
  PointToPoint::Place place{.rank = parts.topology.rank,
                            .session = membership.welcome.session,
                            .doors = std::move(membership.welcome.doors),
                            .data_listener = std::move(membership.doors.data),
                            .team_listener = std::move(membership.doors.team),
                            .tunnels = parts.tunnels};
  for (const int rank : parts.place.ranks) place.doors[static_cast<size_t>(rank)].is_near = true;
  parts.own_address = local_address(place.data_listener.get());
  if (parts.topology.rank == 0) place.doors[0].address = parts.own_address;
  parts.messages = std::make_unique<PointToPoint>(std::move(place), *parts.failure,
                                                  parts.options.operation_timeout);
}

Status connect_parts(Connected& parts, Membership& membership, const Patience& patience) {
  YARD_TRY(make_team(parts, membership, patience));
  YARD_TRY(make_links(parts, membership, patience));
  watch_processes(parts);
  YARD_TRY(parts.control->all_ready(patience));
  if (parts.rail) {
    YARD_TRY(parts.rail->measure());
    if (parts.topology.rank == 0) log_info("collective: {}", parts.rail->describe_choice());
  }
  make_messages(parts, std::move(membership));
  return Ok{};
}

Result<Membership> meet(const RendezvousOptions& options, UniqueFd listener,
                        const std::string& identity, TlsTunnels* tunnels,
                        const Patience& patience) {
  if (options.rank != 0) return join_members(options, identity, tunnels, patience);
  if (!listener.valid()) {
    YARD_ASSIGN(listener, listen_tcp(options.master_address, options.master_port));
    if (options.announce) YARD_TRY(options.announce(local_port(listener.get())));
  }
  return gather_members(options, std::move(listener), identity, tunnels, patience);
}

}  // namespace

Result<std::unique_ptr<Group>> connect(const RendezvousOptions& options, const StopToken& stop) {
  return connect_at(options, UniqueFd(), stop);
}

Result<std::unique_ptr<Group>> connect_at(const RendezvousOptions& options, UniqueFd listener,
                                          const StopToken& stop, KeptDoors doors) {
  YARD_TRY(check(options));
  if (options.world_size == 1) return single_rank_group(std::move(doors));
  Patience patience{.deadline = std::chrono::steady_clock::now() + options.connect_timeout,
                    .stop = stop};
  const std::string identity =
      options.host_identity.empty() ? host_identity() : options.host_identity;
  Connected parts;
  if (!options.tls_key.empty()) {
    YARD_ASSIGN(parts.tunnels, TlsTunnels::create(options.tls_key));
  }
  YARD_ASSIGN(Membership membership,
              meet(options, std::move(listener), identity, parts.tunnels.get(), patience));
  YARD_ASSIGN(parts.flight, FlightRecorder::create(options.flight_path, options.rank,
                                                   options.world_size, options.generation));
  parts.options = options;
  parts.options.announce = nullptr;
  parts.options.flight_path.clear();  // of this group alone
  parts.topology = topology_of(options, membership.welcome);
  parts.place = place_of(parts.topology);
  parts.failure = std::make_unique<Failure>();
  parts.failure->show_waited_rank_in(parts.flight->waited_rank());
  parts.failure->set_host_names(host_names_of(membership.welcome));
  parts.doors = std::move(doors);
  parts.doors.push_back(std::make_shared<UniqueFd>(std::move(membership.doors.reunion)));
  parts.control = std::make_unique<Control>(
      options.rank, std::move(membership.sockets), *parts.failure,
      std::clamp(options.operation_timeout, kAnswerTimeoutMin, kAnswerTimeoutMax));
  parts.control->watch_doors({parts.doors.begin(), parts.doors.end() - 1}, parts.tunnels);
  parts.failure->set_culprit_finder(
      [control = parts.control.get()](int waited) { return control->find_culprit(waited); });
  patience.failure = parts.failure.get();
  if (auto status = connect_parts(parts, membership, patience); !status) {
    // The peers learn why before our connections close.
    const Error error = parts.failure->report_after(
        {}, std::move(status).error().while_(fmt::format("rank {} connecting", options.rank)));
    parts.control->stop();
    parts.failure->remove_listeners();
    return error;
  }
  return make_group(std::move(parts));
}

}  // namespace yard::collective
