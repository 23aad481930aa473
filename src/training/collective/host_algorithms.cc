#include "collective/host_algorithms_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "collective/share_plan_internal.h"

namespace yard::collective {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr size_t kPipeBytes = size_t{64} << 10;
constexpr size_t kRingBytesMin = size_t{64} << 10;

constexpr size_t kPackedBytes = 2;

// Between f32 (kWide) and bf16.
void convert(std::byte* dst, Form to_form, const std::byte* src, Form from_form, size_t count) {
  const std::array<std::byte*, 1> dsts{dst};
  const std::array<const std::byte*, 1> srcs{src};
  reduce({.dtype = DType::kBF16, .from = from_form, .to = to_form}, dsts, srcs, count);
}

double log2_up(size_t count) {
  return std::bit_width(count - 1);
}

}  // namespace

std::string_view to_string(BetweenHosts algorithm) {
  switch (algorithm) {
    case BetweenHosts::kAuto:
      return "auto";
    case BetweenHosts::kRing:
      return "ring";
    case BetweenHosts::kDoubling:
      return "doubling";
    case BetweenHosts::kHalvingDoubling:
      return "halving-doubling";
  }
  YARD_UNREACHABLE();
}

double cost_us(const LinkModel& model, BetweenHosts algorithm, size_t host_count,
               size_t size_bytes) {
  const auto hosts = static_cast<double>(host_count);
  const double whole_us = static_cast<double>(size_bytes) / model.bytes_per_us;
  const double shares_us = 2 * (hosts - 1) / hosts * whole_us;
  const double fold_us = std::has_single_bit(host_count) ? 0 : 2 * (model.latency_us + whole_us);
  const double steps = std::bit_width(host_count) - 1;
  switch (algorithm) {
    case BetweenHosts::kDoubling:
      return fold_us + steps * (model.latency_us + whole_us);
    case BetweenHosts::kHalvingDoubling:
      return fold_us + 2 * steps * model.latency_us + shares_us;
    case BetweenHosts::kAuto:
    case BetweenHosts::kRing:
      return 2 * (hosts - 1) * model.latency_us + shares_us;
  }
  YARD_UNREACHABLE();
}

BetweenHosts chosen(const LinkModel& model, size_t host_count, size_t size_bytes) {
  if (!std::has_single_bit(host_count) && size_bytes >= kRingBytesMin) return BetweenHosts::kRing;
  const double doubling_us = cost_us(model, BetweenHosts::kDoubling, host_count, size_bytes);
  const double halving_us = cost_us(model, BetweenHosts::kHalvingDoubling, host_count, size_bytes);
  return halving_us < doubling_us ? BetweenHosts::kHalvingDoubling : BetweenHosts::kDoubling;
}

size_t fewest_streams(std::span<const double> times_us) {
  constexpr double kWorthIt = 0.9;
  const double best_us = *std::min_element(times_us.begin(), times_us.end());
  size_t count = 1;
  for (const double each : times_us) {
    if (each * kWorthIt <= best_us) break;
    count *= 2;
  }
  return count;
}

Result<double> HostAlgorithms::measure_exchange(int rounds, size_t size_bytes) {
  const size_t next = (links_.index() + 1) % links_.size();
  const size_t previous = (links_.index() + links_.size() - 1) % links_.size();
  const CallRecord call{.rank = links_.place().ranks[links_.index()], .kind = CallKind::kBarrier};
  std::vector<std::byte> out(size_bytes), in(size_bytes);
  double least_us = 1e9;
  for (int i = 0; i < rounds; ++i) {
    const auto begin = SteadyClock::now();
    YARD_TRY(links_.exchange(call, next, out, previous, in));
    const std::chrono::duration<double, std::micro> took = SteadyClock::now() - begin;
    least_us = std::min(least_us, took.count());
  }
  std::vector<double> all(links_.size());
  all[links_.index()] = least_us;
  std::vector<std::span<std::byte>> blocks;
  for (double& each : all) blocks.push_back(std::as_writable_bytes(std::span(&each, 1)));
  YARD_TRY(all_gather(call, blocks));
  return std::max(*std::max_element(all.begin(), all.end()), 1.0);
}

Status HostAlgorithms::measure() {
  constexpr size_t kLargeBytes = size_t{256} << 10;
  YARD_ASSIGN(model_.latency_us, measure_exchange(5, 8));
  // A slower link is one for which the exact figure changes no choice worth its time; and there a
  // connection's window holds less than the link.
  constexpr double kFarUs = 10'000;
  if (model_.latency_us > kFarUs) {
    links_.keep_streams(links_.open_streams());
    return Ok{};
  }
  YARD_ASSIGN(const double large_us, measure_exchange(3, kLargeBytes));
  model_.bytes_per_us = kLargeBytes / std::max(large_us - model_.latency_us, 1.0);
  return links_.open_streams() > links_.used_streams() ? choose_streams() : Status(Ok{});
}

Status HostAlgorithms::choose_streams() {
  constexpr size_t kTriedBytes = size_t{1} << 20;
  // Of a link that takes longer, the trial would; one connection fills it.
  constexpr double kTriedUsMax = 10'000;
  std::vector<double> times_us;
  for (size_t count = 1; count <= links_.open_streams(); count *= 2) {
    if (kTriedBytes / model_.bytes_per_us > kTriedUsMax) break;
    links_.use_streams(count);
    YARD_ASSIGN(const double each_us, measure_exchange(2, kTriedBytes));
    times_us.push_back(each_us);
  }
  const size_t count = times_us.empty() ? 1 : fewest_streams(times_us);
  links_.keep_streams(count);
  if (times_us.empty()) return Ok{};
  const double chosen_us = times_us[static_cast<size_t>(std::countr_zero(count))];
  model_.bytes_per_us = kTriedBytes / std::max(chosen_us - model_.latency_us, 1.0);
  return Ok{};
}

std::string HostAlgorithms::describe_choice() const {
  std::string text =
      fmt::format("{} hosts, {:.0f} us, {:.2f} GB/s over {} connection{} each: ", links_.size(),
                  model_.latency_us, model_.bytes_per_us / 1000, links_.used_streams(),
                  links_.used_streams() == 1 ? "" : "s");
  if (wanted_ != BetweenHosts::kAuto) return text + std::string(to_string(wanted_)) + ", as asked";
  BetweenHosts last = chosen(model_, links_.size(), 1);
  text += to_string(last);
  for (size_t size_bytes = 1024; size_bytes <= (size_t{1} << 30); size_bytes *= 2) {
    const BetweenHosts each = chosen(model_, links_.size(), size_bytes);
    if (each == last) continue;
    last = each;
    text += fmt::format(", from {} KiB {}", size_bytes / 1024, to_string(each));
  }
  return text;
}

// Every second step goes to the next place, so that whoever has come to the end knows that each has
// compared its call with the one before (and passed on only then).
Status HostAlgorithms::agree(const CallRecord& call) {
  const size_t size = links_.size();
  const auto step = [&](size_t distance) {
    return links_.exchange(call, (links_.index() + distance) % size, {},
                           (links_.index() + size - distance) % size, {});
  };
  if (size > 2) YARD_TRY(step(1));
  for (size_t distance = 1; distance < size; distance *= 2) YARD_TRY(step(distance));
  return Ok{};
}

HostAlgorithms::Values HostAlgorithms::part(Values whole, size_t begin, size_t count) const {
  return {whole.data + begin * size_bytes_of(wide_), count};
}

std::span<std::byte> HostAlgorithms::bytes_of(Values values) const {
  return {values.data, values.count * size_bytes_of(wide_)};
}

Status HostAlgorithms::exchange(const CallRecord& call, size_t to, Values out, size_t from,
                                Values in) {
  if (!packs_) return links_.exchange(call, to, bytes_of(out), from, bytes_of(in));
  packed_out_.resize(std::max(packed_out_.size(), out.count * kPackedBytes));
  packed_in_.resize(std::max(packed_in_.size(), in.count * kPackedBytes));
  if (to != kNoLink) round_packed(out);
  YARD_TRY(links_.exchange(call, to, std::span(packed_out_).first(out.count * kPackedBytes), from,
                           std::span(packed_in_).first(in.count * kPackedBytes)));
  if (from != kNoLink) convert(in.data, Form::kWide, packed_in_.data(), Form::kNative, in.count);
  return Ok{};
}

// Leaves the packed form in packed_out_.
void HostAlgorithms::round_packed(Values values) {
  if (!packs_) return;
  packed_out_.resize(std::max(packed_out_.size(), values.count * kPackedBytes));
  convert(packed_out_.data(), Form::kNative, values.data, Form::kWide, values.count);
  convert(values.data, Form::kWide, packed_out_.data(), Form::kNative, values.count);
}

Status HostAlgorithms::exchange_and_add(const CallRecord& call, size_t to, Values out, size_t from,
                                        Values into) {
  received_.resize(std::max(received_.size(), into.count * size_bytes_of(wide_)));
  YARD_TRY(exchange(call, to, out, from, {received_.data(), into.count}));
  if (into.count == 0) return Ok{};
  const std::array<std::byte*, 1> dsts{into.data};
  std::array<const std::byte*, 2> srcs{received_.data(), into.data};
  if (links_.index() < from) std::swap(srcs[0], srcs[1]);
  reduce({.dtype = wide_, .op = call.op}, dsts, srcs, into.count);
  return Ok{};
}

Status HostAlgorithms::all_reduce(const CallRecord& call, std::byte* inout, size_t element_count) {
  wide_ = wide_of(call.dtype);
  packs_ = compresses_ && call.dtype == DType::kF32 &&
           (call.op == ReduceOp::kSum || call.op == ReduceOp::kAverage);
  const Values whole{inout, element_count};
  const size_t size_bytes = element_count * (packs_ ? kPackedBytes : size_bytes_of(wide_));
  const BetweenHosts algorithm =
      wanted_ == BetweenHosts::kAuto ? chosen(model_, links_.size(), size_bytes) : wanted_;
  return algorithm == BetweenHosts::kRing ? ring(call, whole) : folded(call, whole, algorithm);
}

Status HostAlgorithms::ring(const CallRecord& call, Values whole) {
  const size_t size = links_.size();
  const size_t index = links_.index();
  const size_t next = (index + 1) % size;
  const size_t previous = (index + size - 1) % size;
  const auto chunk = [&](size_t at) {
    const Share share = share_of(whole.count, size, at % size, 1);
    return part(whole, share.begin_index, share.count);
  };
  // After step s we hold the sum of s + 2 ranks for one chunk; after the last, of all.
  for (size_t step = 0; step + 1 < size; ++step)
    YARD_TRY(exchange_and_add(call, next, chunk(index + size - step), previous,
                              chunk(index + size - step - 1)));
  for (size_t step = 0; step + 1 < size; ++step)
    YARD_TRY(
        exchange(call, next, chunk(index + size + 1 - step), previous, chunk(index + size - step)));
  return Ok{};
}

// The places beyond the largest power of two hand theirs to one before and get the result back.
Status HostAlgorithms::folded(const CallRecord& call, Values whole, BetweenHosts algorithm) {
  const size_t count = std::bit_floor(links_.size());
  const size_t index = links_.index();
  if (index >= count) {
    YARD_TRY(exchange(call, index - count, whole, kNoLink, {}));
    return exchange(call, kNoLink, {}, index - count, whole);
  }
  const bool has_extra = index + count < links_.size();
  if (has_extra) YARD_TRY(exchange_and_add(call, kNoLink, {}, index + count, whole));
  YARD_TRY(algorithm == BetweenHosts::kDoubling ? doubling(call, whole, count)
                                                : halving_doubling(call, whole, count));
  // Some of it has been rounded, by whoever sent it last.
  round_packed(whole);
  return has_extra ? exchange(call, index + count, whole, kNoLink, {}) : Status(Ok{});
}

Status HostAlgorithms::doubling(const CallRecord& call, Values whole, size_t count) {
  for (size_t distance = 1; distance < count; distance *= 2) {
    const size_t partner = links_.index() ^ distance;
    YARD_TRY(exchange_and_add(call, partner, whole, partner, whole));
  }
  return Ok{};
}

Status HostAlgorithms::halving_doubling(const CallRecord& call, Values whole, size_t count) {
  struct Halves {
    size_t partner;
    Values kept;
    Values given;
  };
  std::vector<Halves> steps;
  Values ours = whole;
  for (size_t distance = 1; distance < count; distance *= 2) {
    const Values lower = part(ours, 0, ours.count / 2);
    const Values upper = part(ours, ours.count / 2, ours.count - ours.count / 2);
    const bool keeps_lower = (links_.index() & distance) == 0;
    steps.push_back(
        {links_.index() ^ distance, keeps_lower ? lower : upper, keeps_lower ? upper : lower});
    const Halves& step = steps.back();
    round_packed(step.kept);  // as doubling() does, which sends it
    YARD_TRY(exchange_and_add(call, step.partner, step.given, step.partner, step.kept));
    ours = step.kept;
  }
  for (size_t i = steps.size(); i-- > 0;)
    YARD_TRY(exchange(call, steps[i].partner, steps[i].kept, steps[i].partner, steps[i].given));
  return Ok{};
}

Status HostAlgorithms::all_gather(const CallRecord& call,
                                  std::span<const std::span<std::byte>> blocks) {
  const size_t size = links_.size();
  const size_t index = links_.index();
  for (size_t step = 0; step + 1 < size; ++step)
    YARD_TRY(links_.exchange(call, (index + 1) % size, blocks[(index + size - step) % size],
                             (index + size - 1) % size, blocks[(index + size - step - 1) % size]));
  return Ok{};
}

Status HostAlgorithms::broadcast(const CallRecord& call, std::span<std::byte> inout,
                                 size_t root_index) {
  // A tree sends all of it log2(n) times one after the other; a pipe once, through n - 1 hops.
  const auto size_bytes = static_cast<double>(inout.size());
  const double steps = log2_up(links_.size());
  const double tree_us = steps * (model_.latency_us + size_bytes / model_.bytes_per_us);
  const double hops = static_cast<double>(links_.size()) - 1;
  const double pipe_us = hops * (model_.latency_us + kPipeBytes / model_.bytes_per_us) +
                         size_bytes / model_.bytes_per_us;
  return tree_us <= pipe_us ? tree_broadcast(call, inout, root_index)
                            : pipe_broadcast(call, inout, root_index);
}

// Binomial: whoever has it hands it on at the distances that are left.
Status HostAlgorithms::tree_broadcast(const CallRecord& call, std::span<std::byte> inout,
                                      size_t root_index) {
  const size_t size = links_.size();
  const size_t from_root = (links_.index() + size - root_index) % size;
  const auto place_at = [&](size_t distance) { return (root_index + distance) % size; };
  size_t distance = 1;
  while (distance < size) distance *= 2;
  if (from_root != 0) {
    const size_t lowest = from_root & (~from_root + 1);
    YARD_TRY(links_.exchange(call, kNoLink, {}, place_at(from_root - lowest), inout));
    distance = lowest;
  }
  for (distance /= 2; distance > 0; distance /= 2)
    if (from_root + distance < size)
      YARD_TRY(links_.exchange(call, place_at(from_root + distance), inout, kNoLink, {}));
  return Ok{};
}

Status HostAlgorithms::pipe_broadcast(const CallRecord& call, std::span<std::byte> inout,
                                      size_t root_index) {
  const size_t size = links_.size();
  const size_t next = (links_.index() + 1) % size;
  const size_t previous = (links_.index() + size - 1) % size;
  const size_t to = next == root_index ? kNoLink : next;
  const size_t from = links_.index() == root_index ? kNoLink : previous;
  const size_t piece_count = (inout.size() + kPipeBytes - 1) / kPipeBytes;
  const auto piece = [&](size_t index) {
    const size_t begin = index * kPipeBytes;
    return inout.subspan(begin, std::min(kPipeBytes, inout.size() - begin));
  };
  if (from == kNoLink) {
    for (size_t i = 0; i < piece_count; ++i)
      YARD_TRY(links_.exchange(call, to, piece(i), kNoLink, {}));
    return Ok{};
  }
  // Piece i comes in while piece i - 1 goes out.
  for (size_t i = 0; i <= piece_count; ++i) {
    const bool sends = i > 0 && to != kNoLink;
    const bool receives = i < piece_count;
    if (!sends && !receives) continue;
    YARD_TRY(
        links_.exchange(call, sends ? to : kNoLink, sends ? piece(i - 1) : std::span<std::byte>(),
                        receives ? from : kNoLink, receives ? piece(i) : std::span<std::byte>()));
  }
  return Ok{};
}

}  // namespace yard::collective
