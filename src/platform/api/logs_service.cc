#include "api/logs_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "api/job_streams_internal.h"
#include "api/log_filter.h"
#include "api/log_merge_internal.h"
#include "logs/log_stream.h"

namespace yard::api {
namespace {

constexpr int kStreamsPage = 50;
constexpr int kEventsPage = 10'000;
constexpr size_t kPageBytesMax = 1 << 20;  // CloudWatch's

std::string text(const Json& object, const char* name) {
  return object.value(name, std::string());
}

AwsError no_group() {
  return AwsError("ResourceNotFoundException", "The specified log group does not exist.");
}

AwsError no_stream() {
  return AwsError("ResourceNotFoundException", "The specified log stream does not exist.");
}

AwsError invalid(std::string message) {
  return AwsError("InvalidParameterException", std::move(message));
}

// The group by its name, or by an identifier that is the name or an ARN with it.
AwsResult<jobs::JobKind> group_of(const Json& input) {
  std::string name = text(input, "logGroupName");
  if (name.empty()) name = text(input, "logGroupIdentifier");
  if (name.empty()) return invalid("one of logGroupName and logGroupIdentifier is needed");
  if (name.starts_with("arn:")) name = name.substr(name.rfind(':') + 1);
  const auto kind = kind_of_log_group(name);
  if (!kind) return no_group();
  return *kind;
}

int64_t ms_of(double unix_s) {
  return static_cast<int64_t>(std::floor(unix_s * 1000));
}

// "f/00000000000000001234": where to go on, and which way.
struct EventToken {
  bool is_backward = false;
  uint64_t offset = 0;
};

std::string token_text(char way, uint64_t offset) {
  return fmt::format("{}/{:020}", way, offset);
}

AwsResult<EventToken> parse_token(std::string_view token) {
  const bool has_way = token.starts_with("f/") || token.starts_with("b/");
  EventToken parsed{.is_backward = token.starts_with('b')};
  const std::string_view digits = has_way ? token.substr(2) : "";
  const auto [end, failed] =
      std::from_chars(digits.data(), digits.data() + digits.size(), parsed.offset);
  if (!has_way || failed != std::errc{} || end != digits.data() + digits.size())
    return invalid("The specified nextToken is invalid.");
  return parsed;
}

class LogsService final : public Service {
 public:
  LogsService(JobDesk& desk, Arns arns) : desk_(desk), arns_(std::move(arns)) {}

  const Model& model() const override { return model_; }
  Role needed_role(std::string_view operation) const override { return role_by_name(operation); }

  AwsResult<Json> call(const Call& call) override {
    if (call.operation == "DescribeLogGroups") return describe_groups(call.input);
    if (call.operation == "DescribeLogStreams") return describe_streams(call.input);
    if (call.operation == "GetLogEvents") return get_events(call.input);
    YARD_CHECK(call.operation == "FilterLogEvents");
    return filter_events(call.input);
  }

 private:
  AwsResult<Json> describe_groups(const Json& input) const {
    const std::string prefix = text(input, "logGroupNamePrefix");
    const std::string part = text(input, "logGroupNamePattern");
    Json groups = Json::array();
    for (const auto kind : {jobs::JobKind::kProcessing, jobs::JobKind::kTraining}) {
      const std::string_view name = log_group_of(kind);
      if (!name.starts_with(prefix) || name.find(part) == name.npos) continue;
      groups.push_back({{"logGroupName", name},
                        {"arn", arns_.of_log_group(name) + ":*"},
                        {"logGroupArn", arns_.of_log_group(name)},
                        {"logGroupClass", "STANDARD"},
                        {"creationTime", 0},
                        {"metricFilterCount", 0},
                        {"storedBytes", 0}});
    }
    return Json{{"logGroups", std::move(groups)}};
  }

  Json stream_document(jobs::JobKind kind, const JobStream& stream) const {
    Json document = {{"logStreamName", stream.name},
                     {"creationTime", ms_of(stream.created_t)},
                     {"arn", fmt::format("{}:log-stream:{}", arns_.of_log_group(log_group_of(kind)),
                                         stream.name)},
                     {"storedBytes", 0}};
    const auto summary = logs::LogReader(stream.path).summary();
    if (!summary) return document;  // nothing was printed yet
    document["storedBytes"] = summary->end_offset - summary->begin_offset;
    if (summary->first_ms) document["firstEventTimestamp"] = *summary->first_ms;
    if (!summary->last_ms) return document;
    document["lastEventTimestamp"] = *summary->last_ms;
    document["lastIngestionTime"] = *summary->last_ms;
    return document;
  }

  AwsResult<Json> describe_streams(const Json& input) const {
    YARD_ASSIGN(const jobs::JobKind kind, group_of(input));
    const std::string prefix = text(input, "logStreamNamePrefix");
    const bool by_time = text(input, "orderBy") == "LastEventTime";
    if (by_time && !prefix.empty())
      return invalid("Cannot order by LastEventTime with a logStreamNamePrefix.");
    const bool is_descending = input.value("descending", false);
    YARD_ASSIGN(JobStreamPage page,
                list_streams(desk_, kind, prefix, by_time && is_descending,
                             text(input, "nextToken"), input.value("limit", kStreamsPage)));
    if (is_descending && !by_time) std::reverse(page.streams.begin(), page.streams.end());
    Json streams = Json::array();
    for (const JobStream& stream : page.streams) streams.push_back(stream_document(kind, stream));
    Json answer = {{"logStreams", std::move(streams)}};
    if (!page.next_token.empty()) answer["nextToken"] = page.next_token;
    return answer;
  }

  AwsResult<JobStream> stream_at(jobs::JobKind kind, const std::string& name) const {
    auto stream = find_stream(desk_, kind, name);
    if (stream) return *std::move(stream);
    if (stream.error().code == Code::kNotFound) return no_stream();
    return std::move(stream).error();
  }

  static AwsResult<logs::LogQuery> query_of(const Json& input) {
    logs::LogQuery query;
    query.start_ms = input.value("startTime", query.start_ms);
    query.end_ms = input.value("endTime", query.end_ms);
    query.events_max = size_t(input.value("limit", kEventsPage));
    query.bytes_max = kPageBytesMax;
    query.backward = !input.value("startFromHead", false);
    if (!input.contains("nextToken")) return query;
    YARD_ASSIGN(const EventToken token, parse_token(text(input, "nextToken")));
    query.offset = token.offset;
    query.backward = token.is_backward;
    return query;
  }

  AwsResult<Json> get_events(const Json& input) const {
    YARD_ASSIGN(const jobs::JobKind kind, group_of(input));
    YARD_ASSIGN(const JobStream stream, stream_at(kind, text(input, "logStreamName")));
    YARD_ASSIGN(const logs::LogQuery query, query_of(input));
    auto page = logs::LogReader(stream.path).read(query);
    // A host that has printed nothing has no file yet.
    if (!page && page.error().code == Code::kNotFound) page = logs::LogPage{};
    if (!page) return std::move(page).error();
    Json events = Json::array();
    for (const logs::LogEvent& event : page->events)
      events.push_back(
          {{"timestamp", event.t_ms}, {"message", event.text}, {"ingestionTime", event.t_ms}});
    return Json{{"events", std::move(events)},
                {"nextForwardToken", token_text('f', page->end_offset)},
                {"nextBackwardToken", token_text('b', page->begin_offset)}};
  }

  AwsResult<std::vector<JobStream>> filtered_streams(jobs::JobKind kind, const Json& input) const {
    std::vector<JobStream> streams;
    for (const Json& name : input.value("logStreamNames", Json::array())) {
      YARD_ASSIGN(JobStream stream, stream_at(kind, name.get<std::string>()));
      streams.push_back(std::move(stream));
    }
    if (!streams.empty()) return streams;
    const std::string prefix = text(input, "logStreamNamePrefix");
    std::string token;
    do {
      YARD_ASSIGN(JobStreamPage page,
                  list_streams(desk_, kind, prefix, false, token, kStreamsPage));
      for (JobStream& stream : page.streams) streams.push_back(std::move(stream));
      token = page.next_token;
      if (streams.size() > kMergedStreamsMax)
        return invalid(
            fmt::format("more than {} streams; name them, or give a logStreamNamePrefix of one job",
                        kMergedStreamsMax));
    } while (!token.empty());
    return streams;
  }

  AwsResult<Json> filter_events(const Json& input) const {
    YARD_ASSIGN(const jobs::JobKind kind, group_of(input));
    if (input.contains("logStreamNames") && input.contains("logStreamNamePrefix"))
      return invalid("logStreamNames and logStreamNamePrefix exclude each other");
    YARD_ASSIGN(const LogFilter filter, LogFilter::parse(text(input, "filterPattern")));
    YARD_ASSIGN(const std::vector<JobStream> streams, filtered_streams(kind, input));
    logs::LogQuery range;
    range.start_ms = input.value("startTime", range.start_ms);
    range.end_ms = input.value("endTime", range.end_ms);
    YARD_ASSIGN(LogMerge merge, LogMerge::start(streams, range, text(input, "nextToken")));
    YARD_ASSIGN(Json events,
                merge.take(filter, size_t(input.value("limit", kEventsPage)), kPageBytesMax));
    Json answer = {{"events", std::move(events)}, {"searchedLogStreams", Json::array()}};
    if (!merge.is_at_end()) answer["nextToken"] = merge.token();
    return answer;
  }

  JobDesk& desk_;
  const Arns arns_;
  const Model& model_ = Model::built_in("logs");
};

}  // namespace

std::unique_ptr<Service> make_logs_service(JobDesk& desk, Arns arns) {
  return std::make_unique<LogsService>(desk, std::move(arns));
}

}  // namespace yard::api
