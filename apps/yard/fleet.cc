// yard top, cost and chaos: what `yard serve` says of its hosts and of what jobs cost, and faults
// on purpose.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/clock.h"
#include "base/units.h"
#include "commands.h"
#include "platform_access.h"

namespace yard::app {
namespace {

constexpr std::chrono::seconds kTopPeriod{1};
constexpr const char* kUserHelp =
    "whose key of this YARD_HOME (default: the environment's, else the first user's)";

// `yard serve` answers now or not at all: a fault must not be made twice.
Result<std::unique_ptr<aws::AwsClient>> connect(const Context& context, const std::string& user) {
  YARD_ASSIGN(PlatformAccess access, find_platform_access(context, user));
  return std::make_unique<aws::AwsClient>(std::move(access.api), Clock::real(),
                                          std::chrono::milliseconds(0));
}

std::string text(const Json& object, const char* name) {
  return object.value(name, std::string());
}

std::string duration(double seconds) {
  return format_duration(std::chrono::seconds(static_cast<int64_t>(std::max(0.0, seconds))));
}

std::string age(double since_t) {
  return duration(to_unix_seconds(Clock::real().wall_now()) - since_t);
}

std::string bytes(const Json& object, const char* name) {
  return format_size_bytes(static_cast<uint64_t>(object.value(name, 0.0)));
}

std::string host_line(const Json& host) {
  std::string gpu = "-";
  if (const auto found = host.find("Gpu"); found != host.end())
    gpu = fmt::format("{:.0f}% {:.0f}%", found->value("BusyPercent", 0.0),
                      found->value("MemoryPercent", 0.0));
  return fmt::format("  {:<32.32} {:>6} {:>8.0f} {:>10} {:>6.1f} {:>11} {:>10}/s {:>10}/s\n",
                     text(host, "Host"), host.value("ProcessCount", 0),
                     host.value("CpuPercent", 0.0), bytes(host, "MemoryBytes"),
                     host.value("MemoryPercent", 0.0), gpu, bytes(host, "ReceivedBytesPerSecond"),
                     bytes(host, "WrittenBytesPerSecond"));
}

std::string rank_line(const Json& rank) {
  return fmt::format("    {:<30} {:>6} {:>8.0f} {:>10}\n",
                     fmt::format("rank {}", rank.value("Rank", 0)), "",
                     rank.value("CpuPercent", 0.0), bytes(rank, "MemoryBytes"));
}

std::string job_lines(const Json& job, const Json& hosts) {
  std::string lines =
      fmt::format("{:<34.34} {} ({}), {} old, {} host{}, {:.4f}\n", text(job, "JobName"),
                  text(job, "Status"), text(job, "SecondaryStatus"),
                  age(job.value("CreationTime", 0.0)), job.value("Hosts", Json::array()).size(),
                  job["Hosts"].size() == 1 ? "" : "s", job.value("Cost", 0.0));
  for (const Json& host : hosts) {
    if (text(host, "JobName") != text(job, "JobName") || text(host, "Kind") != text(job, "Kind"))
      continue;
    lines += host_line(host);
    for (const Json& rank : host.value("Ranks", Json::array())) lines += rank_line(rank);
  }
  return lines;
}

// The first lines, as many as the terminal has.
std::string cut_to_terminal(const std::string& lines) {
  winsize size = {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < 2) return lines;
  size_t end = 0;
  for (int row = 0; row + 1 < size.ws_row; ++row) {
    end = lines.find('\n', end);
    if (end == lines.npos) return lines;
    ++end;
  }
  return lines.substr(0, end);
}

std::string fleet_text(const Json& fleet) {
  const Json machine = fleet.value("Machine", Json::object());
  const Json jobs = fleet.value("Jobs", Json::array());
  std::string lines =
      fmt::format("{} job{}, load {:.2f} on {} cores\n\n", jobs.size(), jobs.size() == 1 ? "" : "s",
                  machine.value("LoadAverage", 0.0), machine.value("CpuCount", 0));
  lines += fmt::format("{:<34} {:>6} {:>8} {:>10} {:>6} {:>11} {:>12} {:>12}\n", "JOB, HOST, RANK",
                       "PROCS", "CPU %", "MEMORY", "MEM %", "GPU LOAD/MEM", "NET IN", "DISK OUT");
  const Json hosts = fleet.value("Hosts", Json::array());
  for (const Json& job : jobs) lines += job_lines(job, hosts);
  return lines;
}

struct TopArguments {
  bool once = false;
  bool as_json = false;
  std::string user;
};

Status top(const TopArguments& arguments, const Context& context) {
  YARD_ASSIGN(const auto client, connect(context, arguments.user));
  const bool is_live = context.stdout_is_terminal && !arguments.as_json && !arguments.once;
  do {
    YARD_ASSIGN(const Json fleet, client->call(aws::kYard, "DescribeFleet", Json::object()));
    if (arguments.as_json)
      fmt::print("{}\n", fleet.dump(arguments.once ? 2 : -1));
    else if (is_live)
      fmt::print("\x1b[H\x1b[2J{}", cut_to_terminal(fleet_text(fleet)));
    else
      fmt::print("{}", fleet_text(fleet));
    std::fflush(stdout);
  } while (!arguments.once && !context.stop.wait_for(kTopPeriod));
  return Ok{};
}

void add_top(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<TopArguments>();
  CLI::App* command =
      app.add_subcommand("top", "hosts, jobs and ranks of 'yard serve', and what they use, live");
  command->add_flag("--once", arguments->once, "one look, not one a second");
  command->add_flag("--json", arguments->as_json, "one object a look");
  command->add_option("--user", arguments->user, kUserHelp);
  command->callback([arguments, &context] {
    context.action = [arguments, &context] { return top(*arguments, context); };
  });
}

struct CostArguments {
  std::string job;
  bool is_processing = false;
  bool forecast = false;
  bool as_json = false;
  std::string user;
};

struct AccountPart {
  const char* key;
  std::string_view name;
  bool has_hosts = true;  // they are held for the job meanwhile
  bool is_billed = true;
};
constexpr AccountPart kAccountParts[] = {{"queued_s", "waiting", false, false},
                                         {"provisioning_s", "provisioning", true, false},
                                         {"download_s", "download"},
                                         {"training_s", "training"},
                                         {"upload_s", "upload"},
                                         {"stopping_s", "stopping"},
                                         {"restarting_s", "restarts", true, false},
                                         {"lost_s", "lost work", true, false}};

// Seconds, their share, and what the hosts of the job are worth for so long.
void print_account(const Json& account, double cost_per_hour) {
  double total_s = 0;
  for (const AccountPart& part : kAccountParts) total_s += account.value(part.key, 0.0);
  for (const AccountPart& part : kAccountParts) {
    const double seconds = account.value(part.key, 0.0);
    if (seconds <= 0) continue;
    fmt::print("  {:<16}{:>12.1f} s {:>6.1f} % {:>12}{}\n", part.name, seconds,
               100 * seconds / total_s,
               part.has_hosts ? fmt::format("{:.4f}", seconds / 3600 * cost_per_hour) : "-",
               part.is_billed || !part.has_hosts ? "" : " not billed");
  }
}

void print_forecast(const Json& cost) {
  if (const auto forecast = cost.find("Forecast"); forecast != cost.end()) {
    fmt::print(
        "forecast: {:g} of {:g} done, {:.3g} a second: {} left, then {:.0f} s billable and "
        "{:.4f}\n",
        forecast->value("Done", 0.0), forecast->value("Total", 0.0),
        forecast->value("PerSecond", 0.0), duration(forecast->value("SecondsLeft", 0.0)),
        forecast->value("BillableSeconds", 0.0), forecast->value("Cost", 0.0));
    return;
  }
  const Json errors = cost.value("ForecastErrors", Json::array());
  for (const Json& error : errors)
    fmt::print("forecast at {:.0f} %: {:.1f} s, it took {:.1f} s: {:+.1f} %\n",
               100 * error.value("AtShare", 0.0), error.value("ForecastSeconds", 0.0),
               error.value("ActualSeconds", 0.0), error.value("ErrorPercent", 0.0));
  if (errors.empty())
    fmt::print(
        "no forecast: its log tells no progress yet (\"step 3/100\", a bar of tqdm, \"epoch 1 of "
        "5\")\n");
}

Status cost(const CostArguments& arguments, const Context& context) {
  YARD_ASSIGN(const auto client, connect(context, arguments.user));
  const Json input = {{"JobName", arguments.job},
                      {"Kind", arguments.is_processing ? "processing" : "training"},
                      {"Forecast", arguments.forecast}};
  YARD_ASSIGN(const Json cost, client->call(aws::kYard, "DescribeJobCost", input));
  if (arguments.as_json) {
    fmt::print("{}\n", cost.dump(2));
    return Ok{};
  }
  const size_t hosts = cost.value("Hosts", Json::array()).size();
  fmt::print("{}: {}, {} host{}\n", arguments.job, text(cost, "Status"), hosts,
             hosts == 1 ? "" : "s");
  print_account(cost.value("Account", Json::object()), cost.value("CostPerHour", 0.0));
  fmt::print("billable {:.1f} s a host", cost.value("BillableSeconds", 0.0));
  if (const double warm_s = cost.value("WarmPoolSeconds", 0.0); warm_s > 0)
    fmt::print(", warm pool {:.1f} s", warm_s);
  fmt::print("; cost {:.4f} ({:.4f} an hour)\n", cost.value("Cost", 0.0),
             cost.value("CostPerHour", 0.0));
  if (arguments.forecast) print_forecast(cost);
  return Ok{};
}

void add_cost(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<CostArguments>();
  CLI::App* command = app.add_subcommand("cost", "seconds and money of a job of 'yard serve'");
  command->add_option("job", arguments->job)->required();
  command->add_flag("--processing", arguments->is_processing, "a processing job");
  command->add_flag("--forecast", arguments->forecast,
                    "what it will have cost, by the progress in its log; once it has ended: how "
                    "wrong that was");
  command->add_flag("--json", arguments->as_json);
  command->add_option("--user", arguments->user, kUserHelp);
  command->callback([arguments, &context] {
    context.action = [arguments, &context] { return cost(*arguments, context); };
  });
}

struct ChaosArguments {
  std::string fault;
  std::string target;  // JOB or JOB/algo-1
  std::optional<int> rank;
  std::string bytes;
  std::optional<int> seconds;
  bool is_processing = false;
  std::string user;
};

Result<Json> fault_of(const ChaosArguments& arguments) {
  Json input = {{"Fault", arguments.fault}};
  if (const size_t slash = arguments.target.find('/'); !arguments.target.empty()) {
    input["JobName"] = arguments.target.substr(0, slash);
    if (slash != std::string::npos) input["Host"] = arguments.target.substr(slash + 1);
    input["Kind"] = arguments.is_processing ? "processing" : "training";
  }
  if (arguments.rank) input["Rank"] = *arguments.rank;
  if (arguments.seconds) input["Seconds"] = *arguments.seconds;
  if (arguments.bytes.empty()) return input;
  YARD_ASSIGN(input["Bytes"], parse_size_bytes(arguments.bytes));
  return input;
}

Status chaos(const ChaosArguments& arguments, const Context& context) {
  YARD_ASSIGN(const Json input, fault_of(arguments));
  YARD_ASSIGN(const auto client, connect(context, arguments.user));
  YARD_ASSIGN(const Json answer, client->call(aws::kYard, "InjectFault", input));
  fmt::print("{}\n", text(answer, "Done"));
  return Ok{};
}

void add_chaos(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<ChaosArguments>();
  CLI::App* command = app.add_subcommand(
      "chaos", "break something on purpose, to see that jobs survive it (role admin)");
  command
      ->add_option("fault", arguments->fault,
                   "kill-rank, freeze-rank, thaw-rank, kill-supervisor, fail-host, fail-slice, "
                   "mend-slices, fill-disk, free-disk, break-store, mend-store or kill-daemon")
      ->required();
  command->add_option("target", arguments->target, "JOB or JOB/algo-1");
  command->add_option("--rank", arguments->rank, "of the job (default 0)");
  command->add_option("--bytes", arguments->bytes, "of fill-disk: 10GiB");
  command->add_option("--seconds", arguments->seconds, "of break-store (default 30)");
  command->add_flag("--processing", arguments->is_processing, "a processing job");
  command->add_option("--user", arguments->user, kUserHelp);
  command->footer(
      "Examples:\n  yard chaos kill-rank my-job --rank 1\n  yard chaos fail-host my-job/algo-2");
  command->callback([arguments, &context] {
    context.action = [arguments, &context] { return chaos(*arguments, context); };
  });
}

}  // namespace

void add_fleet_commands(CLI::App& app, Context& context) {
  add_top(app, context);
  add_cost(app, context);
  add_chaos(app, context);
}

}  // namespace yard::app
