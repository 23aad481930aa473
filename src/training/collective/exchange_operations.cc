// Gather, scatter and all-to-all inside a host: every rank gives each a piece.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "collective/operations_internal.h"

namespace yard::collective {
namespace {

constexpr size_t kLineBytes = 64;

}  // namespace

void LocalOperations::announce_sizes(const Operation& operation) {
  static_assert(kSmallSlotBytes >= 4096 * sizeof(uint64_t));
  std::byte* at = team_.small_slot(team_.index(), operation.call.sequence);
  for (size_t peer = 0; peer < team_.size(); ++peer) {
    const uint64_t size_bytes = operation.ins[static_cast<size_t>(team_.ranks()[peer])].size();
    std::memcpy(at + peer * sizeof size_bytes, &size_bytes, sizeof size_bytes);
  }
}

size_t LocalOperations::announced_size(const Operation& operation, size_t from, size_t to) const {
  uint64_t size_bytes = 0;
  std::memcpy(&size_bytes, team_.small_slot(from, operation.call.sequence) + to * sizeof size_bytes,
              sizeof size_bytes);
  return size_bytes;
}

Status LocalOperations::check_sizes(const Operation& operation) const {
  for (size_t peer = 0; peer < team_.size(); ++peer) {
    const int rank = team_.ranks()[peer];
    const size_t sent = announced_size(operation, peer, team_.index());
    const size_t wanted = operation.outs[static_cast<size_t>(rank)].size();
    if (sent != wanted)
      return Error{Code::kInvalidArgument,
                   fmt::format("{}: rank {} gives {} bytes to rank {}, which takes {}",
                               describe(operation.call), rank, sent, topology_.rank, wanted)};
  }
  return Ok{};
}

Status LocalOperations::exchange(const Operation& operation) {
  YARD_TRY(check_sizes(operation));
  const auto rank_of = [&](size_t peer) { return static_cast<size_t>(team_.ranks()[peer]); };
  size_t largest_bytes = 0;
  for (size_t from = 0; from < team_.size(); ++from)
    for (size_t to = 0; to < team_.size(); ++to)
      if (from != to) largest_bytes = std::max(largest_bytes, announced_size(operation, from, to));
  // A slot holds a piece for each rank.
  const size_t room_bytes = kStageSlotBytes / team_.size() / kLineBytes * kLineBytes;
  const size_t step_count = (largest_bytes + room_bytes - 1) / room_bytes;
  const auto copy_piece = [&](auto whole, size_t step, auto&& copy) {
    const size_t at = step * room_bytes;
    if (at < whole.size()) copy(whole.subspan(at, std::min(room_bytes, whole.size() - at)));
  };
  for (size_t step = 0; step < step_count + 1; ++step) {
    for (size_t peer = 0; peer < team_.size(); ++peer) {
      if (peer == team_.index()) continue;
      if (step < step_count)
        copy_piece(operation.ins[rank_of(peer)], step, [&](std::span<const std::byte> piece) {
          std::memcpy(team_.stage_slot(team_.index(), step) + peer * room_bytes, piece.data(),
                      piece.size());
        });
      if (step >= 1)
        copy_piece(operation.outs[rank_of(peer)], step - 1, [&](std::span<std::byte> piece) {
          std::memcpy(piece.data(), team_.stage_slot(peer, step - 1) + team_.index() * room_bytes,
                      piece.size());
        });
    }
    if (step < step_count) YARD_TRY(team_.barrier(operation.call));
  }
  const auto own_in = operation.ins[rank_of(team_.index())];
  const auto own_out = operation.outs[rank_of(team_.index())];
  if (!own_out.empty() && own_out.data() != own_in.data())
    std::memmove(own_out.data(), own_in.data(), own_out.size());
  return Ok{};
}

}  // namespace yard::collective
