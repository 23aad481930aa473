#include "observe/job_observer.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "base/file.h"
#include "jobs/host_plan.h"

namespace yard::observe {
namespace {

using metrics::MetricSample;
using metrics::Summary;

template <typename Usage>
struct UsageMetric {
  std::string_view name;  // CloudWatch's
  std::string_view prometheus;
  std::string_view unit;
  double Usage::*field;
};
// The first three are SageMaker's own.
constexpr std::array<UsageMetric<HostUsage>, 7> kUsageMetrics{{
    {"CPUUtilization", "cpu_percent", "Percent", &HostUsage::cpu_percent},
    {"MemoryUtilization", "memory_percent", "Percent", &HostUsage::memory_percent},
    {"DiskUtilization", "disk_percent", "Percent", &HostUsage::disk_percent},
    {"NetworkReceived", "network_received_bytes_per_second", "Bytes/Second",
     &HostUsage::received_bytes_per_second},
    {"NetworkSent", "network_sent_bytes_per_second", "Bytes/Second",
     &HostUsage::sent_bytes_per_second},
    {"DiskRead", "disk_read_bytes_per_second", "Bytes/Second", &HostUsage::read_bytes_per_second},
    {"DiskWritten", "disk_written_bytes_per_second", "Bytes/Second",
     &HostUsage::written_bytes_per_second},
}};

constexpr std::array<UsageMetric<GpuUsage>, 3> kGpuMetrics{{
    {"GPUUtilization", "gpu_busy_percent", "Percent", &GpuUsage::busy_percent},
    {"GPUMemoryUtilization", "gpu_memory_percent", "Percent", &GpuUsage::memory_percent},
    {"GPUPower", "gpu_power_watts", "None", &GpuUsage::power_watts},
}};

std::string key_of(const ObservedJob& job) {
  return fmt::format("{}/{}", job.is_training ? "training" : "processing", job.name);
}

// How far its logs were read. Another job of the same name has other logs.
std::string mark_prefix(const ObservedJob& job) {
  return fmt::format("log/{}/{}/", key_of(job), std::llround(job.created_t * 1000));
}

// Of some MiB each, see LogMetrics.
constexpr int kReadsMax = 1 << 20;  // any log
constexpr int kSettleReadsMax = 64;

// What tells where the host's supervisor is and what it may use; nothing before it has come up.
struct HostFacts {
  int supervisor_pid = 0;
  double memory_limit_bytes = 0;
  std::vector<int> gpus;
};

std::optional<HostFacts> read_facts(const std::string& dir) {
  const jobs::HostFolder folder{dir};
  const auto read = [](const std::string& path) -> Result<Json> {
    YARD_ASSIGN(const std::string text, read_file(path));
    return parse_json(text, path);
  };
  const auto status = read(folder.status());
  if (!status || !status->is_object()) return std::nullopt;
  const auto known = jobs::host_status_from_json(*status, folder.status());
  if (!known || known->supervisor_pid <= 0 || known->phase == jobs::HostPhase::kEnded)
    return std::nullopt;
  HostFacts facts{.supervisor_pid = known->supervisor_pid};
  if (const auto plan = read(folder.plan()); plan && plan->is_object()) {
    facts.memory_limit_bytes = plan->value("memory_limit_bytes", 0.0);
    if (const auto gpus = json_field_or(*plan, "gpus", std::vector<int>(), folder.plan()))
      facts.gpus = *gpus;
  }
  return facts;
}

// Prometheus wants these three escaped in a label.
std::string label(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return escaped;
}

}  // namespace

std::string_view metric_space(bool is_training) {
  return is_training ? "/aws/sagemaker/TrainingJobs" : "/aws/sagemaker/ProcessingJobs";
}

metrics::SeriesKey metric_key(const ObservedJob& job, const std::string& metric) {
  const char* dimension = job.is_training ? "TrainingJobName" : "ProcessingJobName";
  return {std::string(metric_space(job.is_training)), metric, {{dimension, job.name}}};
}

Result<std::vector<metrics::MetricDefinition>> metric_definitions(const Json& request) {
  const Json algorithm = request.value("AlgorithmSpecification", Json::object());
  std::vector<metrics::MetricDefinition> definitions;
  for (const Json& each : algorithm.value("MetricDefinitions", Json::array()))
    definitions.push_back({.name = each.value("Name", ""), .regex = each.value("Regex", "")});
  YARD_TRY(metrics::MetricScraper::create(definitions));
  return definitions;
}

Status JobObserver::observe(const std::vector<ObservedJob>& running) {
  Status first = Ok{};
  const auto keep = [&](Status status) {
    if (!status && first) first = std::move(status);
  };
  for (auto& [key, job] : jobs_) job.seen = false;
  for (const ObservedJob& observed : running) keep(take_up(observed));
  std::vector<MetricSample> samples;
  for (auto it = jobs_.begin(); it != jobs_.end();) {
    Job& job = it->second;
    if (job.seen) {
      keep(look_at(job, samples));
      ++it;
      continue;
    }
    keep(finish(job, kReadsMax));
    it = jobs_.erase(it);
  }
  if (!samples.empty()) keep(store_.put(samples));
  return first;
}

Status JobObserver::take_up(const ObservedJob& observed) {
  Job& job = jobs_[key_of(observed)];
  if (job.job.created_t != observed.created_t) job = {};
  job.seen = true;
  job.job = observed;
  for (const std::string& name : observed.hosts) {
    Host& host = job.hosts[name];
    if (host.log != nullptr || observed.definitions.empty()) continue;
    YARD_ASSIGN(auto scraper, metrics::MetricScraper::create(observed.definitions));
    const metrics::SeriesKey key = metric_key(observed, "");
    host.log = std::make_unique<metrics::LogMetrics>(
        metrics::LogMetricsOptions{.stream_path = fmt::format("{}/logs/{}.log", observed.dir, name),
                                   .mark = mark_prefix(observed) + name,
                                   .space = key.space,
                                   .dimensions = key.dimensions},
        std::move(scraper), store_);
  }
  return Ok{};
}

Status JobObserver::look_at(Job& job, std::vector<MetricSample>& samples) {
  const double t = to_unix_seconds(clock_.wall_now());
  for (auto& [name, host] : job.hosts) {
    if (host.log != nullptr) YARD_TRY(host.log->feed());
    host.last.reset();
    const std::string dir = fmt::format("{}/hosts/{}", job.job.dir, name);
    const auto facts = job.job.has_ended ? std::nullopt : read_facts(dir);
    if (!facts) continue;
    auto usage = host.meter.look(facts->supervisor_pid, dir, facts->memory_limit_bytes, clock_);
    if (!usage || !*usage) continue;  // it has just ended, or just begun
    host.last = **usage;
    host.last->gpu = gpus_.look(facts->gpus);
    const auto add = [&](std::string_view metric, std::string_view unit, double value) {
      samples.push_back({.key = {std::string(metric_space(job.job.is_training)),
                                 std::string(metric),
                                 {{"Host", fmt::format("{}/{}", job.job.name, name)}}},
                         .t = t,
                         .values = Summary::of(value),
                         .unit = std::string(unit)});
    };
    for (const auto& metric : kUsageMetrics)
      add(metric.name, metric.unit, (*host.last).*metric.field);
    if (!host.last->gpu) continue;
    for (const auto& metric : kGpuMetrics)
      add(metric.name, metric.unit, (*host.last->gpu).*metric.field);
  }
  return Ok{};
}

Status JobObserver::settle(const ObservedJob& ended) {
  YARD_TRY(take_up(ended));
  return finish(jobs_[key_of(ended)], kSettleReadsMax);
}

// The last lines of its logs.
Status JobObserver::finish(Job& job, int reads_max) {
  for (auto& [name, host] : job.hosts) {
    bool more = host.log != nullptr;
    for (int i = 0; more && i < reads_max; ++i) {
      YARD_ASSIGN(more, host.log->feed());
    }
  }
  return Ok{};
}

std::vector<LiveHost> JobObserver::live_hosts() const {
  std::vector<LiveHost> live;
  for (const auto& [key, job] : jobs_)
    for (const auto& [name, host] : job.hosts)
      if (host.last) live.push_back({job.job.is_training, job.job.name, name, *host.last});
  return live;
}

std::string JobObserver::prometheus_text() const {
  std::string text;
  for (const auto& metric : kUsageMetrics) {
    text += fmt::format("# TYPE yard_host_{} gauge\n", metric.prometheus);
    for (const auto& [key, job] : jobs_)
      for (const auto& [name, host] : job.hosts)
        if (host.last)
          text += fmt::format("yard_host_{}{{kind=\"{}\",job=\"{}\",host=\"{}\"}} {}\n",
                              metric.prometheus, job.job.is_training ? "training" : "processing",
                              label(job.job.name), label(name), (*host.last).*metric.field);
  }
  for (const auto& metric : kGpuMetrics) {
    std::string lines;
    for (const LiveHost& live : live_hosts())
      if (live.usage.gpu)
        lines += fmt::format("yard_host_{}{{kind=\"{}\",job=\"{}\",host=\"{}\"}} {}\n",
                             metric.prometheus, live.is_training ? "training" : "processing",
                             label(live.job), label(live.host), (*live.usage.gpu).*metric.field);
    if (!lines.empty())
      text += fmt::format("# TYPE yard_host_{} gauge\n{}", metric.prometheus, lines);
  }
  text += "# TYPE yard_job_metric gauge\n";
  for (const auto& [key, job] : jobs_)
    for (const auto& [name, host] : job.hosts) {
      if (host.log == nullptr) continue;
      for (const auto& [metric, sample] : host.log->last_values())
        text += fmt::format("yard_job_metric{{job=\"{}\",host=\"{}\",name=\"{}\"}} {}\n",
                            label(job.job.name), label(name), label(metric), sample.values.mean());
    }
  return text;
}

}  // namespace yard::observe
