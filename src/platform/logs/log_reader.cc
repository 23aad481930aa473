#include <algorithm>
#include <cstring>
#include <limits>

#include "logs/log_stream.h"
#include "logs/segments_internal.h"

namespace yard::logs {
namespace {

using internal::OpenSegments;

constexpr size_t kBlockBytes = size_t{256} << 10;
// Longer than any line with its time and newline.
constexpr size_t kProbeBytes = kLineBytesMax + 64;
static_assert(kBlockBytes > kProbeBytes - 128);

// Whole lines from an offset on, oldest first.
class LineCursor {
 public:
  LineCursor(const OpenSegments& stream, uint64_t offset) : stream_(stream), at_(offset) {}

  // The offset of a line's first byte: the next one when `offset` lies inside a line.
  Status align() {
    if (at_ <= stream_.begin()) {
      at_ = stream_.begin();
      return Ok{};
    }
    if (at_ > stream_.end()) at_ = stream_.end();
    --at_;
    return skip_line();
  }
  // False: no whole line is there.
  Result<bool> next(std::string_view& line) {
    while (true) {
      const char* begin = block_.data() + used_;
      const size_t left = block_.size() - used_;
      if (const void* end = std::memchr(begin, '\n', left)) {
        line = {begin, static_cast<const char*>(end)};
        line_offset_ = at_;
        used_ += line.size() + 1;
        at_ += line.size() + 1;
        return true;
      }
      YARD_ASSIGN(std::string more, stream_.read(at_ + left, kBlockBytes));
      if (more.empty()) return false;
      block_.erase(0, used_);
      used_ = 0;
      block_ += more;
    }
  }
  uint64_t line_offset() const { return line_offset_; }
  uint64_t offset() const { return at_; }  // of the next line

 private:
  Status skip_line() {
    std::string_view line;
    YARD_TRY(next(line));
    return Ok{};
  }

  const OpenSegments& stream_;
  std::string block_;
  size_t used_ = 0;
  uint64_t at_;
  uint64_t line_offset_ = 0;
};

// The offset of a line such that no event before it is of `start_ms` or later: times ascend, so
// halves are tried.
Result<uint64_t> seek_time(const OpenSegments& stream, int64_t start_ms) {
  uint64_t low = stream.begin();
  uint64_t high = stream.end();
  while (high - low > kProbeBytes) {
    const uint64_t middle = low + (high - low) / 2;
    LineCursor cursor(stream, middle);
    YARD_TRY(cursor.align());
    int64_t t_ms = -1;
    std::string_view line;
    while (t_ms < 0) {
      YARD_ASSIGN(const bool found, cursor.next(line));
      if (!found) break;
      t_ms = internal::parse_line(line).t_ms;
    }
    if (t_ms < 0 || t_ms >= start_ms || cursor.line_offset() >= high)
      high = middle;
    else
      low = cursor.line_offset();
  }
  return low;
}

bool full(const LogPage& page, size_t bytes, const LogQuery& query) {
  return page.events.size() >= query.events_max || (bytes >= query.bytes_max && bytes > 0);
}

// Forward from a line's offset; stops at end_ms.
Result<LogPage> read_forward(const OpenSegments& stream, uint64_t offset, const LogQuery& query) {
  LogPage page{.events = {}, .begin_offset = offset, .end_offset = offset};
  LineCursor cursor(stream, offset);
  YARD_TRY(cursor.align());
  page.begin_offset = page.end_offset = cursor.offset();
  size_t bytes = 0;
  int64_t last_ms = query.start_ms;
  std::string_view bytes_of_line;
  while (!full(page, bytes, query)) {
    YARD_ASSIGN(const bool found, cursor.next(bytes_of_line));
    if (!found) break;
    const internal::Line line = internal::parse_line(bytes_of_line);
    if (line.t_ms >= 0) last_ms = line.t_ms;
    if (last_ms >= query.end_ms) break;
    page.end_offset = cursor.offset();
    if (last_ms < query.start_ms) {
      if (page.events.empty()) page.begin_offset = cursor.offset();
      continue;
    }
    page.events.push_back(
        {.t_ms = last_ms, .text = std::string(line.text), .offset = cursor.line_offset()});
    bytes += line.text.size();
  }
  return page;
}

// The events that begin in [from, until), and lie in the range of time.
Result<std::vector<LogEvent>> read_between(const OpenSegments& stream, uint64_t from,
                                           uint64_t until, const LogQuery& query) {
  LogQuery all = query;
  all.events_max = all.bytes_max = std::numeric_limits<size_t>::max();
  std::vector<LogEvent> events;
  LineCursor cursor(stream, from);
  YARD_TRY(cursor.align());
  std::string_view bytes_of_line;
  int64_t last_ms = 0;
  while (cursor.offset() < until) {
    YARD_ASSIGN(const bool found, cursor.next(bytes_of_line));
    if (!found) break;
    const internal::Line line = internal::parse_line(bytes_of_line);
    if (line.t_ms >= 0) last_ms = line.t_ms;
    if (last_ms < query.start_ms) continue;
    if (last_ms >= query.end_ms) break;
    events.push_back(
        {.t_ms = last_ms, .text = std::string(line.text), .offset = cursor.line_offset()});
  }
  return events;
}

void keep_last(std::vector<LogEvent>& events, const LogQuery& query) {
  size_t bytes = 0;
  size_t kept = 0;
  while (kept < events.size() && kept < query.events_max) {
    const size_t size = events[events.size() - 1 - kept].text.size();
    if (kept > 0 && bytes + size > query.bytes_max) break;
    bytes += size;
    ++kept;
  }
  events.erase(events.begin(), events.end() - static_cast<ptrdiff_t>(kept));
}

// A window that doubles until it holds enough, or reaches the beginning.
Result<LogPage> read_backward(const OpenSegments& stream, uint64_t until, const LogQuery& query) {
  LogPage page{.events = {}, .begin_offset = stream.begin(), .end_offset = until};
  YARD_ASSIGN(const uint64_t first, seek_time(stream, query.start_ms));
  for (uint64_t window = kBlockBytes;; window *= 2) {
    const bool whole = until - std::min(first, until) <= window;
    const uint64_t from = whole ? std::min(first, until) : until - window;
    YARD_ASSIGN(page.events, read_between(stream, from, until, query));
    size_t bytes = 0;
    for (const LogEvent& event : page.events) bytes += event.text.size();
    if (!whole && page.events.size() < query.events_max && bytes < query.bytes_max) continue;
    keep_last(page.events, query);
    if (!page.events.empty()) page.begin_offset = page.events.front().offset;
    return page;
  }
}

}  // namespace

Result<LogPage> LogReader::read(const LogQuery& query) const {
  YARD_ASSIGN(const OpenSegments stream, OpenSegments::open(path_));
  if (!query.backward) {
    if (query.offset) return read_forward(stream, *query.offset, query);
    YARD_ASSIGN(const uint64_t first, seek_time(stream, query.start_ms));
    return read_forward(stream, first, query);
  }
  uint64_t until = std::clamp(query.offset.value_or(stream.end()), stream.begin(), stream.end());
  if (!query.offset && query.end_ms != std::numeric_limits<int64_t>::max()) {
    YARD_ASSIGN(const uint64_t near_end, seek_time(stream, query.end_ms));
    until = std::min(stream.end(), near_end + 2 * kProbeBytes);
  }
  return read_backward(stream, until, query);
}

Result<LogSummary> LogReader::summary() const {
  YARD_ASSIGN(const OpenSegments stream, OpenSegments::open(path_));
  LogSummary summary{
      .begin_offset = stream.begin(), .end_offset = stream.end(), .first_ms = {}, .last_ms = {}};
  LogQuery one;
  one.events_max = 1;
  YARD_ASSIGN(const LogPage first, read_forward(stream, stream.begin(), one));
  if (first.events.empty()) return summary;
  summary.first_ms = first.events.front().t_ms;
  YARD_ASSIGN(const LogPage last, read_backward(stream, stream.end(), one));
  if (!last.events.empty()) summary.last_ms = last.events.back().t_ms;
  return summary;
}

}  // namespace yard::logs
