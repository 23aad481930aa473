// The segments of a log stream, seen as one run of bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace yard::logs::internal {

struct Segment {
  std::string path;
  uint64_t start = 0;
  uint64_t size = 0;
};

// Those that are full, in their order.
Result<std::vector<Segment>> full_segments(const std::string& path);
std::string full_segment_path(const std::string& path, uint64_t start);

// An open stream: a rotation meanwhile does not disturb it.
class OpenSegments {
 public:
  static Result<OpenSegments> open(const std::string& path);
  uint64_t begin() const { return segments_.empty() ? 0 : segments_.front().start; }
  uint64_t end() const { return end_; }
  // Up to `count` bytes from `offset` on; fewer at the end.
  Result<std::string> read(uint64_t offset, size_t count) const;

 private:
  std::vector<Segment> segments_;
  std::vector<UniqueFd> files_;
  uint64_t end_ = 0;
};

struct Line {
  int64_t t_ms = -1;  // -1: the line has no time, for a crash tore it
  std::string_view text;
};
// A line without its newline.
Line parse_line(std::string_view line);

}  // namespace yard::logs::internal
