#include "collective/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <set>

#include "collective/element_internal.h"

namespace yard::collective {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr size_t kHostNameBytes = 64;
constexpr size_t kSmallBytes = 8;

double seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Whole numbers so small that they are exact in every type and every order of adding.
uint8_t value_at(size_t index, int rank) {
  return static_cast<uint8_t>((index * 5 + static_cast<size_t>(rank) * 3) % 4);
}

// The element types as whole numbers go in and come out.
void put(std::byte* at, DType dtype, double value) {
  const auto store = [at](auto typed) { std::memcpy(at, &typed, sizeof typed); };
  switch (dtype) {
    case DType::kF32:
      return store(static_cast<float>(value));
    case DType::kF64:
      return store(value);
    case DType::kBF16:
      return store(bf16_of_f32(static_cast<float>(value)));
    case DType::kF16:
      return store(f16_of_f32(static_cast<float>(value)));
    case DType::kI32:
      return store(static_cast<int32_t>(value));
    case DType::kI64:
      return store(static_cast<int64_t>(value));
    case DType::kU8:
      return store(static_cast<uint8_t>(value));
    case DType::kI8:
      return store(static_cast<int8_t>(value));
    case DType::kI16:
      return store(static_cast<int16_t>(value));
  }
}

double expected(size_t index, int size, ReduceOp op) {
  double result = value_at(index, 0);
  for (int rank = 1; rank < size; ++rank) {
    const double value = value_at(index, rank);
    result = op == ReduceOp::kMin   ? std::min(result, value)
             : op == ReduceOp::kMax ? std::max(result, value)
                                    : result + value;
  }
  return result;
}

class Checker {
 public:
  Checker(Group& group, const std::string& host, const CheckOptions& options)
      : group_(group), host_(host), options_(options) {}

  Result<CheckReport> run() {
    report_.size = group_.size();
    YARD_TRY(gather_hosts());
    YARD_TRY(check_answers());
    YARD_TRY(measure_all_reduce());
    YARD_TRY(measure_pairs());
    if (group_.rank() == 0)
      report_.warnings = find_slow(report_.pairs, report_.hosts, options_.slow_share);
    return std::move(report_);
  }

 private:
  Status gather_hosts() {
    std::vector<std::byte> mine(kHostNameBytes), all(kHostNameBytes * size());
    std::memcpy(mine.data(), host_.data(), std::min(host_.size(), kHostNameBytes - 1));
    YARD_TRY(group_.all_gather(mine, all)->wait());
    for (size_t rank = 0; rank < size(); ++rank)
      report_.hosts.emplace_back(reinterpret_cast<const char*>(all.data() + rank * kHostNameBytes));
    return Ok{};
  }

  // Whatever one rank finds, all say; so no rank goes on alone.
  Status agree(const std::string& what, bool is_right) {
    ++report_.operation_count;
    int32_t wrong_rank = is_right ? -1 : group_.rank();
    YARD_TRY(group_
                 .all_reduce(std::as_writable_bytes(std::span(&wrong_rank, 1)), DType::kI32,
                             ReduceOp::kMax)
                 ->wait());
    if (wrong_rank < 0) return Ok{};
    return Error{Code::kCorrupt, fmt::format("{}: rank {} on {} got a wrong answer", what,
                                             wrong_rank, host_of(wrong_rank))};
  }

  const std::string& host_of(int rank) const { return report_.hosts[static_cast<size_t>(rank)]; }
  size_t size() const { return static_cast<size_t>(group_.size()); }

  std::vector<std::byte> values(DType dtype, size_t count) const {
    std::vector<std::byte> bytes(count * size_bytes_of(dtype));
    for (size_t i = 0; i < count; ++i)
      put(bytes.data() + i * size_bytes_of(dtype), dtype, value_at(i, group_.rank()));
    return bytes;
  }

  std::vector<std::byte> wanted(DType dtype, ReduceOp op, size_t begin, size_t count) const {
    std::vector<std::byte> bytes(count * size_bytes_of(dtype));
    for (size_t i = 0; i < count; ++i)
      put(bytes.data() + i * size_bytes_of(dtype), dtype, expected(begin + i, group_.size(), op));
    return bytes;
  }

  Status check_answers() {
    // One-shot, and through the stages.
    for (const size_t count : {size_t{1}, size_t{1000}, options_.element_count}) {
      for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI8,
                                DType::kI16, DType::kI32, DType::kI64, DType::kU8})
        YARD_TRY(check_reductions(dtype, count));
      YARD_TRY(check_moves(count));
    }
    return Ok{};
  }

  Status check_reductions(DType dtype, size_t count) {
    // Sums of up to 3 a rank must stay exact in the narrow types.
    const bool is_narrow = size_bytes_of(dtype) == 1 || dtype == DType::kBF16;
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
      if (is_narrow && op == ReduceOp::kSum && size() > 40) continue;
      std::vector<std::byte> data = values(dtype, count);
      YARD_TRY(group_.all_reduce(data, dtype, op)->wait());
      YARD_TRY(agree(fmt::format("all_reduce of {} {}", count, to_string(dtype)),
                     data == wanted(dtype, op, 0, count)));
      const std::vector<std::byte> whole = values(dtype, count * size());
      std::vector<std::byte> part(count * size_bytes_of(dtype));
      YARD_TRY(group_.reduce_scatter(whole, part, dtype, op)->wait());
      YARD_TRY(agree(fmt::format("reduce_scatter of {} {}", count, to_string(dtype)),
                     part == wanted(dtype, op, count * static_cast<size_t>(group_.rank()), count)));
    }
    return Ok{};
  }

  static std::vector<std::byte> pattern(size_t count, int rank) {
    std::vector<std::byte> bytes(count);
    for (size_t i = 0; i < count; ++i)
      bytes[i] = static_cast<std::byte>(i * 7 + static_cast<size_t>(rank) * 31);
    return bytes;
  }

  std::vector<std::byte> all_patterns(size_t count) const {
    std::vector<std::byte> all;
    for (int rank = 0; rank < group_.size(); ++rank) {
      const auto each = pattern(count, rank);
      all.insert(all.end(), each.begin(), each.end());
    }
    return all;
  }

  Status check_moves(size_t count) {
    const std::vector<std::byte> mine = pattern(count, group_.rank());
    const std::vector<std::byte> all = all_patterns(count);
    std::vector<std::byte> out(count * size());
    YARD_TRY(group_.all_gather(mine, out)->wait());
    YARD_TRY(agree(fmt::format("all_gather of {} bytes", count), out == all));
    for (int root = 0; root < std::min(group_.size(), 4); ++root) {
      const bool is_root = root == group_.rank();
      std::vector<std::byte> data = mine;
      YARD_TRY(group_.broadcast(data, root)->wait());
      YARD_TRY(agree(fmt::format("broadcast of {} bytes from rank {}", count, root),
                     data == pattern(count, root)));
      std::vector<std::byte> gathered(is_root ? count * size() : 0);
      YARD_TRY(group_.gather(mine, gathered, root)->wait());
      YARD_TRY(agree(fmt::format("gather of {} bytes to rank {}", count, root),
                     !is_root || gathered == all));
      YARD_TRY(group_.scatter(is_root ? std::span(all) : std::span<const std::byte>(), data, root)
                   ->wait());
      YARD_TRY(agree(fmt::format("scatter of {} bytes from rank {}", count, root), data == mine));
    }
    std::vector<std::span<const std::byte>> ins(size(), mine);
    std::vector<std::span<std::byte>> outs;
    for (size_t rank = 0; rank < size(); ++rank)
      outs.push_back(std::span(out).subspan(rank * count, count));
    std::fill(out.begin(), out.end(), std::byte{0});
    YARD_TRY(group_.all_to_all(std::move(ins), std::move(outs))->wait());
    return agree(fmt::format("all_to_all of {} bytes", count), out == all);
  }

  Status measure_all_reduce() {
    std::vector<std::byte> data(options_.size_bytes / sizeof(float) * sizeof(float));
    double best = 1e9;
    for (int round = 0; round < options_.round_count; ++round) {
      YARD_TRY(group_.barrier()->wait());
      const auto begin = SteadyClock::now();
      YARD_TRY(group_.all_reduce(data, DType::kF32, ReduceOp::kSum)->wait());
      best = std::min(best, seconds_since(begin));
    }
    report_.all_reduce_bytes_per_second = static_cast<double>(data.size()) / best;
    return Ok{};
  }

  // There and back, the first of a pair beginning.
  Result<double> best_round_trip(const std::pair<int, int>& pair, std::span<std::byte> data) {
    double best = 1e9;
    for (int round = 0; round < options_.round_count; ++round) {
      const auto begin = SteadyClock::now();
      if (group_.rank() == pair.first) {
        YARD_TRY(group_.send(data, pair.second, 0)->wait());
        YARD_TRY(group_.receive(data, pair.second, 0)->wait());
      } else {
        YARD_TRY(group_.receive(data, pair.first, 0)->wait());
        YARD_TRY(group_.send(data, pair.first, 0)->wait());
      }
      best = std::min(best, seconds_since(begin));
    }
    return best;
  }

  Status measure_pairs() {
    if (size() == 1) return Ok{};
    std::vector<std::byte> data(options_.size_bytes);
    std::vector<PairFigures> mine;
    for (const auto& round : pair_rounds(group_.size())) {
      YARD_TRY(group_.barrier()->wait());
      for (const auto& pair : round) {
        if (pair.first != group_.rank() && pair.second != group_.rank()) continue;
        YARD_ASSIGN(const double small, best_round_trip(pair, std::span(data).first(kSmallBytes)));
        YARD_ASSIGN(const double large, best_round_trip(pair, data));
        if (pair.first == group_.rank())
          mine.push_back({.a = pair.first,
                          .b = pair.second,
                          .latency_us = small / 2 * 1e6,
                          .bytes_per_second = static_cast<double>(data.size()) / (large / 2)});
      }
    }
    mine.resize(size());  // each is the first of fewer pairs; the rest are of rank 0 with itself
    std::vector<PairFigures> all(size() * size());
    YARD_TRY(group_
                 .gather(std::as_bytes(std::span(mine)),
                         group_.rank() == 0 ? std::as_writable_bytes(std::span(all))
                                            : std::span<std::byte>(),
                         0)
                 ->wait());
    if (group_.rank() != 0) return Ok{};
    for (const PairFigures& figures : all)
      if (figures.a != figures.b) report_.pairs.push_back(figures);
    std::sort(report_.pairs.begin(), report_.pairs.end(), [](const auto& x, const auto& y) {
      return std::pair(x.a, x.b) < std::pair(y.a, y.b);
    });
    return Ok{};
  }

  Group& group_;
  const std::string& host_;
  const CheckOptions& options_;
  CheckReport report_;
};

}  // namespace

Result<CheckReport> check_collectives(Group& group, const std::string& host_name,
                                      const CheckOptions& options) {
  return Checker(group, host_name, options).run();
}

std::vector<std::vector<std::pair<int, int>>> pair_rounds(int size) {
  std::vector<std::vector<std::pair<int, int>>> rounds;
  // The last place stays, the others turn; in an odd number it is nobody.
  const int places = size + size % 2;
  for (int round = 0; round + 1 < places; ++round) {
    auto& pairs = rounds.emplace_back();
    for (int i = 0; i < places / 2; ++i) {
      const int a = i == 0 ? places - 1 : (round + i) % (places - 1);
      const int b = (round + places - 1 - i) % (places - 1);
      if (a < size && b < size) pairs.emplace_back(std::min(a, b), std::max(a, b));
    }
  }
  return rounds;
}

std::vector<std::string> find_slow(const std::vector<PairFigures>& pairs,
                                   const std::vector<std::string>& hosts, double slow_share) {
  // Pairs within a host are compared among themselves, as are those between hosts.
  const auto host_of = [&](int rank) { return hosts[static_cast<size_t>(rank)]; };
  const auto is_near = [&](const PairFigures& pair) { return host_of(pair.a) == host_of(pair.b); };
  std::vector<std::string> warnings;
  for (const bool near : {true, false}) {
    std::vector<double> rates;
    for (const PairFigures& pair : pairs)
      if (is_near(pair) == near) rates.push_back(pair.bytes_per_second);
    const double median = median_of(rates);
    std::map<int, std::pair<int, int>> slow_of_rank;  // slow links, all links
    std::vector<PairFigures> slow;
    for (const PairFigures& pair : pairs) {
      if (is_near(pair) != near) continue;
      const bool is_slow = pair.bytes_per_second < median * slow_share;
      if (is_slow) slow.push_back(pair);
      for (const int rank : {pair.a, pair.b}) {
        slow_of_rank[rank].first += is_slow ? 1 : 0;
        slow_of_rank[rank].second += 1;
      }
    }
    std::set<int> slow_ranks;
    for (const auto& [rank, counts] : slow_of_rank)
      if (counts.second > 1 && counts.first == counts.second) slow_ranks.insert(rank);
    for (const int rank : slow_ranks)
      warnings.push_back(fmt::format("rank {} on {} is slow with every peer {}", rank,
                                     host_of(rank), near ? "of its host" : "on other hosts"));
    for (const PairFigures& pair : slow)
      if (!slow_ranks.contains(pair.a) && !slow_ranks.contains(pair.b))
        warnings.push_back(
            fmt::format("the link of rank {} on {} and rank {} on {} is slow: {:.2f} GB/s, the "
                        "median is {:.2f}",
                        pair.a, host_of(pair.a), pair.b, host_of(pair.b),
                        pair.bytes_per_second / 1e9, median / 1e9));
  }
  return warnings;
}

}  // namespace yard::collective
