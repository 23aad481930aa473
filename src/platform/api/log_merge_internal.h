// Events of several streams in the order of their times, page by page.
#pragma once

#include <string>
#include <vector>

#include "api/aws_error.h"
#include "api/job_streams_internal.h"
#include "api/log_filter.h"
#include "base/json.h"
#include "logs/log_stream.h"

namespace yard::api {

inline constexpr size_t kMergedStreamsMax = 1000;
// Bytes of log that one page looks through before it says where to go on.
inline constexpr size_t kScannedBytesMax = 32 << 20;

// Not thread-safe.
class LogMerge {
 public:
  // token: of the page before, empty for the first. InvalidParameterException: it is none, or was
  // for other streams.
  static AwsResult<LogMerge> start(const std::vector<JobStream>& streams,
                                   const logs::LogQuery& range, const std::string& token);

  // The next events that match, as FilterLogEvents tells them; fewer than there are, or none, where
  // one of the bounds is reached.
  AwsResult<Json> take(const LogFilter& filter, size_t events_max, size_t bytes_max);
  bool is_at_end() const;
  std::string token() const;

 private:
  struct Source {
    const JobStream* stream = nullptr;
    uint64_t offset = 0;       // of what is not buffered yet
    bool is_started = false;   // offset says where to begin
    bool is_read_out = false;  // there is nothing behind the buffer
    std::vector<logs::LogEvent> buffer;
    size_t used = 0;
  };

  LogMerge(std::vector<Source> sources, const logs::LogQuery& range)
      : sources_(std::move(sources)), range_(range) {}
  AwsStatus fill(Source& source);
  AwsResult<Source*> earliest();

  std::vector<Source> sources_;
  logs::LogQuery range_;
  size_t scanned_bytes_ = 0;
};

}  // namespace yard::api
