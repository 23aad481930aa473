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

// A group of jobs, or one that a client made.
struct LogGroup {
  std::string name;
  std::optional<jobs::JobKind> kind;
};

// By its name, or by an identifier that is the name or an ARN with it.
AwsResult<LogGroup> group_of(const Json& input) {
  std::string name = text(input, "logGroupName");
  if (name.empty()) name = text(input, "logGroupIdentifier");
  if (name.empty()) return invalid("one of logGroupName and logGroupIdentifier is needed");
  if (name.starts_with("arn:")) name = name.substr(name.rfind(':') + 1);
  const auto kind = kind_of_log_group(name);
  return LogGroup{std::move(name), kind};
}

// Of a group that clients write to.
AwsResult<std::string> own_group_of(const Json& input) {
  YARD_ASSIGN(LogGroup group, group_of(input));
  if (group.kind) return invalid("The streams of '" + group.name + "' are written by jobs alone.");
  return std::move(group.name);
}

AwsError already_there(std::string_view what) {
  return AwsError("ResourceAlreadyExistsException",
                  fmt::format("The specified log {} already exists", what));
}

// What a client may put into the past and the future, as CloudWatch has it.
constexpr int64_t kPastMs = int64_t{14} * 24 * 3600 * 1000;
constexpr int64_t kFutureMs = int64_t{2} * 3600 * 1000;
constexpr int64_t kSpanMs = int64_t{24} * 3600 * 1000;
constexpr size_t kBatchBytesMax = 1 << 20;
constexpr size_t kEventExtraBytes = 26;  // that CloudWatch counts for each event

// Events in the order of their times, and what of them was left out.
struct PutBatch {
  std::vector<OwnLogEvent> events;
  Json rejected = Json::object();
};

AwsResult<PutBatch> batch_of(const Json& list, int64_t now_ms) {
  PutBatch batch;
  size_t bytes = 0;
  int64_t last_ms = 0;
  int index = 0;
  const int64_t first_ms = list[0]["timestamp"];
  for (const Json& event : list) {
    const int64_t t_ms = event["timestamp"];
    if (t_ms < last_ms)
      return invalid("Log events in a single PutLogEvents request must be in chronological order.");
    if (t_ms - first_ms > kSpanMs)
      return invalid(
          "The batch of log events in a single PutLogEvents request cannot span more "
          "than 24 hours.");
    last_ms = t_ms;
    const auto& message = event["message"].get_ref<const std::string&>();
    bytes += message.size() + kEventExtraBytes;
    if (bytes > kBatchBytesMax)
      return invalid("Upload too large: more than 1048576 bytes in one request.");
    if (t_ms < now_ms - kPastMs)
      batch.rejected["tooOldLogEventEndIndex"] = index + 1;
    else if (t_ms > now_ms + kFutureMs)
      batch.rejected.emplace("tooNewLogEventStartIndex", index);
    else
      batch.events.push_back({t_ms, message});
    ++index;
  }
  return batch;
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
  LogsService(JobDesk& desk, OwnLogs& own, Arns arns, const Clock& clock)
      : desk_(desk), own_(own), arns_(std::move(arns)), clock_(clock) {}

  const Model& model() const override { return model_; }
  Role needed_role(std::string_view operation) const override { return role_by_name(operation); }

  AwsResult<Json> call(const Call& call) override {
    if (call.operation == "DescribeLogGroups") return describe_groups(call.input);
    if (call.operation == "DescribeLogStreams") return describe_streams(call.input);
    if (call.operation == "GetLogEvents") return get_events(call.input);
    if (call.operation == "FilterLogEvents") return filter_events(call.input);
    if (call.operation == "PutLogEvents") return put_events(call.input);
    return change(call);
  }
  std::string resource_of(const Call& call) const override {
    const std::string stream = text(call.input, "logStreamName");
    const std::string group = text(call.input, "logGroupName");
    return stream.empty() ? group : group + ":" + stream;
  }

 private:
  AwsResult<Json> change(const Call& call) {
    YARD_ASSIGN(const std::string group, own_group_of(call.input));
    const std::string stream = text(call.input, "logStreamName");
    Status done = Ok{};
    if (call.operation == "CreateLogGroup") {
      done = own_.create_group(group);
    } else if (call.operation == "CreateLogStream") {
      done = own_.create_stream(group, stream);
    } else if (call.operation == "DeleteLogGroup") {
      done = own_.remove_group(group);
    } else {
      YARD_CHECK(call.operation == "DeleteLogStream");
      done = own_.remove_stream(group, stream);
    }
    if (done) return Json(nullptr);
    return error_of_own(std::move(done).error(), group);
  }

  static AwsError error_of_own(Error error, const std::string& group) {
    if (error.code == Code::kNotFound) return error.message == group ? no_group() : no_stream();
    if (error.code == Code::kExhausted && error.message.ends_with(": there already"))
      return already_there(error.message.starts_with(group + ":") ? "group" : "stream");
    return error;
  }

  AwsResult<Json> put_events(const Json& input) {
    YARD_ASSIGN(const std::string group, own_group_of(input));
    const int64_t now_ms = ms_of(to_unix_seconds(clock_.wall_now()));
    YARD_ASSIGN(const PutBatch batch, batch_of(input["logEvents"], now_ms));
    auto done = own_.put(group, text(input, "logStreamName"), batch.events);
    if (!done) return error_of_own(std::move(done).error(), group);
    Json answer = {{"nextSequenceToken", "0"}};
    if (!batch.rejected.empty()) answer["rejectedLogEventsInfo"] = batch.rejected;
    return answer;
  }

  Json group_document(const std::string& name, double created_t) const {
    return {{"logGroupName", name},
            {"arn", arns_.of_log_group(name) + ":*"},
            {"logGroupArn", arns_.of_log_group(name)},
            {"logGroupClass", "STANDARD"},
            {"creationTime", ms_of(created_t)},
            {"metricFilterCount", 0},
            {"storedBytes", 0}};
  }

  AwsResult<Json> describe_groups(const Json& input) const {
    const std::string prefix = text(input, "logGroupNamePrefix");
    const std::string part = text(input, "logGroupNamePattern");
    YARD_ASSIGN(std::vector<OwnLogName> names, own_.groups());
    for (const auto kind : {jobs::JobKind::kProcessing, jobs::JobKind::kTraining})
      names.push_back({std::string(log_group_of(kind)), "", 0});
    std::ranges::sort(names, {}, &OwnLogName::name);
    Json groups = Json::array();
    for (const OwnLogName& each : names)
      if (each.name.starts_with(prefix) && each.name.find(part) != std::string::npos)
        groups.push_back(group_document(each.name, each.created_t));
    return Json{{"logGroups", std::move(groups)}};
  }

  Json stream_document(const LogGroup& group, const JobStream& stream) const {
    Json document = {
        {"logStreamName", stream.name},
        {"creationTime", ms_of(stream.created_t)},
        {"arn", fmt::format("{}:log-stream:{}", arns_.of_log_group(group.name), stream.name)},
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

  // All of a group of a client's own, whatever the limit: it has tens of streams.
  AwsResult<JobStreamPage> own_streams(const std::string& group, const std::string& prefix) const {
    auto names = own_.streams(group);
    if (!names) return error_of_own(std::move(names).error(), group);
    JobStreamPage page;
    for (OwnLogName& each : *names)
      if (each.name.starts_with(prefix))
        page.streams.push_back({std::move(each.name), std::move(each.path), each.created_t});
    return page;
  }

  AwsResult<JobStreamPage> streams_at(const LogGroup& group, const std::string& prefix,
                                      bool latest_first, const std::string& token,
                                      int limit) const {
    if (!group.kind) return own_streams(group.name, prefix);
    YARD_ASSIGN(JobStreamPage page,
                list_streams(desk_, *group.kind, prefix, latest_first, token, limit));
    return page;
  }

  AwsResult<Json> describe_streams(const Json& input) const {
    YARD_ASSIGN(const LogGroup group, group_of(input));
    const std::string prefix = text(input, "logStreamNamePrefix");
    const bool by_time = text(input, "orderBy") == "LastEventTime";
    if (by_time && !prefix.empty())
      return invalid("Cannot order by LastEventTime with a logStreamNamePrefix.");
    const bool is_descending = input.value("descending", false);
    YARD_ASSIGN(JobStreamPage page,
                streams_at(group, prefix, by_time && is_descending, text(input, "nextToken"),
                           input.value("limit", kStreamsPage)));
    if (is_descending && !by_time) std::reverse(page.streams.begin(), page.streams.end());
    Json streams = Json::array();
    for (const JobStream& stream : page.streams) streams.push_back(stream_document(group, stream));
    Json answer = {{"logStreams", std::move(streams)}};
    if (!page.next_token.empty()) answer["nextToken"] = page.next_token;
    return answer;
  }

  AwsResult<JobStream> stream_at(const LogGroup& group, const std::string& name) const {
    if (!group.kind) {
      auto own = own_.stream(group.name, name);
      if (!own) return error_of_own(std::move(own).error(), group.name);
      return JobStream{std::move(own->name), std::move(own->path), own->created_t};
    }
    auto stream = find_stream(desk_, *group.kind, name);
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
    YARD_ASSIGN(const LogGroup group, group_of(input));
    YARD_ASSIGN(const JobStream stream, stream_at(group, text(input, "logStreamName")));
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

  AwsResult<std::vector<JobStream>> filtered_streams(const LogGroup& group,
                                                     const Json& input) const {
    std::vector<JobStream> streams;
    for (const Json& name : input.value("logStreamNames", Json::array())) {
      YARD_ASSIGN(JobStream stream, stream_at(group, name.get<std::string>()));
      streams.push_back(std::move(stream));
    }
    if (!streams.empty()) return streams;
    const std::string prefix = text(input, "logStreamNamePrefix");
    std::string token;
    do {
      YARD_ASSIGN(JobStreamPage page, streams_at(group, prefix, false, token, kStreamsPage));
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
    YARD_ASSIGN(const LogGroup group, group_of(input));
    if (input.contains("logStreamNames") && input.contains("logStreamNamePrefix"))
      return invalid("logStreamNames and logStreamNamePrefix exclude each other");
    YARD_ASSIGN(const LogFilter filter, LogFilter::parse(text(input, "filterPattern")));
    YARD_ASSIGN(const std::vector<JobStream> streams, filtered_streams(group, input));
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
  OwnLogs& own_;
  const Arns arns_;
  const Clock& clock_;
  const Model& model_ = Model::built_in("logs");
};

}  // namespace

std::unique_ptr<Service> make_logs_service(JobDesk& desk, OwnLogs& own, Arns arns,
                                           const Clock& clock) {
  return std::make_unique<LogsService>(desk, own, std::move(arns), clock);
}

}  // namespace yard::api
