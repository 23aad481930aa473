#include <algorithm>
#include <array>
#include <cstring>

#include "collective/operations_internal.h"
#include "collective/share_plan_internal.h"

namespace yard::collective {
namespace {

constexpr size_t kLineBytes = 64;
// Up to here the leader adds for its team, which saves a barrier.
constexpr size_t kLeaderBytesMax = size_t{32} << 10;
static_assert(kLeaderBytesMax <= kSmallSlotBytes);

void copy_bytes(std::byte* to, const std::byte* from, size_t size_bytes) {
  if (size_bytes > 0 && to != from) std::memmove(to, from, size_bytes);
}

}  // namespace

size_t Topology::host_of(int rank) const {
  for (size_t host = 0; host < hosts.size(); ++host)
    if (std::binary_search(hosts[host].begin(), hosts[host].end(), rank)) return host;
  YARD_UNREACHABLE();
}

size_t Topology::rail_count() const {
  size_t count = hosts[0].size();
  for (const auto& ranks : hosts) count = std::min(count, ranks.size());
  return count;
}

Share SpanningOperations::rail_share(size_t count, size_t block) const {
  return share_of(count, topology_.rail_count(), team_.index(), block);
}

template <typename Step>
Status SpanningOperations::on_rails(const Operation& operation, Step step) {
  YARD_TRY(team_.barrier(operation.call));
  if (rail_ != nullptr) YARD_TRY(step(*rail_));
  return team_.barrier(operation.call);
}

// Where data goes between all hosts anyway it carries the call; else they have to say so first.
Status SpanningOperations::start(const Operation& operation) {
  const CallRecord& call = operation.call;
  team_.record(team_.index(), call.sequence) = call;
  if (!operation.ins.empty()) local_.announce_sizes(operation);
  const bool is_reduction =
      call.kind == CallKind::kAllReduce || call.kind == CallKind::kReduceScatter;
  const bool is_small = operation.in.size() <= kLeaderBytesMax;
  if (is_small && (is_reduction || call.kind == CallKind::kReduce))
    copy_bytes(team_.small_slot(team_.index(), call.sequence), operation.in.data(),
               operation.in.size());
  YARD_TRY(local_.begin(operation));
  if ((is_reduction || call.kind == CallKind::kAllGather) && !operation.in.empty()) return Ok{};
  if (team_.leads()) YARD_TRY(rail_->agree(call));
  return team_.barrier(call);
}

Status SpanningOperations::run(Operation& operation) {
  YARD_TRY(start(operation));
  switch (operation.call.kind) {
    case CallKind::kAllReduce:
    case CallKind::kReduceScatter:
    case CallKind::kReduce:
      return reduce(operation);
    case CallKind::kAllGather:
      return all_gather(operation);
    case CallKind::kBroadcast:
      return broadcast(operation);
    case CallKind::kGather:
    case CallKind::kScatter:
    case CallKind::kAllToAll:
      return exchange(operation);
    case CallKind::kBarrier:
    case CallKind::kAllocate:
      return Ok{};  // start() was all
    case CallKind::kSplit:
    case CallKind::kSend:
    case CallKind::kReceive:
      break;  // the group's own
  }
  YARD_UNREACHABLE();
}

Status SpanningOperations::reduce_chunk(const Operation& operation, size_t begin, size_t count) {
  const CallRecord& call = operation.call;
  const size_t element_bytes = size_bytes_of(call.dtype);
  const size_t wide_bytes = size_bytes_of(wide_of(call.dtype));
  const bool is_in_place = local_.shares_ins(operation);
  const auto share = [&](size_t peer) {
    return share_of(count, team_.size(), peer, kLineBytes / element_bytes);
  };
  const Share own = share(team_.index());
  const std::byte* const chunk = operation.in.data() + begin * element_bytes;
  // Our own share stays where it is: nobody else reads it.
  for (size_t peer = 0; peer < team_.size() && !is_in_place; ++peer) {
    const Share theirs = share(peer);
    if (peer != team_.index())
      copy_bytes(team_.stage(team_.index()) + theirs.begin_index * element_bytes,
                 chunk + theirs.begin_index * element_bytes, theirs.count * element_bytes);
  }
  // The one before may still be read, else they have just begun.
  if (!is_in_place || begin > 0) YARD_TRY(team_.barrier(call));
  std::vector<const std::byte*> srcs;
  for (size_t peer = 0; peer < team_.size(); ++peer) {
    const std::byte* theirs = peer == team_.index() ? chunk
                              : is_in_place ? local_.in_of(operation, peer) + begin * element_bytes
                                            : team_.stage(peer);
    srcs.push_back(theirs + own.begin_index * element_bytes);
  }
  const std::array<std::byte*, 1> dsts{team_.result() + own.begin_index * wide_bytes};
  collective::reduce({.dtype = call.dtype, .op = call.op, .to = Form::kWide}, dsts, srcs,
                     own.count);
  return on_rails(operation, [&](HostAlgorithms& rail) {
    const Share ours = rail_share(count, kLineBytes / wide_bytes);
    return rail.all_reduce(call, team_.result() + ours.begin_index * wide_bytes, ours.count);
  });
}

Status SpanningOperations::reduce_small(const Operation& operation) {
  const CallRecord& call = operation.call;
  const size_t count = operation.in.size() / size_bytes_of(call.dtype);
  if (team_.leads()) {
    std::vector<const std::byte*> srcs;
    for (size_t peer = 0; peer < team_.size(); ++peer)
      srcs.push_back(team_.small_slot(peer, call.sequence));
    // Nobody reads an older result any more: all have begun this operation.
    const std::array<std::byte*, 1> dsts{team_.result()};
    collective::reduce({.dtype = call.dtype, .op = call.op, .to = Form::kWide}, dsts, srcs, count);
    YARD_TRY(rail_->all_reduce(call, team_.result(), count));
  }
  YARD_TRY(team_.barrier(call));
  take_result(operation, 0, count);
  return Ok{};
}

// all_reduce wants every element back, reduce_scatter its own share, reduce nothing but on the
// root.
void SpanningOperations::take_result(const Operation& operation, size_t begin, size_t count) {
  const CallRecord& call = operation.call;
  const size_t element_bytes = size_bytes_of(call.dtype);
  const size_t wide_bytes = size_bytes_of(wide_of(call.dtype));
  const size_t wanted_count = operation.out.size() / element_bytes;
  const size_t wanted_begin = call.kind == CallKind::kReduceScatter
                                  ? wanted_count * static_cast<size_t>(topology_.rank)
                                  : 0;
  const Share wanted = overlap_of(begin, count, wanted_begin, wanted_count);
  if (wanted.count == 0) return;
  const std::array<std::byte*, 1> dsts{operation.out.data() +
                                       (wanted.begin_index - wanted_begin) * element_bytes};
  const std::array<const std::byte*, 1> srcs{team_.result() +
                                             (wanted.begin_index - begin) * wide_bytes};
  const size_t divisor =
      call.op == ReduceOp::kAverage ? static_cast<size_t>(topology_.size) : size_t{1};
  collective::reduce(
      {.dtype = call.dtype, .op = ReduceOp::kSum, .from = Form::kWide, .divisor = divisor}, dsts,
      srcs, wanted.count);
}

Status SpanningOperations::reduce(Operation& operation) {
  if (operation.in.size() <= kLeaderBytesMax) return reduce_small(operation);
  const size_t element_bytes = size_bytes_of(operation.call.dtype);
  const size_t wide_bytes = size_bytes_of(wide_of(operation.call.dtype));
  const size_t element_count = operation.in.size() / element_bytes;
  const size_t chunk_count_max =
      std::min(kStageBytes / element_bytes, team_.result_bytes() / wide_bytes);
  for (size_t begin = 0; begin < element_count; begin += chunk_count_max) {
    const size_t count = std::min(chunk_count_max, element_count - begin);
    YARD_TRY(reduce_chunk(operation, begin, count));
    // The next chunk's result is written after a barrier that we have not reached yet.
    take_result(operation, begin, count);
  }
  return Ok{};
}

Status SpanningOperations::all_gather(Operation& operation) {
  const CallRecord& call = operation.call;
  const size_t size_bytes = operation.in.size();
  // Two halves in turn: one is filled while others of the team still read the other.
  const size_t half_bytes = team_.result_bytes() / 2;
  const size_t room_bytes = half_bytes / static_cast<size_t>(topology_.size);
  size_t half = 0;
  for (size_t begin = 0; begin < size_bytes; begin += room_bytes, half = 1 - half) {
    const size_t count = std::min(room_bytes, size_bytes - begin);
    // The pieces of a host's ranks side by side, host after host.
    std::vector<std::span<std::byte>> blocks;
    std::byte* at = team_.result() + half * half_bytes;
    for (const auto& ranks : topology_.hosts) {
      blocks.emplace_back(at, ranks.size() * count);
      at += ranks.size() * count;
    }
    copy_bytes(blocks[topology_.host_index].data() + team_.index() * count,
               operation.in.data() + begin, count);
    YARD_TRY(on_rails(operation, [&](HostAlgorithms& rail) {
      std::vector<std::span<std::byte>> ours;
      for (const auto block : blocks) {
        const Share share = rail_share(block.size(), kLineBytes);
        ours.push_back(block.subspan(share.begin_index, share.count));
      }
      return rail.all_gather(call, ours);
    }));
    for (size_t host = 0; host < blocks.size(); ++host)
      for (size_t i = 0; i < topology_.hosts[host].size(); ++i)
        copy_bytes(operation.out.data() +
                       static_cast<size_t>(topology_.hosts[host][i]) * size_bytes + begin,
                   blocks[host].data() + i * count, count);
  }
  return Ok{};
}

Status SpanningOperations::broadcast(Operation& operation) {
  const CallRecord& call = operation.call;
  const bool is_root = call.root == topology_.rank;
  const size_t root_host = topology_.host_of(call.root);
  const size_t size_bytes = operation.out.size();
  // Two halves in turn: the root fills one while its team still reads the other.
  const size_t room_bytes = team_.result_bytes() / 2 / kLineBytes * kLineBytes;
  size_t half = 0;
  for (size_t begin = 0; begin < size_bytes; begin += room_bytes, half = 1 - half) {
    const size_t count = std::min(room_bytes, size_bytes - begin);
    std::byte* const result = team_.result() + half * room_bytes;
    if (is_root) copy_bytes(result, operation.out.data() + begin, count);
    YARD_TRY(on_rails(operation, [&](HostAlgorithms& rail) {
      const Share ours = rail_share(count, kLineBytes);
      return rail.broadcast(call, std::span(result + ours.begin_index, ours.count), root_host);
    }));
    if (!is_root) copy_bytes(operation.out.data() + begin, result, count);
  }
  return Ok{};
}

// What goes to other hosts travels from rank to rank while the team exchanges its own.
Status SpanningOperations::exchange(Operation& operation) {
  const CallRecord& call = operation.call;
  // Only there the two sides could mean different sizes; else what is empty need not travel.
  const bool is_checked = call.kind == CallKind::kAllToAll;
  std::vector<std::shared_ptr<Message>> messages;
  for (int rank = 0; rank < topology_.size; ++rank) {
    if (topology_.host_of(rank) == topology_.host_index) continue;
    const auto in = operation.ins[static_cast<size_t>(rank)];
    const auto out = operation.outs[static_cast<size_t>(rank)];
    if (is_checked || !out.empty())
      messages.push_back(
          messages_.receive(out, rank, Channel::kCollective, call.sequence, nullptr));
    if (is_checked || !in.empty())
      messages.push_back(messages_.send(in, rank, Channel::kCollective, call.sequence));
  }
  Status status = local_.exchange(operation);
  if (!status) messages_.fail(status.error());
  // The buffers are in use until each has ended.
  for (const auto& message : messages)
    if (Status each = messages_.wait(*message); !each && status) status = std::move(each);
  return status;
}

}  // namespace yard::collective
