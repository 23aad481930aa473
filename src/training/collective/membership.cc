#include "collective/membership_internal.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ids.h"

namespace yard::collective {
namespace {

constexpr uint8_t kVersion = 2;
constexpr size_t kNamedMax = 8;
constexpr size_t kTeamNameBytesMax = 64;

}  // namespace

std::string encode_hello(const Hello& hello) {
  return FrameWriter(FrameType::kHello)
      .u8(kVersion)
      .u32(hello.rank)
      .u32(hello.world_size)
      .u64(hello.generation)
      .text(hello.run_id)
      .text(hello.host_identity)
      .text(hello.host_name)
      .u16(hello.data_port)
      .u16(hello.reunion_port)
      .text(hello.team_name)
      .bytes();
}

Result<Hello> decode_hello(const Frame& frame) {
  FrameFields fields(frame.payload);
  const uint8_t version = fields.u8();
  Hello hello;
  hello.rank = fields.u32();
  hello.world_size = fields.u32();
  hello.generation = fields.u64();
  hello.run_id = fields.text();
  hello.host_identity = fields.text();
  hello.host_name = fields.text();
  hello.data_port = fields.u16();
  hello.reunion_port = fields.u16();
  hello.team_name = fields.text();
  if (frame.type != FrameType::kHello || version != kVersion || !fields.complete())
    return Error{Code::kCorrupt, "not a hello of this version"};
  return hello;
}

std::string encode_welcome(const Welcome& welcome, int world_size) {
  std::vector<uint32_t> host_of_rank(static_cast<size_t>(world_size));
  for (size_t host = 0; host < welcome.hosts.size(); ++host)
    for (const int rank : welcome.hosts[host])
      host_of_rank[static_cast<size_t>(rank)] = static_cast<uint32_t>(host);
  FrameWriter writer(FrameType::kWelcome);
  writer.text(welcome.session).u32(static_cast<uint32_t>(welcome.hosts.size()));
  for (size_t rank = 0; rank < host_of_rank.size(); ++rank) {
    const PeerDoor& door = welcome.doors[rank];
    writer.u32(host_of_rank[rank]).text(door.address).text(door.host_name);
    writer.u16(door.port).u16(door.reunion_port).text(door.team_name);
  }
  return writer.bytes();
}

Result<Welcome> decode_welcome(const Frame& frame, int world_size) {
  const Error corrupt{Code::kCorrupt, "rank 0 sent a list of ranks that cannot be"};
  FrameFields fields(frame.payload);
  Welcome welcome;
  welcome.session = fields.text();
  const uint32_t host_count = fields.u32();
  if (host_count == 0 || host_count > static_cast<uint32_t>(world_size)) return corrupt;
  welcome.hosts.resize(host_count);
  for (int rank = 0; rank < world_size; ++rank) {
    const uint32_t host = fields.u32();
    if (host >= host_count) return corrupt;
    welcome.hosts[host].push_back(rank);
    PeerDoor& door = welcome.doors.emplace_back();
    door.address = fields.text();
    door.host_name = fields.text();
    door.port = fields.u16();
    door.reunion_port = fields.u16();
    door.team_name = fields.text();
    if (door.team_name.size() > kTeamNameBytesMax) return corrupt;
  }
  for (const auto& ranks : welcome.hosts)
    if (ranks.empty()) return corrupt;
  if (!fields.complete()) return corrupt;
  return welcome;
}

Result<Doors> open_doors(const std::string& address) {
  Doors doors;
  YARD_ASSIGN(doors.data, listen_tcp(address, 0));
  YARD_ASSIGN(doors.reunion, listen_tcp(address, 0));
  doors.team_name = "yard-" + random_name(24);
  YARD_ASSIGN(doors.team, listen_abstract(doors.team_name));
  return doors;
}

std::string name_ranks(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  std::string text = "ranks ";
  const size_t named = std::min(ranks.size(), kNamedMax);
  for (size_t i = 0; i < named; ++i) {
    const bool last = i + 1 == ranks.size();
    text += fmt::format("{}{}", i == 0 ? "" : last ? " and " : ", ", ranks[i]);
  }
  if (ranks.size() > named) text += fmt::format(" and {} more", ranks.size() - named);
  return text;
}

}  // namespace yard::collective
