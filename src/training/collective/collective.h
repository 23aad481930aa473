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
#include <string_view>

#include "base/result.h"

namespace yard::collective {

enum class DType : uint8_t { kF32, kF64, kBF16, kF16, kI32, kI64, kU8 };
enum class ReduceOp : uint8_t { kSum, kAverage, kMin, kMax };

size_t size_bytes_of(DType dtype);
std::string_view to_string(DType dtype);

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
// copy in and out that ordinary memory needs. Move-only, unmapped at the end; must not outlive the
// Group.
class SharedBuffer {
 public:
  virtual ~SharedBuffer() = default;
  virtual std::span<std::byte> bytes() = 0;
};

// All ranks must issue the same calls in the same order; a call whose kind, type or size differs
// from its peers' is an Error on all of them. Issue from one thread at a time; the operations
// themselves run on a thread of the Group, in the order of issue.
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
