#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "api/job_streams_internal.h"

namespace yard::api {
namespace {

constexpr std::string_view kTrainingGroup = "/aws/sagemaker/TrainingJobs";
constexpr std::string_view kProcessingGroup = "/aws/sagemaker/ProcessingJobs";

void keep_prefix(std::vector<JobStream>& streams, const std::string& prefix) {
  std::erase_if(streams, [&](const JobStream& stream) { return !stream.name.starts_with(prefix); });
}

}  // namespace

std::string_view log_group_of(jobs::JobKind kind) {
  return kind == jobs::JobKind::kTraining ? kTrainingGroup : kProcessingGroup;
}

std::optional<jobs::JobKind> kind_of_log_group(std::string_view group) {
  for (const auto kind : {jobs::JobKind::kTraining, jobs::JobKind::kProcessing})
    if (log_group_of(kind) == group) return kind;
  return std::nullopt;
}

std::vector<JobStream> streams_of(const jobs::JobView& view) {
  std::vector<JobStream> streams;
  for (const std::string& host : view.hosts)
    streams.push_back({fmt::format("{}/{}-{:.0f}", view.job.name, host, std::floor(view.created_t)),
                       fmt::format("{}/logs/{}.log", view.dir, host), view.created_t});
  std::ranges::sort(streams, {}, &JobStream::name);
  return streams;
}

Result<JobStreamPage> list_streams(JobDesk& desk, jobs::JobKind kind, const std::string& prefix,
                                   bool latest_first, const std::string& page_token, int limit) {
  JobStreamPage found;
  if (const size_t slash = prefix.find('/'); slash != prefix.npos) {
    const auto view = desk.find(kind, prefix.substr(0, slash));
    if (!view && view.error().code == Code::kNotFound) return found;
    if (!view) return view.error();
    found.streams = streams_of(*view);
    keep_prefix(found.streams, prefix);
    return found;
  }
  engine::JobFilter filter;
  filter.kind = kind;
  filter.name_contains = prefix;
  filter.sort = latest_first ? engine::JobSort::kCreated : engine::JobSort::kName;
  filter.ascending = !latest_first;
  filter.page_token = page_token;
  filter.limit = limit;
  YARD_ASSIGN(const engine::JobPage page, desk.list(filter));
  for (const jobs::JobView& view : page.jobs)
    for (JobStream& stream : streams_of(view)) found.streams.push_back(std::move(stream));
  keep_prefix(found.streams, prefix);
  found.next_token = page.next_token;
  return found;
}

Result<JobStream> find_stream(JobDesk& desk, jobs::JobKind kind, const std::string& name) {
  YARD_ASSIGN(const jobs::JobView view, desk.find(kind, name.substr(0, name.find('/'))));
  for (JobStream& stream : streams_of(view))
    if (stream.name == name) return std::move(stream);
  return Error{Code::kNotFound, name};
}

}  // namespace yard::api
