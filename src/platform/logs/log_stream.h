// A log stream: what one host of a job printed, line by line with its time. One process appends,
// any number read while it grows.
//
// On disk: text, "<Unix time in ms> <line>\n" in PATH; full segments are renamed to PATH.<offset of
// their first byte, 20 digits>. An event is found again by its offset in the whole stream, which
// never changes: neither by rotation nor when old segments are removed.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/result.h"

namespace yard::logs {

// Longer lines are broken: CloudWatch's limit of an event, less the 26 bytes it counts for itself.
inline constexpr size_t kLineBytesMax = 262144 - 26;

struct LogEvent {
  int64_t t_ms = 0;     // Unix time; never smaller than that of the event before
  std::string text;     // bytes as they were printed, without the newline
  uint64_t offset = 0;  // of its first byte in the stream
};

struct LogWriterOptions {
  std::string path;  // its folder must exist
  uint64_t segment_bytes = uint64_t{64} << 20;
  // Beyond it the oldest whole segments are removed.
  uint64_t total_bytes_max = uint64_t{4} << 30;
  Clock* clock = &Clock::real();  // must outlive the writer
};

// Not thread-safe. Move-only.
class LogWriter {
 public:
  // Makes the stream or goes on with it; a line that a crash cut off is ended first.
  // kUnavailable: another process writes it. kNotFound: no such folder.
  static Result<LogWriter> open(const LogWriterOptions& options);

  // One event per line, all with the time of now; one write(2). A line must not hold a newline
  // (contract); one over kLineBytesMax is broken. kExhausted: disk full, and these lines are lost;
  // the next append that succeeds says how many before it writes its own.
  Status append(const std::vector<std::string_view>& lines);
  Status append(std::string_view line) { return append(std::vector<std::string_view>{line}); }
  // The same with given times, for events that come from elsewhere; a time before the last event's
  // becomes that one's.
  Status append_at(int64_t t_ms, const std::vector<std::string_view>& lines);
  // What was appended survives a power cut.
  Status sync();

  uint64_t end_offset() const { return start_ + size_; }

 private:
  LogWriter(LogWriterOptions options, UniqueFd fd)
      : options_(std::move(options)), fd_(std::move(fd)) {}
  Status take_up();
  Status rotate();
  Status remove_oldest();
  Status write_whole(std::string_view bytes);

  LogWriterOptions options_;
  UniqueFd fd_;
  uint64_t start_ = 0;  // of the segment that grows
  uint64_t size_ = 0;
  int64_t last_ms_ = 0;
  uint64_t lost_lines_ = 0;
};

struct LogQuery {
  int64_t start_ms = 0;                                  // inclusive
  int64_t end_ms = std::numeric_limits<int64_t>::max();  // exclusive
  // Events from this offset on, or, backward, those before it. Absent: from the first event of the
  // time range, or, backward, its last ones.
  std::optional<uint64_t> offset;
  bool backward = false;
  size_t events_max = 10000;
  size_t bytes_max = size_t{1} << 20;  // of text; one event may go beyond
};

struct LogPage {
  std::vector<LogEvent> events;  // oldest first, also when asked for backward
  uint64_t begin_offset = 0;     // where to go on backward
  uint64_t end_offset = 0;       // where to go on forward: also when there are no events now
};

struct LogSummary {
  uint64_t begin_offset = 0;  // what is before it was removed
  uint64_t end_offset = 0;
  std::optional<int64_t> first_ms;
  std::optional<int64_t> last_ms;
};

// Thread-safe. kNotFound: there is no such stream. A last line without its newline is not there
// yet. An offset inside a line means the next line; one before the beginning, the beginning.
class LogReader {
 public:
  explicit LogReader(std::string path) : path_(std::move(path)) {}
  Result<LogPage> read(const LogQuery& query) const;
  Result<LogSummary> summary() const;

 private:
  std::string path_;
};

}  // namespace yard::logs
