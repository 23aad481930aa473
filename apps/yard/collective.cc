// yard topo, check collective, flight: what a host's ranks have to talk over, whether it works, and
// who waits for whom.
#include <fmt/format.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <memory>
#include <thread>

#include "base/json.h"
#include "base/subprocess.h"
#include "base/units.h"
#include "collective/check.h"
#include "collective/flight.h"
#include "collective/hardware.h"
#include "collective/rendezvous.h"
#include "commands.h"
#include "job_follow.h"

namespace yard::app {
namespace {

using collective::CheckReport;
using collective::HostHardware;
using collective::PairFigures;

Json to_json(const HostHardware& hardware) {
  Json json = {{"name", hardware.name},        {"packages", hardware.package_count},
               {"cores", hardware.core_count}, {"cpus", hardware.cpus},
               {"numa_nodes", Json::array()},  {"caches", Json::array()},
               {"gpus", Json::array()},        {"gpu_order", collective::gpu_order(hardware.gpus)},
               {"network", Json::array()}};
  for (const auto& node : hardware.numa_nodes)
    json["numa_nodes"].push_back(
        {{"index", node.index}, {"cpus", node.cpus}, {"memory_bytes", node.memory_bytes}});
  for (const auto& cache : hardware.caches)
    json["caches"].push_back(
        {{"level", cache.level}, {"cpus", cache.cpus}, {"size_bytes", cache.size_bytes}});
  for (const auto& gpu : hardware.gpus)
    json["gpus"].push_back({{"index", gpu.index},
                            {"name", gpu.name},
                            {"uuid", gpu.uuid},
                            {"bus_id", gpu.bus_id},
                            {"memory_bytes", gpu.memory_bytes},
                            {"numa_node", gpu.numa_node},
                            {"linked_to", gpu.linked_to}});
  for (const auto& card : hardware.network_cards)
    json["network"].push_back({{"name", card.name},
                               {"up", card.is_up},
                               {"megabits_per_s", card.megabits_per_s},
                               {"numa_node", card.numa_node},
                               {"addresses", card.addresses}});
  return json;
}

Status show_topology(int rank_count, bool as_json) {
  YARD_ASSIGN(const HostHardware hardware, collective::read_host_hardware());
  if (as_json) {
    Json json = to_json(hardware);
    json["ranks"] = Json::array();
    for (int rank = 0; rank < rank_count; ++rank)
      json["ranks"].push_back({{"cpus", collective::cpus_of_rank(hardware, rank, rank_count)}});
    fmt::print("{}\n", json.dump(2));
    return Ok{};
  }
  fmt::print("{}", collective::describe(hardware));
  const std::vector<int> order = collective::gpu_order(hardware.gpus);
  for (int rank = 0; rank < rank_count; ++rank) {
    const auto at = static_cast<size_t>(rank);
    fmt::print("  rank {} of {}: CPUs {}{}\n", rank, rank_count,
               fmt::join(collective::cpus_of_rank(hardware, rank, rank_count), ","),
               at < order.size() ? fmt::format(", GPU {}", order[at]) : "");
  }
  return Ok{};
}

void add_topology(CLI::App& app, Context& context) {
  auto* sub = app.add_subcommand("topo", "what this host has: CPUs, memory, GPUs, network");
  auto rank_count = std::make_shared<int>(0);
  auto as_json = std::make_shared<bool>(false);
  sub->add_option("--ranks", *rank_count, "also: what each of so many ranks would get")
      ->check(CLI::Range(0, 4096));
  sub->add_flag("--json", *as_json);
  sub->callback(
      [=, &context] { context.action = [=] { return show_topology(*rank_count, *as_json); }; });
}

// ---- check collective

struct CheckArguments {
  int rank_count = 0;  // of this host; 0: one for each two cores, at least 2
  int host_count = 1;
  int host_index = 0;
  std::string master;
  std::string size = "8MiB";
  double slow_share = 0.5;
  int timeout_s = 60;
  int seconds = 0;   // how long it goes on
  std::string name;  // of this host; empty: its own
  bool as_json = false;
  int as_rank = -1;  // of a child: the rank that it is
};

struct Address {
  std::string host = "127.0.0.1";
  uint16_t port = 0;
};

Result<Address> parse_address(const std::string& text) {
  const Error bad{Code::kInvalidArgument, fmt::format("--master {}: HOST:PORT is wanted", text)};
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return bad;
  Address address{.host = text.substr(0, colon)};
  const std::string port = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc() || end != port.data() + port.size() || address.port == 0) return bad;
  return address;
}

Json to_json(const CheckReport& report) {
  Json json = {{"ranks", report.size},
               {"hosts", report.hosts},
               {"operations", report.operation_count},
               {"all_reduce_bytes_per_second", report.all_reduce_bytes_per_second},
               {"warnings", report.warnings},
               {"pairs", Json::array()}};
  for (const PairFigures& pair : report.pairs)
    json["pairs"].push_back({{"a", pair.a},
                             {"b", pair.b},
                             {"latency_us", pair.latency_us},
                             {"bytes_per_second", pair.bytes_per_second}});
  return json;
}

void print_matrix(const CheckReport& report, const char* title,
                  const std::function<double(const PairFigures&)>& figure) {
  constexpr int kColumnsMax = 32;  // a wider table helps nobody; --json has all
  if (report.size > kColumnsMax) return;
  std::map<std::pair<int, int>, double> figures;
  for (const PairFigures& pair : report.pairs)
    figures[{pair.a, pair.b}] = figures[{pair.b, pair.a}] = figure(pair);
  fmt::print("\n{:<24}", title);
  for (int b = 0; b < report.size; ++b) fmt::print("{:>8}", b);
  for (int a = 0; a < report.size; ++a) {
    fmt::print("\n{:>4} {:<19.19}", a, report.hosts[static_cast<size_t>(a)]);
    for (int b = 0; b < report.size; ++b)
      fmt::print("{:>8}", a == b ? "-" : fmt::format("{:.2f}", figures[{a, b}]));
  }
  fmt::print("\n");
}

void print_report(const CheckReport& report) {
  fmt::print("{} ranks: {} operations, all right; all_reduce {:.2f} GB/s\n", report.size,
             report.operation_count, report.all_reduce_bytes_per_second / 1e9);
  print_matrix(report, "latency, us", [](const PairFigures& pair) { return pair.latency_us; });
  print_matrix(report, "bandwidth, GB/s",
               [](const PairFigures& pair) { return pair.bytes_per_second / 1e9; });
  for (const std::string& warning : report.warnings) fmt::print("\nslow: {}", warning);
  if (!report.warnings.empty()) fmt::print("\n");
}

Status run_rank(const CheckArguments& arguments, const Address& master, uint64_t size_bytes,
                const StopToken& stop) {
  YARD_ASSIGN(const HostHardware hardware, collective::read_host_hardware());
  const std::chrono::seconds timeout(arguments.timeout_s);
  YARD_ASSIGN(auto group,
              collective::connect({.rank = arguments.as_rank,
                                   .world_size = arguments.rank_count * arguments.host_count,
                                   .master_address = master.host,
                                   .master_port = master.port,
                                   .run_id = "yard check collective",
                                   .connect_timeout = timeout,
                                   .operation_timeout = timeout},
                                  stop));
  const std::string& name = arguments.name.empty() ? hardware.name : arguments.name;
  const auto begin = std::chrono::steady_clock::now();
  CheckReport report;
  std::array<std::byte, 1> goes_on{};
  do {
    YARD_ASSIGN(report,
                collective::check_collectives(
                    *group, name, {.size_bytes = size_bytes, .slow_share = arguments.slow_share}));
    const auto passed = std::chrono::steady_clock::now() - begin;
    goes_on[0] = std::byte{passed < std::chrono::seconds(arguments.seconds)};
    YARD_TRY(group->broadcast(goes_on, 0)->wait());
  } while (goes_on[0] != std::byte{0});
  if (arguments.as_rank != 0) return Ok{};
  if (arguments.as_json)
    fmt::print("{}\n", to_json(report).dump(2));
  else
    print_report(report);
  return Ok{};
}

Result<Subprocess> start_rank(const CheckArguments& arguments, const Address& master, int rank,
                              const Context& context) {
  SubprocessOptions options;
  options.argv = {context.bin_dir + "/yard",
                  "check",
                  "collective",
                  "--ranks",
                  std::to_string(arguments.rank_count),
                  "--hosts",
                  std::to_string(arguments.host_count),
                  "--master",
                  fmt::format("{}:{}", master.host, master.port),
                  "--size",
                  arguments.size,
                  "--slow-share",
                  fmt::format("{}", arguments.slow_share),
                  "--timeout",
                  std::to_string(arguments.timeout_s),
                  "--seconds",
                  std::to_string(arguments.seconds),
                  "--as-rank",
                  std::to_string(rank)};
  if (arguments.as_json) options.argv.emplace_back("--json");
  if (!arguments.name.empty()) options.argv.insert(options.argv.end(), {"--name", arguments.name});
  options.env = context.env;
  options.kill_with_parent = true;
  return Subprocess::spawn(options);
}

Status check_collective(CheckArguments arguments, const Context& context) {
  YARD_ASSIGN(const uint64_t size_bytes, parse_size_bytes(arguments.size));
  if (size_bytes < 1024 || size_bytes > (uint64_t{1} << 30))
    return Error{Code::kInvalidArgument,
                 fmt::format("--size {}: between 1KiB and 1GiB is wanted", arguments.size)};
  if (arguments.rank_count == 0)
    arguments.rank_count = std::max(2, static_cast<int>(std::thread::hardware_concurrency()) / 2);
  if (arguments.host_index >= arguments.host_count)
    return Error{Code::kInvalidArgument,
                 fmt::format("--host-index {} of {} hosts: they count from 0", arguments.host_index,
                             arguments.host_count)};
  Address master;
  if (!arguments.master.empty()) {
    YARD_ASSIGN(master, parse_address(arguments.master));
  } else if (arguments.host_count > 1) {
    return Error{Code::kInvalidArgument,
                 "--hosts: give --master HOST:PORT, the same on all, where host 0 can be reached"};
  } else {
    YARD_ASSIGN(master.port, collective::free_loopback_port());
  }
  if (arguments.as_rank >= 0) return run_rank(arguments, master, size_bytes, context.stop);
  std::vector<Subprocess> ranks;
  for (int i = 0; i < arguments.rank_count; ++i) {
    const int rank = arguments.host_index * arguments.rank_count + i;
    YARD_ASSIGN(Subprocess child, start_rank(arguments, master, rank, context));
    ranks.push_back(std::move(child));
  }
  // Each says itself what is wrong, and gives up in time.
  int failed_count = 0;
  for (Subprocess& rank : ranks) {
    YARD_ASSIGN(const ExitStatus status, rank.wait(std::chrono::hours(1)));
    if (!status.ok()) ++failed_count;
  }
  if (failed_count == 0) return Ok{};
  return Error{Code::kUnavailable,
               fmt::format("{} of {} ranks failed", failed_count, ranks.size())};
}

void add_check(CLI::App& app, Context& context) {
  auto* check = app.add_subcommand("check", "is this host, or its network, fit for a job?");
  check->require_subcommand(1);
  auto* sub = check->add_subcommand(
      "collective",
      "right answers of all operations, latency and bandwidth of every pair of ranks");
  auto arguments = std::make_shared<CheckArguments>();
  sub->add_option("--ranks", arguments->rank_count, "of this host (default: half its CPUs)")
      ->check(CLI::Range(1, 4096));
  sub->add_option("--hosts", arguments->host_count, "run it on each, with --host-index")
      ->check(CLI::Range(1, 4096));
  sub->add_option("--host-index", arguments->host_index, "of this host, from 0")
      ->check(CLI::NonNegativeNumber);
  sub->add_option("--master", arguments->master, "HOST:PORT of host 0, for several hosts");
  sub->add_option("--size", arguments->size, "of the messages that show the bandwidth")
      ->capture_default_str();
  sub->add_option("--slow-share", arguments->slow_share,
                  "links below this share of the median are named")
      ->check(CLI::Range(0.01, 1.0))
      ->capture_default_str();
  sub->add_option("--timeout", arguments->timeout_s, "seconds, of meeting and of an operation")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  sub->add_option("--seconds", arguments->seconds, "go on for so long; the last figures are shown")
      ->check(CLI::Range(0, 86400));
  sub->add_option("--name", arguments->name, "of this host in the report (default: its own)");
  sub->add_flag("--json", arguments->as_json);
  sub->add_option("--as-rank", arguments->as_rank, "")->group("");
  sub->callback([arguments, &context] {
    context.action = [arguments, &context] { return check_collective(*arguments, context); };
  });
}

// ---- flight

Json to_json(const collective::FlightLog& log) {
  Json json = {{"rank", log.rank},
               {"world_size", log.world_size},
               {"pid", log.pid},
               {"generation", log.generation},
               {"waited_rank", log.waited_rank},
               {"operations", Json::array()}};
  for (const auto& record : log.records)
    json["operations"].push_back({{"call", record.call},
                                  {"issued_unix_us", record.issued_unix_us},
                                  {"started_after_us", record.started_after_us},
                                  {"ended_after_us", record.ended_after_us},
                                  {"waited_rank", record.waited_rank},
                                  {"error", record.error}});
  return json;
}

void print_log(const collective::FlightLog& log, size_t last_count) {
  fmt::print("\nrank {} of {}, pid {}, attempt {}\n", log.rank, log.world_size, log.pid,
             log.generation);
  const size_t begin = log.records.size() - std::min(last_count, log.records.size());
  for (size_t i = begin; i < log.records.size(); ++i) {
    const auto& record = log.records[i];
    std::string state = "not begun";
    if (record.ended_after_us >= 0)
      state = fmt::format("took {} us, of these {} queued", record.ended_after_us,
                          record.started_after_us);
    else if (record.started_after_us >= 0)
      state = "runs";
    if (record.waited_rank >= 0) state += fmt::format(", waited for rank {}", record.waited_rank);
    if (!record.error.empty()) state += ": " + record.error;
    fmt::print("  {:<48} {}\n", record.call, state);
  }
}

Status show_flight(const std::string& job, int last_count, bool as_json, const Context& context) {
  std::string dir = job;
  if (job.find('/') == std::string::npos) {
    YARD_ASSIGN(engine::JobControl control, open_control(context));
    YARD_ASSIGN(const jobdb::JobRow row, control.find(job));
    dir = row.dir;
  }
  YARD_ASSIGN(const auto logs, collective::read_flights(dir));
  if (as_json) {
    Json all = Json::array();
    for (const auto& log : logs) all.push_back(to_json(log));
    fmt::print("{}\n", all.dump(2));
    return Ok{};
  }
  fmt::print("{}", collective::diagnose(logs));
  for (const auto& log : logs) print_log(log, static_cast<size_t>(last_count));
  return Ok{};
}

void add_flight(CLI::App& app, Context& context) {
  auto* sub = app.add_subcommand(
      "flight", "the last collective operations of a job's ranks, and who waits for whom");
  auto job = std::make_shared<std::string>();
  auto last_count = std::make_shared<int>(8);
  auto as_json = std::make_shared<bool>(false);
  sub->add_option("job", *job, "name, or a job's folder")->required();
  sub->add_option("--last", *last_count, "operations of each rank")
      ->check(CLI::Range(0, 512))
      ->capture_default_str();
  sub->add_flag("--json", *as_json, "all of them");
  sub->callback([=, &context] {
    context.action = [=, &context] { return show_flight(*job, *last_count, *as_json, context); };
  });
}

}  // namespace

void add_collective_commands(CLI::App& app, Context& context) {
  add_topology(app, context);
  add_check(app, context);
  add_flight(app, context);
}

}  // namespace yard::app
