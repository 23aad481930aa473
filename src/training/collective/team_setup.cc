#include "collective/team_internal.h"

namespace yard::collective {
namespace {

Result<TeamSockets> welcome_members(const TeamPlace& place, const TeamDoor& door,
                                    const Patience& patience) {
  TeamSockets sockets(place.ranks.size());
  size_t missing_count = place.ranks.size() - 1;
  while (missing_count > 0) {
    YARD_ASSIGN(Neighbour member,
                accept_neighbour(door.listener, Door::kUnix, door.session, nullptr, patience));
    for (size_t i = 1; i < place.ranks.size(); ++i) {
      if (place.ranks[i] != member.name.rank || sockets[i].valid()) continue;
      sockets[i] = std::move(member.fd);
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
  YARD_TRY(send_all(fd.get(), neighbour_hello(door.session, {.rank = place.ranks[place.index]}),
                    patience));
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
