#include "api/yard_service.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <thread>

#include "observe/progress_forecast.h"

namespace yard::api {
namespace {

using engine::JobView;
using jobs::JobKind;

constexpr int kJobsPageSize = 1000;

std::string text(const Json& object, const char* name) {
  return object.value(name, std::string());
}

JobKind kind_of(const Json& input) {
  return text(input, "Kind") == "processing" ? JobKind::kProcessing : JobKind::kTraining;
}

AwsError no_job(JobKind kind, const std::string& name) {
  return validation_error(fmt::format("Could not find {} job \"{}\". Requested resource not found.",
                                      to_string(kind), name));
}

Json document_of(const observe::GpuUsage& gpu) {
  return {{"BusyPercent", gpu.busy_percent},
          {"MemoryPercent", gpu.memory_percent},
          {"MemoryBytes", gpu.memory_bytes},
          {"PowerWatts", gpu.power_watts}};
}

Json document_of(const observe::LiveHost& live) {
  const observe::HostUsage& usage = live.usage;
  Json ranks = Json::array();
  for (const observe::RankUsage& rank : usage.ranks)
    ranks.push_back({{"Rank", rank.rank},
                     {"CpuPercent", rank.cpu_percent},
                     {"MemoryBytes", rank.memory_bytes}});
  Json document = {{"JobName", live.job},
                   {"Kind", live.is_training ? "training" : "processing"},
                   {"Host", live.host},
                   {"CpuPercent", usage.cpu_percent},
                   {"MemoryBytes", usage.memory_bytes},
                   {"MemoryPercent", usage.memory_percent},
                   {"DiskPercent", usage.disk_percent},
                   {"ReceivedBytesPerSecond", usage.received_bytes_per_second},
                   {"SentBytesPerSecond", usage.sent_bytes_per_second},
                   {"ReadBytesPerSecond", usage.read_bytes_per_second},
                   {"WrittenBytesPerSecond", usage.written_bytes_per_second},
                   {"ProcessCount", usage.process_count},
                   {"Ranks", std::move(ranks)}};
  if (usage.gpu) document["Gpu"] = document_of(*usage.gpu);
  return document;
}

Json document_of(const JobView& view) {
  return {{"JobName", view.job.name},
          {"Kind", std::string(to_string(view.job.kind))},
          {"User", view.job.user},
          {"Status", view.status},
          {"SecondaryStatus", view.secondary_status},
          {"CreationTime", view.created_t},
          {"Hosts", view.hosts},
          {"Attempt", view.attempt},
          {"BillableSeconds", view.billable_s},
          {"Cost", view.cost}};
}

Json machine_document() {
  double load = 0;
  Json machine = {{"CpuCount", std::thread::hardware_concurrency()}};
  if (::getloadavg(&load, 1) == 1) machine["LoadAverage"] = load;
  return machine;
}

// Of all hosts, at the prices that they had when they were placed.
double cost_per_second(const JobView& view) {
  const double seconds = view.billable_s + view.warm_pool_billable_s;
  return seconds > 0 ? view.cost / seconds : 0;
}

class YardService final : public Service {
 public:
  YardService(JobDesk& desk, FaultInjection& faults,
              std::function<std::vector<observe::LiveHost>()> live_hosts, const Clock& clock)
      : desk_(desk), faults_(faults), live_hosts_(std::move(live_hosts)), clock_(clock) {}

  const Model& model() const override { return model_; }
  Role needed_role(std::string_view operation) const override {
    return operation == "InjectFault" ? Role::kAdmin : Role::kRead;
  }
  std::string resource_of(const Call& call) const override {
    const std::string fault = text(call.input, "Fault");
    return fault.empty() ? text(call.input, "JobName")
                         : fmt::format("{} {}", fault, text(call.input, "JobName"));
  }
  AwsResult<Json> call(const Call& call) override {
    if (call.operation == "DescribeFleet") return describe_fleet();
    if (call.operation == "DescribeJobCost") return describe_cost(call.input);
    YARD_CHECK(call.operation == "InjectFault");
    return inject(call.input);
  }

 private:
  AwsResult<Json> describe_fleet() {
    Json found = Json::array();
    for (const JobKind kind : {JobKind::kTraining, JobKind::kProcessing})
      for (const char* status : {"InProgress", "Stopping"}) {
        engine::JobFilter filter{.kind = kind, .status = status, .limit = kJobsPageSize};
        do {
          YARD_ASSIGN(const engine::JobPage page, desk_.list(filter));
          for (const JobView& view : page.jobs) found.push_back(document_of(view));
          filter.page_token = page.next_token;
        } while (!filter.page_token.empty());
      }
    Json hosts = Json::array();
    for (const observe::LiveHost& live : live_hosts_()) hosts.push_back(document_of(live));
    return Json{
        {"Machine", machine_document()}, {"Jobs", std::move(found)}, {"Hosts", std::move(hosts)}};
  }

  AwsResult<Json> describe_cost(const Json& input) {
    const JobKind kind = kind_of(input);
    const std::string name = text(input, "JobName");
    auto found = desk_.find(kind, name);
    if (!found && found.error().code == Code::kNotFound) return no_job(kind, name);
    if (!found) return std::move(found).error();
    const JobView& view = *found;
    Json answer = document_of(view);
    answer["WarmPoolSeconds"] = view.warm_pool_billable_s;
    answer["CostPerHour"] = cost_per_second(view) * 3600;
    answer["Account"] = view.account;
    if (!input.value("Forecast", false)) return answer;
    YARD_TRY(add_forecast(view, answer));
    return answer;
  }

  // The first host's log speaks for all: ranks of one job go in step.
  AwsStatus add_forecast(const JobView& view, Json& answer) {
    if (view.hosts.empty()) return Ok{};
    auto marks = observe::progress_of_log(
        logs::LogReader(fmt::format("{}/logs/{}.log", view.dir, view.hosts.front())));
    if (!marks && marks.error().code == Code::kNotFound) return Ok{};  // nothing was printed yet
    if (!marks) return std::move(marks).error();
    const bool runs = view.status == "InProgress";
    if (runs) {
      if (const auto forecast = observe::forecast_of(*marks))
        answer["Forecast"] = forecast_document(view, *forecast);
      return Ok{};
    }
    if (marks->empty() || view.status != "Completed") return Ok{};
    answer["ForecastErrors"] = Json::array();
    for (const auto& error : observe::forecast_errors(*marks, marks->back().t))
      answer["ForecastErrors"].push_back({{"AtShare", error.at_share},
                                          {"ForecastSeconds", error.forecast_s},
                                          {"ActualSeconds", error.actual_s},
                                          {"ErrorPercent", error.error_percent}});
    return Ok{};
  }

  Json forecast_document(const JobView& view, const observe::ProgressForecast& forecast) const {
    const double left_s = std::max(0.0, forecast.end_t - to_unix_seconds(clock_.wall_now()));
    return {{"Done", forecast.done},
            {"Total", forecast.total},
            {"PerSecond", forecast.per_second},
            {"SecondsLeft", left_s},
            {"EndTime", forecast.end_t},
            {"BillableSeconds", view.billable_s + left_s},
            {"Cost", view.cost + cost_per_second(view) * left_s}};
  }

  AwsResult<Json> inject(const Json& input) {
    Fault fault{.name = text(input, "Fault"),
                .kind = kind_of(input),
                .job = text(input, "JobName"),
                .host = text(input, "Host"),
                .rank = {},
                .bytes = input.value("Bytes", uint64_t{0}),
                .seconds = input.value("Seconds", 0)};
    if (input.contains("Rank")) fault.rank = input["Rank"].get<int>();
    auto done = faults_.inject(fault);
    if (done) return Json{{"Done", *std::move(done)}};
    if (done.error().code == Code::kNotFound)
      return AwsError("ResourceNotFound", std::move(done).error().message);
    return std::move(done).error();
  }

  JobDesk& desk_;
  FaultInjection& faults_;
  const std::function<std::vector<observe::LiveHost>()> live_hosts_;
  const Clock& clock_;
  const Model& model_ = Model::built_in("trainyard");
};

}  // namespace

std::unique_ptr<Service> make_yard_service(
    JobDesk& desk, FaultInjection& faults,
    std::function<std::vector<observe::LiveHost>()> live_hosts, const Clock& clock) {
  return std::make_unique<YardService>(desk, faults, std::move(live_hosts), clock);
}

}  // namespace yard::api
