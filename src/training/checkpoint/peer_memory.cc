#include "checkpoint/peer_memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "checkpoint/agreement_internal.h"
#include "checkpoint/manifest.h"

namespace yard::checkpoint {
namespace {

constexpr uint64_t kHeaderTag = 1;
constexpr uint64_t kBytesTag = 2;

std::string machine_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

uint64_t bytes_of(const Layout& layout) {
  uint64_t sum = 0;
  for (const ChunkInfo& chunk : layout) sum += chunk_bytes(chunk.info, chunk.region);
  return sum;
}

// One copy that a rank has, as it tells the others.
struct Offer {
  int owner = 0;
  std::string id;
  int64_t step = 0;
  int world_size = 0;
  uint64_t header_bytes = 0;
  uint64_t size_bytes = 0;
};

Result<std::vector<std::vector<Offer>>> offers_of(const std::vector<Json>& messages) {
  std::vector<std::vector<Offer>> all;
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    const std::string what = fmt::format("copies of rank {}", rank);
    std::vector<Offer>& own = all.emplace_back();
    YARD_ASSIGN(const auto copies, json_field<std::vector<Json>>(messages[rank], "copies", what));
    for (const Json& copy : copies) {
      Offer& offer = own.emplace_back();
      YARD_ASSIGN(offer.owner, json_field<int>(copy, "owner", what));
      YARD_ASSIGN(offer.id, json_field<std::string>(copy, "id", what));
      YARD_ASSIGN(offer.step, json_field<int64_t>(copy, "step", what));
      YARD_ASSIGN(offer.world_size, json_field<int>(copy, "world_size", what));
      YARD_ASSIGN(offer.header_bytes, json_field<uint64_t>(copy, "header_bytes", what));
      YARD_ASSIGN(offer.size_bytes, json_field<uint64_t>(copy, "size_bytes", what));
    }
  }
  return all;
}

// Where the copy `id` of `owner` is: with itself if it can be, else the first that has it.
struct Place {
  int rank = 0;
  const Offer* offer = nullptr;
};
std::optional<Place> place_of(const std::vector<std::vector<Offer>>& all, const std::string& id,
                              int owner) {
  std::optional<Place> found;
  for (size_t rank = 0; rank < all.size(); ++rank)
    for (const Offer& offer : all[rank]) {
      const bool is_it = offer.id == id && offer.owner == owner &&
                         offer.world_size == static_cast<int>(all.size());
      if (is_it && (!found || static_cast<int>(rank) == owner))
        found = Place{static_cast<int>(rank), &offer};
    }
  return found;
}

}  // namespace

std::vector<int> partner_ranks(const std::vector<std::string>& hosts) {
  std::vector<std::string> names;  // in the order in which they appear
  std::map<std::string, std::vector<int>> ranks;
  std::vector<size_t> places;  // of each rank among those of its host
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    std::vector<int>& on_host = ranks[hosts[rank]];
    if (on_host.empty()) names.push_back(hosts[rank]);
    places.push_back(on_host.size());
    on_host.push_back(static_cast<int>(rank));
  }
  std::vector<int> partners;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto host = static_cast<size_t>(std::ranges::find(names, hosts[rank]) - names.begin());
    const std::vector<int>& next = ranks[names[(host + 1) % names.size()]];
    const size_t place = names.size() > 1 ? places[rank] : places[rank] + 1;
    partners.push_back(next[place % next.size()]);
  }
  return partners;
}

PeerMemory::PeerMemory(std::string host) : host_(host.empty() ? machine_name() : std::move(host)) {}

PeerMemory::Slot& PeerMemory::next_slot(int owner) {
  Slots& slots = slots_[owner];
  const bool must_stay = slots[0].is_whole && slots[0].info.id == agreed_id_;
  return must_stay ? slots[1] : slots[0];
}

PeerMemory::Slot* PeerMemory::find(int owner, std::string_view id) {
  const auto slots = slots_.find(owner);
  if (slots == slots_.end()) return nullptr;
  for (Slot& slot : slots->second)
    if (slot.is_whole && slot.info.id == id) return &slot;
  return nullptr;
}

Status PeerMemory::reserve(int rank, uint64_t size_bytes) {
  for (Slot& slot : slots_[rank])
    if (!slot.is_whole) YARD_TRY(slot.buffer.reserve(size_bytes));
  return Ok{};
}

StagingBuffer& PeerMemory::next_buffer(int rank) {
  Slot& slot = next_slot(rank);
  slot.is_whole = false;
  return slot.buffer;
}

// Makes a copy of which the bytes are there one that counts.
void PeerMemory::seal(Slot& slot, CopyInfo info, int world_size) const {
  slot.info = std::move(info);
  slot.size_bytes = bytes_of(slot.info.layout);
  slot.header = Json{{"id", slot.info.id},
                     {"step", slot.info.step},
                     {"world_size", world_size},
                     {"layout", to_json(slot.info.layout)},
                     {"metadata", slot.info.notes.metadata},
                     {"rank_metadata", slot.info.notes.rank_metadata},
                     {"crc32c", crc32c(slot.buffer.bytes().first(slot.size_bytes))}}
                    .dump();
  slot.is_whole = true;
}

// The same for one that came from a peer, which is not believed.
Status PeerMemory::open(Slot& slot, const Move& move) const {
  const std::string what = fmt::format("copy of rank {} from rank {}", move.owner, move.from);
  YARD_ASSIGN(const Json json, parse_json(slot.header, what));
  CopyInfo info;
  YARD_ASSIGN(info.id, json_field<std::string>(json, "id", what));
  YARD_ASSIGN(info.step, json_field<int64_t>(json, "step", what));
  YARD_ASSIGN(const Json layout, json_field<Json>(json, "layout", what));
  YARD_ASSIGN(info.layout, layout_from_json(layout, what));
  YARD_ASSIGN(info.notes.metadata, json_field<Json>(json, "metadata", what));
  YARD_ASSIGN(info.notes.rank_metadata, json_field<Json>(json, "rank_metadata", what));
  YARD_ASSIGN(const auto checksum, json_field<uint32_t>(json, "crc32c", what));
  const bool is_it = info.id == move.id && bytes_of(info.layout) == move.size_bytes &&
                     crc32c(slot.buffer.bytes().first(move.size_bytes)) == checksum;
  if (!is_it) return Error{Code::kCorrupt, what + ": is damaged"};
  slot.info = std::move(info);
  slot.size_bytes = move.size_bytes;
  slot.is_whole = true;
  return Ok{};
}

// Sends and receives what concerns this rank; every rank knows all moves, so that all are ready.
Status PeerMemory::carry_out(collective::Group& group, const std::vector<Move>& moves) {
  const int rank = group.rank();
  Status ready = Ok{};
  std::vector<std::pair<const Move*, Slot*>> arrivals;
  for (const Move& move : moves) {
    if (move.to != rank) continue;
    Slot& slot = next_slot(move.owner);
    slot.is_whole = false;
    slot.header.assign(move.header_bytes, '\0');
    if (ready) ready = slot.buffer.reserve(move.size_bytes);
    arrivals.emplace_back(&move, &slot);
  }
  const auto exchange = exchange_over(group);
  YARD_TRY(tell_all(*exchange, ready, Json::object()));
  std::vector<std::unique_ptr<collective::Work>> works;
  for (const Move& move : moves) {
    if (move.from != rank) continue;
    const Slot* const slot = find(move.owner, move.id);
    YARD_CHECK(slot != nullptr);  // it was offered
    works.push_back(group.send(std::as_bytes(std::span(slot->header)), move.to, kHeaderTag));
    works.push_back(group.send(slot->buffer.bytes().first(move.size_bytes), move.to, kBytesTag));
  }
  for (const auto& [move, slot] : arrivals) {
    works.push_back(
        group.receive(std::as_writable_bytes(std::span(slot->header)), move->from, kHeaderTag));
    works.push_back(
        group.receive(slot->buffer.bytes().first(move->size_bytes), move->from, kBytesTag));
  }
  Status moved = Ok{};
  for (const auto& work : works) {
    Status done = work->wait();
    if (moved && !done) moved = std::move(done);
  }
  for (const auto& [move, slot] : arrivals)
    if (moved) moved = open(*slot, *move);
  return moved;
}

Status PeerMemory::transfer(collective::Group& group, const std::vector<Move>& moves) {
  const Status moved = carry_out(group, moves);
  const auto exchange = exchange_over(group);
  YARD_TRY(tell_all(*exchange, moved, Json::object()));
  return Ok{};
}

Status PeerMemory::keep(collective::Group& group, CopyInfo info) {
  rank_ = group.rank();
  const std::string id = info.id;
  Slot& own = next_slot(rank_);
  seal(own, std::move(info), group.size());
  const auto exchange = exchange_over(group);
  YARD_ASSIGN(const auto messages, tell_all(*exchange, Ok{},
                                            {{"host", host_},
                                             {"header_bytes", own.header.size()},
                                             {"size_bytes", own.size_bytes}}));
  std::vector<std::string> hosts;
  std::vector<Move> moves;
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    const std::string what = fmt::format("copy of rank {}", rank);
    YARD_ASSIGN(hosts.emplace_back(), json_field<std::string>(messages[rank], "host", what));
    Move& move = moves.emplace_back();
    move.owner = move.from = static_cast<int>(rank);
    move.id = id;
    YARD_ASSIGN(move.header_bytes, json_field<uint64_t>(messages[rank], "header_bytes", what));
    YARD_ASSIGN(move.size_bytes, json_field<uint64_t>(messages[rank], "size_bytes", what));
  }
  const std::vector<int> partners = partner_ranks(hosts);
  for (Move& move : moves) move.to = partners[static_cast<size_t>(move.owner)];
  std::erase_if(moves, [](const Move& move) { return move.to == move.from; });
  // Of ranks that have another partner now nothing is kept.
  std::erase_if(slots_, [&](const auto& entry) {
    const int owner = entry.first;
    return owner != rank_ &&
           (owner >= group.size() || partners[static_cast<size_t>(owner)] != rank_);
  });
  YARD_TRY(transfer(group, moves));
  agreed_id_ = id;
  return Ok{};
}

Json PeerMemory::offers() const {
  Json copies = Json::array();
  for (const auto& [owner, slots] : slots_) {
    for (const Slot& slot : slots) {
      if (!slot.is_whole) continue;
      const auto header = parse_json(slot.header, "copy");
      copies.push_back({{"owner", owner},
                        {"id", slot.info.id},
                        {"step", slot.info.step},
                        {"world_size", (*header)["world_size"]},
                        {"header_bytes", slot.header.size()},
                        {"size_bytes", slot.size_bytes}});
    }
  }
  return {{"copies", std::move(copies)}};
}

// The newest save that every rank can have, and who has to send what for it; `id` stays empty where
// there is none.
Result<std::vector<PeerMemory::Move>> PeerMemory::plan_recovery(const std::vector<Json>& messages,
                                                                std::string& id) {
  YARD_ASSIGN(const auto all, offers_of(messages));
  std::map<std::pair<int64_t, std::string>, bool> saves;  // by step
  for (const auto& offers : all)
    for (const Offer& offer : offers) saves[{offer.step, offer.id}] = true;
  for (auto save = saves.rbegin(); save != saves.rend(); ++save) {
    std::vector<Move> moves;
    bool is_complete = true;
    for (int owner = 0; is_complete && owner < std::ssize(all); ++owner) {
      const auto place = place_of(all, save->first.second, owner);
      is_complete = place.has_value();
      if (place && place->rank != owner)
        moves.push_back({owner, place->rank, owner, save->first.second, place->offer->header_bytes,
                         place->offer->size_bytes});
    }
    if (!is_complete) continue;
    id = save->first.second;
    return moves;
  }
  return std::vector<Move>();
}

Result<std::optional<CopyInfo>> PeerMemory::recover(collective::Group& group) {
  rank_ = group.rank();
  const auto exchange = exchange_over(group);
  YARD_ASSIGN(const auto messages, tell_all(*exchange, Ok{}, offers()));
  std::string id;
  YARD_ASSIGN(const std::vector<Move> moves, plan_recovery(messages, id));
  agreed_id_.clear();  // until it is there, load() has nothing to load
  if (id.empty()) return std::optional<CopyInfo>();
  YARD_TRY(transfer(group, moves));
  agreed_id_ = id;
  const Slot* const slot = find(rank_, id);
  YARD_CHECK(slot != nullptr);
  return std::optional(slot->info);
}

Status PeerMemory::load(std::span<const TensorTarget> targets) const {
  const auto slots = slots_.find(rank_);
  const Slot* slot = nullptr;
  if (slots != slots_.end())
    for (const Slot& each : slots->second)
      if (each.is_whole && each.info.id == agreed_id_) slot = &each;
  if (slot == nullptr) return Error{Code::kNotFound, "there is no copy in memory"};
  const auto refuse = [&](Code code, const TensorTarget& target, const std::string& why) {
    return Error{code, fmt::format("copy of step {} in memory: tensor '{}': {}", slot->info.step,
                                   target.name, why)};
  };
  for (const TensorTarget& target : targets) {
    if (Status valid = check_region(target.region, target.info.shape); !valid)
      return refuse(Code::kInvalidArgument, target, valid.error().message);
    const uint64_t width = element_bytes(target.info.dtype);
    uint64_t missing_bytes = chunk_bytes(target.info, target.region);
    if (target.bytes.size() != missing_bytes)
      return refuse(Code::kInvalidArgument, target, "its memory has another size");
    std::span<const std::byte> bytes = slot->buffer.bytes();
    bool is_known = false;
    for (const ChunkInfo& chunk : slot->info.layout) {
      const auto own = bytes.first(chunk_bytes(chunk.info, chunk.region));
      bytes = bytes.subspan(own.size());
      if (chunk.name != target.name) continue;
      is_known = true;
      if (chunk.info != target.info)
        return refuse(Code::kInvalidArgument, target,
                      fmt::format("is {}, not {}", to_string(chunk.info), to_string(target.info)));
      for_each_common_run(chunk.region, target.region, chunk.info.shape, [&](const CommonRun& run) {
        std::memcpy(target.bytes.data() + run.position_b * width,
                    own.data() + run.position_a * width, run.element_count * width);
        missing_bytes -= run.element_count * width;
      });
    }
    if (!is_known) return refuse(Code::kNotFound, target, "this rank had none");
    if (missing_bytes > 0)
      return refuse(Code::kInvalidArgument, target, "this rank had only a part of what is wanted");
  }
  return Ok{};
}

}  // namespace yard::checkpoint
