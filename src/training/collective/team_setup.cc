#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "collective/team_internal.h"

namespace yard::collective {
namespace {

constexpr std::chrono::seconds kHelloTimeout{5};

Result<TeamSockets> welcome_members(const TeamPlace& place, const TeamDoor& door,
                                    const Patience& patience) {
  TeamSockets sockets(place.ranks.size());
  size_t missing_count = place.ranks.size() - 1;
  while (missing_count > 0) {
    YARD_ASSIGN(UniqueFd fd, accept_connection(door.listener, patience));
    // Any process of this machine may knock. Whoever is not of this group is not let in.
    if (peer_process(fd.get()).uid != ::geteuid()) continue;
    Patience short_patience = patience;
    short_patience.deadline =
        std::min(patience.deadline, std::chrono::steady_clock::now() + kHelloTimeout);
    FrameReader reader(kSmallPayloadBytesMax);
    auto frame = receive_frame(fd.get(), reader, short_patience);
    if (!frame || frame->type != FrameType::kNeighbour) continue;
    FrameFields fields(frame->payload);
    const std::string session = fields.text();
    const auto rank = static_cast<int>(fields.u32());
    if (!fields.complete() || session != door.session) continue;
    for (size_t i = 1; i < place.ranks.size(); ++i) {
      if (place.ranks[i] != rank || sockets[i].valid()) continue;
      sockets[i] = std::move(fd);
      --missing_count;
      break;
    }
  }
  return sockets;
}

Result<TeamSockets> join_leader(const TeamPlace& place, const TeamDoor& door,
                                const Patience& patience) {
  TeamSockets sockets;
  YARD_ASSIGN(UniqueFd fd, connect_abstract(door.leader_name, patience));
  const std::string hello = FrameWriter(FrameType::kNeighbour)
                                .text(door.session)
                                .u32(static_cast<uint32_t>(place.ranks[place.index]))
                                .bytes();
  YARD_TRY(send_all(fd.get(), hello, patience));
  sockets.push_back(std::move(fd));
  return sockets;
}

}  // namespace

Result<TeamSockets> connect_team(const TeamPlace& place, const TeamDoor& door,
                                 const Patience& patience) {
  if (place.ranks.size() == 1) return TeamSockets(1);
  return place.index == 0 ? welcome_members(place, door, patience)
                          : join_leader(place, door, patience);
}

Result<SharedMemory> share_memory(const TeamPlace& place, const TeamSockets& sockets,
                                  size_t size_bytes, const Patience& patience) {
  if (place.index != 0) {
    YARD_ASSIGN(UniqueFd fd, receive_descriptor(sockets[0].get(), patience));
    return SharedMemory::map(std::move(fd), size_bytes);
  }
  YARD_ASSIGN(SharedMemory memory, SharedMemory::create(size_bytes));
  for (size_t i = 1; i < place.ranks.size(); ++i)
    YARD_TRY(send_descriptor(sockets[i].get(), memory.fd(), patience));
  return memory;
}

}  // namespace yard::collective
