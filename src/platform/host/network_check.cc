#include "host/network_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/crc32c.h"
#include "collective/rendezvous.h"

namespace yard::host {
namespace {

constexpr uint16_t kPortFirst = 31'000;
constexpr uint16_t kPortCount = 1'000;

// Who is to blame that not all came together, as far as this host can tell.
NetworkVerdict verdict_of_meeting(const NetworkCheckOptions& options, const Error& error) {
  NetworkVerdict verdict;
  verdict.error = error.message;
  const auto rank = static_cast<size_t>(options.rank);
  // The others, too, tell whom they wait for; only who does not reach the first host names that.
  if (options.rank > 0 && error.message.starts_with("rank 0 did not come"))
    verdict.faulty = {options.hosts[rank]};
  verdict.is_alone = options.rank == 0 && error.code == Code::kDeadlineExceeded;
  return verdict;
}

// The error of a wrong answer names the host that got it.
NetworkVerdict verdict_of_operations(const NetworkCheckOptions& options, const Error& error) {
  NetworkVerdict verdict;
  verdict.error = error.message;
  const std::string& own = options.hosts[static_cast<size_t>(options.rank)];
  if (error.code == Code::kCorrupt && error.message.find(own) != std::string::npos)
    verdict.faulty = {own};
  return verdict;
}

double best_of(const std::vector<collective::PairFigures>& pairs, int rank) {
  double best = 0;
  for (const auto& pair : pairs)
    if (pair.a == rank || pair.b == rank) best = std::max(best, pair.bytes_per_second);
  return best;
}

Result<NetworkVerdict> measure(const NetworkCheckOptions& options, collective::Group& group) {
  const auto rank = static_cast<size_t>(options.rank);
  YARD_ASSIGN(const auto report,
              collective::check_collectives(group, options.hosts[rank],
                                            {.size_bytes = options.message_bytes}));
  std::vector<std::byte> is_slow(options.hosts.size());
  NetworkVerdict verdict;
  if (rank == 0) {
    const auto slow = hosts_below(report.pairs, options.hosts, options.bytes_per_second_min);
    for (size_t i = 0; i < is_slow.size(); ++i) {
      is_slow[i] = std::byte{std::ranges::find(slow, options.hosts[i]) != slow.end()};
      const double best = best_of(report.pairs, static_cast<int>(i));
      verdict.bytes_per_second = i == 0 ? best : std::min(verdict.bytes_per_second, best);
    }
  }
  YARD_TRY(group.broadcast(is_slow, 0)->wait());
  for (size_t i = 0; i < is_slow.size(); ++i)
    if (is_slow[i] != std::byte{0}) verdict.faulty.push_back(options.hosts[i]);
  verdict.is_good = verdict.faulty.empty();
  if (!verdict.is_good)
    verdict.error = fmt::format("{}: below {:.4g} bytes a second with every peer",
                                fmt::join(verdict.faulty, ", "), options.bytes_per_second_min);
  return verdict;
}

}  // namespace

std::vector<std::string> hosts_below(const std::vector<collective::PairFigures>& pairs,
                                     const std::vector<std::string>& hosts,
                                     double bytes_per_second_min) {
  std::vector<std::string> below;
  for (size_t i = 0; i < hosts.size(); ++i)
    if (best_of(pairs, static_cast<int>(i)) < bytes_per_second_min) below.push_back(hosts[i]);
  return below;
}

NetworkVerdict check_network(const NetworkCheckOptions& options, const StopToken& stop) {
  const std::string& own = options.hosts[static_cast<size_t>(options.rank)];
  const auto group = collective::connect(
      {.rank = options.rank,
       .world_size = static_cast<int>(options.hosts.size()),
       .master_address = options.master_address.empty() ? options.hosts[0] : options.master_address,
       .master_port = options.port,
       .run_id = options.run_id,
       .connect_timeout = options.timeout,
       .operation_timeout = options.timeout,
       // Slices of one machine are to use the network that hosts have.
       .host_identity = own,
       .host_name = own},
      stop);
  if (!group) return verdict_of_meeting(options, group.error());
  auto verdict = measure(options, **group);
  return verdict ? *std::move(verdict) : verdict_of_operations(options, verdict.error());
}

Json to_json(const NetworkVerdict& verdict) {
  return {{"is_good", verdict.is_good},
          {"faulty", verdict.faulty},
          {"is_alone", verdict.is_alone},
          {"bytes_per_second", verdict.bytes_per_second},
          {"error", verdict.error}};
}

Result<NetworkVerdict> network_verdict_from_json(const Json& json, std::string_view what) {
  NetworkVerdict verdict;
  YARD_ASSIGN(verdict.is_good, json_field<bool>(json, "is_good", what));
  YARD_ASSIGN(verdict.faulty, json_field<std::vector<std::string>>(json, "faulty", what));
  YARD_ASSIGN(verdict.is_alone, json_field<bool>(json, "is_alone", what));
  YARD_ASSIGN(verdict.bytes_per_second, json_field<double>(json, "bytes_per_second", what));
  YARD_ASSIGN(verdict.error, json_field<std::string>(json, "error", what));
  return verdict;
}

std::vector<std::string> network_check_command(const jobs::HostPlan& plan,
                                               const std::string& yard_program) {
  const std::string run_id = fmt::format("network of {}, attempt {}", plan.job, plan.attempt);
  const uint32_t hash = crc32c(std::as_bytes(std::span(plan.job.data(), plan.job.size())));
  std::vector<std::string> command = {
      yard_program, "host-network",
      "--rank",     std::to_string(jobs::host_rank(plan)),
      "--port",     std::to_string(kPortFirst + hash % kPortCount),
      "--run-id",   run_id,
      "--floor",    fmt::format("{}", plan.health.collective_bytes_per_second_min)};
  for (const std::string& host : jobs::sorted_host_names(plan)) command.push_back(host);
  return command;
}

}  // namespace yard::host
