#include <algorithm>
#include <cstring>

#include "collective/operations_internal.h"
#include "collective/share_plan_internal.h"

namespace yard::collective {
namespace {

constexpr size_t kLineBytes = 64;
constexpr size_t kChunkBytesMin = size_t{32} << 10;

void copy_bytes(std::byte* to, const std::byte* from, size_t size_bytes) {
  if (size_bytes > 0 && to != from) std::memmove(to, from, size_bytes);
}

// Small enough that several chunks are in flight, large enough that a barrier is cheap beside it.
size_t chunk_bytes_of(size_t size_bytes, size_t slot_bytes) {
  const size_t wanted = round_up(size_bytes / 4 + 1, kLineBytes);
  return std::clamp(wanted, std::min(kChunkBytesMin, slot_bytes), slot_bytes);
}

// In one go every rank reads all that the others have given: more of them, less of it. Two ranks
// are faster that way up to the whole slot.
bool fits_one_go(size_t size_bytes, size_t team_size) {
  return size_bytes <= kSmallSlotBytes && size_bytes * team_size <= 2 * kSmallSlotBytes;
}

size_t block_elements(DType dtype) {
  return kLineBytes / size_bytes_of(dtype);
}

}  // namespace

Status LocalOperations::begin(const Operation& operation) {
  YARD_TRY(team_.barrier(operation.call));
  const uint64_t sequence = operation.call.sequence;
  // Each sees the same records and names the same two.
  const CallRecord& first = team_.record(0, sequence);
  for (size_t peer = 1; peer < team_.size(); ++peer) {
    const CallRecord& other = team_.record(peer, sequence);
    if (!same_call(first, other)) return mismatch(first, other);
  }
  return Ok{};
}

Status LocalOperations::run(Operation& operation) {
  team_.record(team_.index(), operation.call.sequence) = operation.call;
  switch (operation.call.kind) {
    case CallKind::kAllReduce:
      return all_reduce(operation);
    case CallKind::kReduceScatter:
      return reduce_scatter(operation);
    case CallKind::kAllGather:
      return all_gather(operation);
    case CallKind::kBroadcast:
      return broadcast(operation);
    case CallKind::kBarrier:
      return begin(operation);
    case CallKind::kReduce:
      return all_reduce(operation);
    case CallKind::kGather:
    case CallKind::kScatter:
    case CallKind::kAllToAll:
      announce_sizes(operation);
      YARD_TRY(begin(operation));
      return exchange(operation);
    case CallKind::kAllocate:
    case CallKind::kSplit:
    case CallKind::kSend:
    case CallKind::kReceive:
      break;  // the group's own
  }
  YARD_UNREACHABLE();
}

bool LocalOperations::all_shared(const Operation& operation, Side side) const {
  const uint64_t sequence = operation.call.sequence;
  const auto id_of = [&](size_t peer) {
    const CallRecord& call = team_.record(peer, sequence);
    return side == Side::kIn ? call.in.buffer_id : call.out.buffer_id;
  };
  const uint32_t id = id_of(0);
  for (size_t peer = 1; peer < team_.size(); ++peer)
    if (id_of(peer) != id) return false;
  return id != 0;
}

std::byte* LocalOperations::peer_bytes(const Operation& operation, Side side, size_t peer) const {
  const CallRecord& call = team_.record(peer, operation.call.sequence);
  const SharedPlace& place = side == Side::kIn ? call.in : call.out;
  const SharedStretches& stretches =
      side == Side::kIn ? *operation.in_shared : *operation.out_shared;
  const size_t size_bytes = side == Side::kIn ? operation.in.size() : operation.out.size();
  // Checked by the peer before it said so.
  YARD_CHECK(place.offset_bytes <= stretches.size_bytes &&
             size_bytes <= stretches.size_bytes - place.offset_bytes);
  return stretches.of(peer) + place.offset_bytes;
}

Reduction LocalOperations::reduction_of(const CallRecord& call) const {
  return {.dtype = call.dtype,
          .op = call.op,
          .divisor = call.op == ReduceOp::kAverage ? team_.size() : 1};
}

// Also reduce: there only the root has an `out`.
Status LocalOperations::all_reduce(Operation& operation) {
  if (fits_one_go(operation.in.size(), team_.size())) return all_reduce_small(operation);
  YARD_TRY(begin(operation));
  return all_shared(operation, Side::kIn) ? all_reduce_in_place(operation)
                                          : all_reduce_staged(operation);
}

Status LocalOperations::all_reduce_small(Operation& operation) {
  const CallRecord& call = operation.call;
  copy_bytes(team_.small_slot(team_.index(), call.sequence), operation.in.data(),
             operation.in.size());
  YARD_TRY(begin(operation));
  if (operation.out.empty()) return Ok{};
  srcs_.clear();
  for (size_t peer = 0; peer < team_.size(); ++peer)
    srcs_.push_back(team_.small_slot(peer, call.sequence));
  dsts_.assign(1, operation.out.data());
  reduce(reduction_of(call), dsts_, srcs_, operation.in.size() / size_bytes_of(call.dtype));
  return Ok{};
}

Status LocalOperations::all_reduce_in_place(Operation& operation) {
  const CallRecord& call = operation.call;
  const size_t element_bytes = size_bytes_of(call.dtype);
  const Share share = share_of(operation.in.size() / element_bytes, team_.size(), team_.index(),
                               block_elements(call.dtype));
  srcs_.clear();
  dsts_.clear();
  for (size_t peer = 0; peer < team_.size(); ++peer) {
    std::byte* at = peer_bytes(operation, Side::kIn, peer) + share.begin_index * element_bytes;
    srcs_.push_back(at);
    if (call.kind == CallKind::kAllReduce || peer == static_cast<size_t>(call.root))
      dsts_.push_back(at);
  }
  reduce(reduction_of(call), dsts_, srcs_, share.count);
  return end(operation);
}

Status LocalOperations::all_reduce_staged(Operation& operation) {
  const CallRecord& call = operation.call;
  const size_t element_bytes = size_bytes_of(call.dtype);
  const size_t element_count = operation.in.size() / element_bytes;
  const size_t chunk_elements =
      chunk_bytes_of(operation.in.size(), kStageSlotBytes) / element_bytes;
  const size_t chunk_count = (element_count + chunk_elements - 1) / chunk_elements;
  const Reduction reduction = reduction_of(call);
  const bool wants_result = !operation.out.empty();
  const auto chunk_in = [&](size_t chunk) {
    return operation.in.data() + chunk * chunk_elements * element_bytes;
  };
  const auto chunk_out = [&](size_t chunk) {
    return operation.out.data() + chunk * chunk_elements * element_bytes;
  };
  const auto share = [&](size_t chunk, size_t peer) {
    const size_t count = std::min(chunk_elements, element_count - chunk * chunk_elements);
    return share_of(count, team_.size(), peer, block_elements(call.dtype));
  };
  // Our own share never passes through our slot on the way in: nobody else reads it.
  const auto copy_in = [&](size_t chunk) {
    for (size_t peer = 0; peer < team_.size(); ++peer) {
      if (peer == team_.index()) continue;
      const Share theirs = share(chunk, peer);
      const size_t at = theirs.begin_index * element_bytes;
      copy_bytes(team_.stage_slot(team_.index(), chunk) + at, chunk_in(chunk) + at,
                 theirs.count * element_bytes);
    }
  };
  const auto reduce_own = [&](size_t chunk) {
    const Share own = share(chunk, team_.index());
    const size_t at = own.begin_index * element_bytes;
    srcs_.clear();
    for (size_t peer = 0; peer < team_.size(); ++peer)
      srcs_.push_back((peer == team_.index() ? chunk_in(chunk) : team_.stage_slot(peer, chunk)) +
                      at);
    dsts_ = {team_.stage_slot(team_.index(), chunk) + at};
    if (wants_result) dsts_.push_back(chunk_out(chunk) + at);
    reduce(reduction, dsts_, srcs_, own.count);
  };
  const auto copy_out = [&](size_t chunk) {
    for (size_t peer = 0; peer < team_.size(); ++peer) {
      if (peer == team_.index()) continue;
      const Share theirs = share(chunk, peer);
      const size_t at = theirs.begin_index * element_bytes;
      copy_bytes(chunk_out(chunk) + at, team_.stage_slot(peer, chunk) + at,
                 theirs.count * element_bytes);
    }
  };
  for (size_t step = 0; step < chunk_count + 2; ++step) {
    if (step >= 2 && wants_result) copy_out(step - 2);
    if (step < chunk_count) copy_in(step);
    if (step >= 1 && step <= chunk_count) reduce_own(step - 1);
    if (step <= chunk_count) YARD_TRY(team_.barrier(call));
  }
  return Ok{};
}

Status LocalOperations::reduce_scatter(Operation& operation) {
  if (fits_one_go(operation.in.size(), team_.size())) return reduce_scatter_small(operation);
  YARD_TRY(begin(operation));
  return all_shared(operation, Side::kIn) ? reduce_scatter_in_place(operation)
                                          : reduce_scatter_staged(operation);
}

Status LocalOperations::reduce_scatter_small(Operation& operation) {
  const CallRecord& call = operation.call;
  copy_bytes(team_.small_slot(team_.index(), call.sequence), operation.in.data(),
             operation.in.size());
  YARD_TRY(begin(operation));
  srcs_.clear();
  for (size_t peer = 0; peer < team_.size(); ++peer)
    srcs_.push_back(team_.small_slot(peer, call.sequence) + team_.index() * operation.out.size());
  dsts_.assign(1, operation.out.data());
  reduce(reduction_of(call), dsts_, srcs_, operation.out.size() / size_bytes_of(call.dtype));
  return Ok{};
}

Status LocalOperations::reduce_scatter_in_place(Operation& operation) {
  const CallRecord& call = operation.call;
  srcs_.clear();
  for (size_t peer = 0; peer < team_.size(); ++peer)
    srcs_.push_back(peer_bytes(operation, Side::kIn, peer) + team_.index() * operation.out.size());
  dsts_.assign(1, operation.out.data());
  reduce(reduction_of(call), dsts_, srcs_, operation.out.size() / size_bytes_of(call.dtype));
  return end(operation);
}

Status LocalOperations::reduce_scatter_staged(Operation& operation) {
  const CallRecord& call = operation.call;
  const size_t element_bytes = size_bytes_of(call.dtype);
  const size_t out_bytes = operation.out.size();
  // A slot holds the same piece of every rank's chunk.
  const size_t room_bytes = kStageSlotBytes / team_.size() / kLineBytes * kLineBytes;
  const size_t piece_bytes = chunk_bytes_of(out_bytes, room_bytes);
  const size_t piece_count = (out_bytes + piece_bytes - 1) / piece_bytes;
  const auto bytes_in = [&](size_t piece) {
    return std::min(piece_bytes, out_bytes - piece * piece_bytes);
  };
  for (size_t step = 0; step < piece_count + 1; ++step) {
    for (size_t peer = 0; step < piece_count && peer < team_.size(); ++peer) {
      if (peer == team_.index()) continue;
      copy_bytes(team_.stage_slot(team_.index(), step) + peer * room_bytes,
                 operation.in.data() + peer * out_bytes + step * piece_bytes, bytes_in(step));
    }
    if (step >= 1) {
      const size_t piece = step - 1;
      const size_t at = piece * piece_bytes;
      srcs_.clear();
      for (size_t peer = 0; peer < team_.size(); ++peer)
        srcs_.push_back(peer == team_.index()
                            ? operation.in.data() + team_.index() * out_bytes + at
                            : team_.stage_slot(peer, piece) + team_.index() * room_bytes);
      dsts_.assign(1, operation.out.data() + at);
      reduce(reduction_of(call), dsts_, srcs_, bytes_in(piece) / element_bytes);
    }
    if (step < piece_count) YARD_TRY(team_.barrier(call));
  }
  return Ok{};
}

Status LocalOperations::all_gather(Operation& operation) {
  const CallRecord& call = operation.call;
  const size_t size_bytes = operation.in.size();
  std::byte* const out = operation.out.data();
  if (fits_one_go(size_bytes, team_.size())) {
    copy_bytes(team_.small_slot(team_.index(), call.sequence), operation.in.data(), size_bytes);
    YARD_TRY(begin(operation));
    for (size_t peer = 0; peer < team_.size(); ++peer)
      copy_bytes(out + peer * size_bytes, team_.small_slot(peer, call.sequence), size_bytes);
    return Ok{};
  }
  YARD_TRY(begin(operation));
  if (all_shared(operation, Side::kOut)) {
    for (size_t peer = 0; peer < team_.size(); ++peer)
      copy_bytes(peer_bytes(operation, Side::kOut, peer) + team_.index() * size_bytes,
                 operation.in.data(), size_bytes);
    return end(operation);
  }
  if (all_shared(operation, Side::kIn)) {
    for (size_t peer = 0; peer < team_.size(); ++peer)
      copy_bytes(out + peer * size_bytes, peer_bytes(operation, Side::kIn, peer), size_bytes);
    return end(operation);
  }
  return all_gather_staged(operation);
}

Status LocalOperations::all_gather_staged(Operation& operation) {
  const size_t size_bytes = operation.in.size();
  const size_t piece_bytes = chunk_bytes_of(size_bytes, kStageSlotBytes);
  const size_t piece_count = (size_bytes + piece_bytes - 1) / piece_bytes;
  const auto bytes_in = [&](size_t piece) {
    return std::min(piece_bytes, size_bytes - piece * piece_bytes);
  };
  for (size_t step = 0; step < piece_count + 1; ++step) {
    if (step < piece_count)
      copy_bytes(team_.stage_slot(team_.index(), step), operation.in.data() + step * piece_bytes,
                 bytes_in(step));
    for (size_t peer = 0; step >= 1 && peer < team_.size(); ++peer) {
      const size_t at = (step - 1) * piece_bytes;
      const std::byte* from =
          peer == team_.index() ? operation.in.data() + at : team_.stage_slot(peer, step - 1);
      copy_bytes(operation.out.data() + peer * size_bytes + at, from, bytes_in(step - 1));
    }
    if (step < piece_count) YARD_TRY(team_.barrier(operation.call));
  }
  return Ok{};
}

Status LocalOperations::broadcast(Operation& operation) {
  const CallRecord& call = operation.call;
  const auto root = static_cast<size_t>(call.root);
  const bool is_root = root == team_.index();
  const size_t size_bytes = operation.out.size();
  if (size_bytes <= kSmallSlotBytes) {
    if (is_root)
      copy_bytes(team_.small_slot(root, call.sequence), operation.out.data(), size_bytes);
    YARD_TRY(begin(operation));
    if (!is_root)
      copy_bytes(operation.out.data(), team_.small_slot(root, call.sequence), size_bytes);
    return Ok{};
  }
  YARD_TRY(begin(operation));
  if (!all_shared(operation, Side::kOut)) return broadcast_staged(operation);
  if (!is_root)
    copy_bytes(operation.out.data(), peer_bytes(operation, Side::kOut, root), size_bytes);
  return end(operation);
}

Status LocalOperations::broadcast_staged(Operation& operation) {
  const auto root = static_cast<size_t>(operation.call.root);
  const bool is_root = root == team_.index();
  const size_t size_bytes = operation.out.size();
  const size_t piece_bytes = chunk_bytes_of(size_bytes, kStageSlotBytes);
  const size_t piece_count = (size_bytes + piece_bytes - 1) / piece_bytes;
  const auto bytes_in = [&](size_t piece) {
    return std::min(piece_bytes, size_bytes - piece * piece_bytes);
  };
  for (size_t step = 0; step < piece_count + 1; ++step) {
    if (is_root && step < piece_count)
      copy_bytes(team_.stage_slot(root, step), operation.out.data() + step * piece_bytes,
                 bytes_in(step));
    if (!is_root && step >= 1)
      copy_bytes(operation.out.data() + (step - 1) * piece_bytes, team_.stage_slot(root, step - 1),
                 bytes_in(step - 1));
    if (step < piece_count) YARD_TRY(team_.barrier(operation.call));
  }
  return Ok{};
}

}  // namespace yard::collective
