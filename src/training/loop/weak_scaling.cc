#include "loop/weak_scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/nearest_name.h"
#include "base/units.h"

namespace yard::loop {
namespace {

// A backward pass is two thirds of a step's computing.
constexpr double kBackwardShare = 2.0 / 3;

Error refuse(std::string_view key, std::string_view value, std::string_view why) {
  return {Code::kInvalidArgument, fmt::format("simulate: {}={}: {}", key, value, why)};
}

Result<double> number(std::string_view key, std::string_view text, double low) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= low))
    return refuse(key, text, fmt::format("not a number from {} on", low));
  return value;
}

Result<int64_t> whole_number(std::string_view key, std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1 || value > 1'000'000)
    return refuse(key, text, "not a whole number from 1 on");
  return value;
}

Result<double> bandwidth(std::string_view key, std::string_view text) {
  if (!text.ends_with("/s")) return refuse(key, text, "a bandwidth is like 25GB/s");
  const auto bytes = parse_size_bytes(text.substr(0, text.size() - 2));
  if (!bytes || *bytes == 0) return refuse(key, text, "a bandwidth is like 25GB/s");
  return static_cast<double>(*bytes);
}

// "20us", "0.5ms".
Result<double> latency(std::string_view key, std::string_view text) {
  for (const auto& [unit, seconds] : {std::pair{"us", 1e-6}, {"ms", 1e-3}}) {
    if (!text.ends_with(unit)) continue;
    YARD_ASSIGN(const double value, number(key, text.substr(0, text.size() - 2), 0));
    return value * seconds;
  }
  return refuse(key, text, "a latency is like 20us or 0.5ms");
}

Result<std::vector<int64_t>> hosts_of_stages(std::string_view text) {
  std::vector<int64_t> out;
  while (true) {
    const size_t end = std::min(text.find(':'), text.size());
    YARD_ASSIGN(const int64_t count, whole_number("hosts", text.substr(0, end)));
    out.push_back(count);
    if (end == text.size()) return out;
    text.remove_prefix(end + 1);
  }
}

Status set(ClusterModel& cluster, std::string_view key, std::string_view value) {
  if (key == "hosts") {
    YARD_ASSIGN(cluster.hosts, hosts_of_stages(value));
  } else if (key == "gpus") {
    YARD_ASSIGN(cluster.ranks_per_host, whole_number(key, value));
  } else if (key == "inside") {
    YARD_ASSIGN(cluster.inside.bytes_per_s, bandwidth(key, value));
  } else if (key == "between") {
    YARD_ASSIGN(cluster.between.bytes_per_s, bandwidth(key, value));
  } else if (key == "inside_latency") {
    YARD_ASSIGN(cluster.inside.latency_s, latency(key, value));
  } else if (key == "between_latency") {
    YARD_ASSIGN(cluster.between.latency_s, latency(key, value));
  } else if (key == "speed") {
    YARD_ASSIGN(cluster.speed, number(key, value, 1e-6));
  } else if (key == "price") {
    YARD_ASSIGN(cluster.host_price_per_hour, number(key, value, 0));
  } else if (key == "batch" && (value == "fixed" || value == "grows")) {
    cluster.batch_grows = value == "grows";
  } else {
    return Error{
        Code::kInvalidArgument,
        fmt::format("simulate: unknown {}={}{}", key, value,
                    suggestion(key, {"hosts", "gpus", "inside", "between", "inside_latency",
                                     "between_latency", "speed", "price", "batch"}))};
  }
  return Ok{};
}

// One all-reduce of so many bytes.
double all_reduce_s(double bytes, int64_t hosts, const ClusterModel& cluster) {
  const auto g = static_cast<double>(cluster.ranks_per_host), h = static_cast<double>(hosts);
  const double inside =
      2 * (g - 1) / g * bytes / cluster.inside.bytes_per_s + 2 * (g - 1) * cluster.inside.latency_s;
  // Each rank's part goes round by itself, all of them over the host's one link.
  const double between = 2 * (h - 1) / h * bytes / cluster.between.bytes_per_s +
                         2 * (h - 1) * cluster.between.latency_s;
  return inside + between;
}

// The batch, and what a rank computes of it at once.
Status share_out(const MeasuredStage& stage, const ClusterModel& cluster, PredictedStage& out) {
  out.batch = cluster.batch_grows ? stage.batch * out.ranks : stage.batch;
  if (out.batch % out.ranks != 0)
    return Error{Code::kInvalidArgument,
                 fmt::format("stage '{}': a batch of {} cannot be shared by {} ranks; {} or {} "
                             "would fit",
                             stage.name, out.batch, out.ranks,
                             std::max(out.batch / out.ranks, int64_t{1}) * out.ranks,
                             (out.batch / out.ranks + 1) * out.ranks)};
  const int64_t share = out.batch / out.ranks;
  out.micro_batch = std::min(stage.micro_batch, share);
  out.micro_batch_count = (share + out.micro_batch - 1) / out.micro_batch;
  return Ok{};
}

}  // namespace

Result<ClusterModel> parse_cluster(std::string_view text) {
  ClusterModel cluster;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, end);
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos)
      return Error{Code::kInvalidArgument, fmt::format("simulate: '{}': expected key=value", item)};
    YARD_TRY(set(cluster, item.substr(0, equals), item.substr(equals + 1)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (cluster.hosts.empty())
    return Error{Code::kInvalidArgument, "simulate: hosts= is missing, as in hosts=16,gpus=8"};
  return cluster;
}

Result<PredictedStage> predict(const MeasuredStage& stage, size_t stage_index,
                               const ClusterModel& cluster) {
  const int64_t hosts = cluster.hosts_of(stage_index);
  PredictedStage out{.ranks = hosts * cluster.ranks_per_host};
  YARD_TRY(share_out(stage, cluster, out));
  const double samples = static_cast<double>(out.batch) / static_cast<double>(out.ranks);
  const double sample_s =
      stage.micro_batch_s / static_cast<double>(stage.micro_batch) / cluster.speed;
  const double computing_s = samples * sample_s;
  out.compute_s = computing_s + stage.optimizer_s / cluster.speed;

  const double bytes = static_cast<double>(stage.gradient_bytes);
  const double buckets = std::max(
      1.0, std::ceil(bytes / static_cast<double>(std::max<uint64_t>(stage.bucket_bytes, 1))));
  if (out.ranks > 1) {
    const double bucket_s = all_reduce_s(bytes / buckets, hosts, cluster);
    out.communication_s = buckets * bucket_s;
    // The last bucket begins when the backward pass has ended.
    const double hidden_s =
        kBackwardShare * static_cast<double>(out.micro_batch) * sample_s * (buckets - 1) / buckets;
    out.exposed_s = bucket_s + std::max(0.0, (buckets - 1) * bucket_s - hidden_s);
    // The largest of n normal deviations.
    out.straggler_s = stage.micro_batch_deviation_s / cluster.speed *
                      std::sqrt(static_cast<double>(out.micro_batch_count)) *
                      std::sqrt(2 * std::log(static_cast<double>(out.ranks)));
  }
  out.step_s = out.compute_s + out.exposed_s + out.straggler_s;
  out.efficiency = out.compute_s / out.step_s;
  out.hours = out.step_s * static_cast<double>(stage.steps) / 3600;
  out.cost = out.hours * static_cast<double>(hosts) * cluster.host_price_per_hour;
  return out;
}

std::string to_table(const std::vector<MeasuredStage>& measured,
                     const std::vector<PredictedStage>& predicted) {
  std::string out = fmt::format("{:<16}{:>7}{:>8}{:>12}{:>11}{:>11}{:>11}{:>11}{:>9}{:>10}{:>11}\n",
                                "stage", "ranks", "batch", "micro", "compute", "exchange",
                                "exposed", "step", "busy", "hours", "cost");
  double hours = 0, cost = 0;
  for (size_t i = 0; i < predicted.size(); ++i) {
    const PredictedStage& p = predicted[i];
    out += fmt::format(
        "{:<16}{:>7}{:>8}{:>12}{:>9.4g} s{:>9.4g} s{:>9.4g} s{:>9.4g} s{:>7.1f} "
        "%{:>10.4g}{:>11.5g}\n",
        measured[i].name, p.ranks, p.batch,
        fmt::format("{} x {}", p.micro_batch_count, p.micro_batch), p.compute_s, p.communication_s,
        p.exposed_s + p.straggler_s, p.step_s, 100 * p.efficiency, p.hours, p.cost);
    hours += p.hours;
    cost += p.cost;
  }
  return out + fmt::format("{:<96}{:>10.4g}{:>11.5g}\n", "all", hours, cost);
}

}  // namespace yard::loop
