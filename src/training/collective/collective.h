// Collectives over a fixed group of ranks.
//
// A Group knows bytes, element types and ranks; it has never heard of tensors. connect()
// (collective/rendezvous.h) makes one over shared memory inside a host and TCP between hosts.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace yard::collective {

enum class DType : uint8_t { kF32, kF64, kBF16, kF16, kI32, kI64, kU8, kI8, kI16 };
enum class ReduceOp : uint8_t {
  kSum,
  kAverage,
  kMin,
  kMax,
  kProduct,
  kBitAnd,  // these three: whole-number types only
  kBitOr,
  kBitXor,
};

size_t size_bytes_of(DType dtype);
std::string_view to_string(DType dtype);
bool reduces(ReduceOp op, DType dtype);  // whether there is such a reduction

// One operation in flight. The buffers it was given stay borrowed until wait() returned;
// destroying a Work that was not waited for waits for it.
class Work {
 public:
  virtual ~Work() = default;
  // kUnavailable names the rank that died; kInvalidArgument a mismatched call and both calls;
  // kDeadlineExceeded the rank waited for. After any Error the whole Group is dead: every pending
  // and later operation fails with the same Error.
  virtual Status wait() = 0;
  virtual bool done() const = 0;
};

// Memory that every rank of this host can reach: operations on it are done in place, without the
// copy in and out that ordinary memory needs. Unmapped at its end; it may outlive the Group, whose
// operations it then no longer serves.
class SharedBuffer {
 public:
  virtual ~SharedBuffer() = default;
  virtual std::span<std::byte> bytes() = 0;
};

// One of the last operations of a rank, as its flight recorder has it.
struct FlightRecord {
  std::string call;               // "all_reduce #12 (f32, sum, 4096 bytes)"
  int64_t issued_unix_us = 0;     // CLOCK_REALTIME
  int64_t started_after_us = -1;  // after it was issued; -1: not yet
  int64_t ended_after_us = -1;    // likewise
  int waited_rank = -1;  // the rank it waits for right now, or waited for at its end; -1: none
  std::string error;     // empty: none so far
};

inline constexpr int kAnyRank = -1;

struct ShrinkOptions {
  // Ranks to leave out although they may live: one that does not answer, or has a bad link. The
  // same on all that call.
  std::vector<int> without;
  // All survivors call within it of each other; beyond it, nobody is waited for.
  std::chrono::milliseconds timeout{10'000};
};

// All ranks must issue the same calls in the same order (send and receive aside); a call whose
// kind, type or size differs from its peers' is an Error on all of them. Issue from one thread at a
// time; the operations themselves run on threads of the Group, collectives in the order of issue.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;  // in [0, size())
  virtual int size() const = 0;  // at least 1

  // Replaces `inout` on every rank by the reduction over all ranks. The order of additions depends
  // only on the element count and on which ranks share a host: every rank gets the same bits, and a
  // rerun too. On one host it is the order of ranks. kBF16 and kF16 are accumulated in f32, whole
  // numbers wrap around, averages of them are cut to whole; kMin and kMax spread NaN. Sizes are
  // multiples of the element size.
  [[nodiscard]] virtual std::unique_ptr<Work> all_reduce(std::span<std::byte> inout, DType dtype,
                                                         ReduceOp op) = 0;
  // `out` of rank r = elements of chunk r of the reduction; in.size() == out.size() * size().
  [[nodiscard]] virtual std::unique_ptr<Work> reduce_scatter(std::span<const std::byte> in,
                                                             std::span<std::byte> out, DType dtype,
                                                             ReduceOp op) = 0;
  // out = every rank's `in`, in rank order; out.size() == in.size() * size(). `in` may be its own
  // place in `out`.
  [[nodiscard]] virtual std::unique_ptr<Work> all_gather(std::span<const std::byte> in,
                                                         std::span<std::byte> out) = 0;
  [[nodiscard]] virtual std::unique_ptr<Work> broadcast(std::span<std::byte> inout, int root) = 0;
  [[nodiscard]] virtual std::unique_ptr<Work> barrier() = 0;

  // all_reduce of several tensors by one operation. On one host each has the bits that it would
  // have alone; between hosts the order of additions depends on all their sizes.
  [[nodiscard]] virtual std::unique_ptr<Work> all_reduce_coalesced(
      std::vector<std::span<std::byte>> inouts, DType dtype, ReduceOp op) = 0;
  // As all_reduce, but only the root's `inout` is replaced; the others' stay as they are.
  [[nodiscard]] virtual std::unique_ptr<Work> reduce(std::span<std::byte> inout, DType dtype,
                                                     ReduceOp op, int root) = 0;
  // On the root, out = every rank's `in`, in rank order; out.size() == in.size() * size(). The
  // others give an empty `out`.
  [[nodiscard]] virtual std::unique_ptr<Work> gather(std::span<const std::byte> in,
                                                     std::span<std::byte> out, int root) = 0;
  // `out` of rank r = part r of the root's `in`; in.size() == out.size() * size(). The others give
  // an empty `in`.
  [[nodiscard]] virtual std::unique_ptr<Work> scatter(std::span<const std::byte> in,
                                                      std::span<std::byte> out, int root) = 0;
  // ins[r] of this rank becomes outs[rank()] of rank r. Sizes may differ from pair to pair;
  // kInvalidArgument on all ranks when the two sides of a pair give different ones. Both have
  // size() members.
  [[nodiscard]] virtual std::unique_ptr<Work> all_to_all(
      std::vector<std::span<const std::byte>> ins, std::vector<std::span<std::byte>> outs) = 0;

  // From rank to rank, in no order with the collectives. Messages of one pair and tag arrive in the
  // order of issue. A send's wait() may return before its receive was issued. A receive of another
  // size than what was sent is kInvalidArgument and ends the group.
  [[nodiscard]] virtual std::unique_ptr<Work> send(std::span<const std::byte> bytes, int to,
                                                   uint64_t tag) = 0;
  // From kAnyRank: takes the first to come; `source`, which may be null, is written before done().
  [[nodiscard]] virtual std::unique_ptr<Work> receive(std::span<std::byte> bytes, int from,
                                                      uint64_t tag, int* source = nullptr) = 0;

  // Collective. Ranks of the same `color` >= 0 become a group of their own, ordered by (key, rank);
  // null for those of a negative color. The groups fail and end each by itself, so this one may be
  // destroyed first; when a process dies, each group that it was in fails.
  virtual Result<std::unique_ptr<Group>> split(int color, int key) = 0;

  // After a failure: the ranks that live become a new group, in their order, without a restart.
  // Called by each of them; it fails what is still pending here. Ranks whose process has ended are
  // missed at once; those that neither come nor are known to be dead when `timeout` is over are
  // left behind if the others are more than they (or as many, with the lowest rank): no two groups
  // can come out of one. kUnavailable: too few; kInvalidArgument: this rank was left out, or the
  // group has been shrunk already; kDeadlineExceeded: one died meanwhile. After an Error all may
  // try again. Buffers of the old group are not of the new one. For one thread at a time.
  virtual Result<std::unique_ptr<Group>> shrink(const ShrinkOptions& options) = 0;

  // This rank's last operations (at most 512), oldest first. Thread-safe.
  virtual std::vector<FlightRecord> flight() const = 0;

  // Collective too: every rank calls it with the same size, in the same order.
  virtual Result<std::unique_ptr<SharedBuffer>> allocate(size_t size_bytes) = 0;

  // Tells all peers that this rank gives up, so that nobody waits for it. Thread-safe.
  virtual void abort(std::string_view reason) = 0;

  // Seconds that wait() calls have blocked so far.
  virtual double wait_seconds() const = 0;
};

// A group of one, for runs without peers.
std::unique_ptr<Group> single_rank_group();

}  // namespace yard::collective
