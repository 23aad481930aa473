#include <fmt/format.h>

#include <charconv>

#include "api/log_merge_internal.h"
#include "net/checksums.h"

namespace yard::api {
namespace {

constexpr size_t kBufferEvents = 1000;
constexpr size_t kBufferBytes = 256 << 10;

AwsError bad_token() {
  return AwsError("InvalidParameterException", "The specified nextToken is invalid.");
}

Json event_json(const JobStream& stream, const logs::LogEvent& event) {
  return {
      {"logStreamName", stream.name},
      {"timestamp", event.t_ms},
      {"message", event.text},
      {"ingestionTime", event.t_ms},
      // Always the same for an event, and no two have one: the stream's name and the place in it.
      {"eventId", fmt::format("{}{:020}", sha256_hex(stream.name).substr(0, 36), event.offset)}};
}

}  // namespace

AwsResult<LogMerge> LogMerge::start(const std::vector<JobStream>& streams,
                                    const logs::LogQuery& range, const std::string& token) {
  std::vector<Source> sources;
  for (const JobStream& stream : streams) sources.emplace_back().stream = &stream;
  std::string_view rest = token;
  for (Source& source : sources) {
    if (token.empty()) break;
    const auto [end, failed] =
        std::from_chars(rest.data(), rest.data() + rest.size(), source.offset);
    if (failed != std::errc{}) return bad_token();
    source.is_started = true;
    rest.remove_prefix(size_t(end - rest.data()));
    if (rest.starts_with('.')) rest.remove_prefix(1);
  }
  if (!rest.empty()) return bad_token();
  return LogMerge(std::move(sources), range);
}

AwsStatus LogMerge::fill(Source& source) {
  logs::LogQuery query = range_;
  query.events_max = kBufferEvents;
  query.bytes_max = kBufferBytes;
  if (source.is_started) query.offset = source.offset;
  auto page = logs::LogReader(source.stream->path).read(query);
  if (!page && page.error().code == Code::kNotFound) page = logs::LogPage{};
  if (!page) return std::move(page).error();
  source.buffer = std::move(page->events);
  source.used = 0;
  source.offset = page->end_offset;
  source.is_started = true;
  source.is_read_out = source.buffer.empty();
  return Ok{};
}

// Of those with equal times the first stream's, so that pages continue each other.
AwsResult<LogMerge::Source*> LogMerge::earliest() {
  Source* first = nullptr;
  for (Source& source : sources_) {
    if (source.used == source.buffer.size() && !source.is_read_out) YARD_TRY(fill(source));
    if (source.used == source.buffer.size()) continue;
    if (first == nullptr || source.buffer[source.used].t_ms < first->buffer[first->used].t_ms)
      first = &source;
  }
  return first;
}

AwsResult<Json> LogMerge::take(const LogFilter& filter, size_t events_max, size_t bytes_max) {
  Json events = Json::array();
  size_t bytes = 0;
  while (events.size() < events_max && bytes < bytes_max && scanned_bytes_ < kScannedBytesMax) {
    YARD_ASSIGN(Source * source, earliest());
    if (source == nullptr) break;
    const logs::LogEvent& event = source->buffer[source->used++];
    scanned_bytes_ += event.text.size() + sizeof event;
    if (!filter.matches(event.text)) continue;
    bytes += event.text.size();
    events.push_back(event_json(*source->stream, event));
  }
  return events;
}

bool LogMerge::is_at_end() const {
  for (const Source& source : sources_)
    if (!source.is_read_out || source.used < source.buffer.size()) return false;
  return true;
}

std::string LogMerge::token() const {
  std::string token;
  for (const Source& source : sources_) {
    const bool is_buffered = source.used < source.buffer.size();
    token += fmt::format("{}{}", token.empty() ? "" : ".",
                         is_buffered ? source.buffer[source.used].offset : source.offset);
  }
  return token;
}

}  // namespace yard::api
