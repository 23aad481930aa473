// How the ranks of one set of Links reduce, gather and broadcast between hosts.
//
// All of them run the same algorithm on the same sizes; the result has the same bits everywhere.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "collective/element_internal.h"
#include "collective/links_internal.h"
#include "collective/rendezvous.h"

namespace yard::collective {

// What a message between hosts costs: latency + size / bandwidth. Measured when the links are made,
// the worst of all of them.
struct LinkModel {
  double latency_us = 50;
  double bytes_per_us = 1000;
};

// With n hosts, s bytes, latency l, bandwidth b:
//   kRing             2 (n-1) l + 2 (n-1)/n s/b
//   kDoubling         log2(n) (l + s/b)           whole buffers to partners ever further away
//   kHalvingDoubling  2 log2(n) l + 2 (n-1)/n s/b
// The last two need one more exchange of the whole, there and back, where n is no power of two.
// Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH, 2005.
//
// The last two add in the same order, so that the measured model may choose between them without
// touching the bits of a result. A ring adds in another; whether it is used depends on nothing that
// is measured.
std::string_view to_string(BetweenHosts algorithm);
double cost_us(const LinkModel& model, BetweenHosts algorithm, size_t host_count,
               size_t size_bytes);
// The ring where folding would send much twice: from 64 KiB, unless n is a power of two. Else the
// cheaper of the other two.
BetweenHosts chosen(const LinkModel& model, size_t host_count, size_t size_bytes);

// Of the times of 1, 2, 4, ... connections: the fewest whose time is within a tenth of the best.
// Pure.
size_t fewest_streams(std::span<const double> times_us);

class HostAlgorithms {
 public:
  HostAlgorithms(Links& links, BetweenHosts wanted, WireForm f32_form)
      : links_(links), wanted_(wanted), compresses_(f32_form == WireForm::kBF16) {}

  // Takes at most 200 ms unless a link needs more for a few small messages. Chooses the number of
  // connections, too, unless it was asked for.
  Status measure();
  const LinkModel& model() const { return model_; }
  // "3 hosts, 35 us, 1.2 GB/s over 2 connections each: doubling, from 64 KiB ring"
  std::string describe_choice() const;

  // Returns when all have called it with the same call; kInvalidArgument names two that differ.
  Status agree(const CallRecord& call);
  // inout = reduction over all, elements in the wide form of `call.dtype`. Where f32 travels as
  // bf16, each time a value travels it is rounded to 8 bits of mantissa: a relative error of at
  // most 2^-9 for each of log2(n) to n - 1 steps.
  Status all_reduce(const CallRecord& call, std::byte* inout, size_t element_count);
  // blocks[i] is the one of place i; ours is there already.
  Status all_gather(const CallRecord& call, std::span<const std::span<std::byte>> blocks);
  // From place `root_index` to all.
  Status broadcast(const CallRecord& call, std::span<std::byte> inout, size_t root_index);

 private:
  // The least time of some exchanges with the next and the previous place, of all places the worst.
  Result<double> measure_exchange(int rounds, size_t size_bytes);
  Status choose_streams();
  // A stretch of the values that are being reduced.
  struct Values {
    std::byte* data = nullptr;
    size_t count = 0;
  };
  Values part(Values whole, size_t begin, size_t count) const;
  std::span<std::byte> bytes_of(Values values) const;
  // Rounds `out` where it must be packed to travel. `in` may be the same stretch as `out`.
  Status exchange(const CallRecord& call, size_t to, Values out, size_t from, Values in);
  // To what travels as bf16, so that who sent it goes on with what the others got.
  void round_packed(Values values);
  // into = into op what `from` sends, the lower place's value first.
  Status exchange_and_add(const CallRecord& call, size_t to, Values out, size_t from, Values into);
  Status ring(const CallRecord& call, Values whole);
  Status folded(const CallRecord& call, Values whole, BetweenHosts algorithm);
  Status doubling(const CallRecord& call, Values whole, size_t count);
  Status halving_doubling(const CallRecord& call, Values whole, size_t count);
  Status tree_broadcast(const CallRecord& call, std::span<std::byte> inout, size_t root_index);
  Status pipe_broadcast(const CallRecord& call, std::span<std::byte> inout, size_t root_index);

  Links& links_;
  const BetweenHosts wanted_;
  const bool compresses_;
  LinkModel model_;
  // Of the all_reduce that runs.
  DType wide_ = DType::kF32;
  bool packs_ = false;
  std::vector<std::byte> received_;
  std::vector<std::byte> packed_out_;
  std::vector<std::byte> packed_in_;
};

}  // namespace yard::collective
