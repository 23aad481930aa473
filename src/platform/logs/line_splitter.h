// LineSplitter: bytes of a pipe to lines. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "logs/log_stream.h"

namespace yard::logs {

// "\n", "\r\n" and a lone "\r" (progress bars) end a line. A line over kLineBytesMax is broken, so
// the memory held is bounded. Not thread-safe.
class LineSplitter {
 public:
  // Appends the lines that these bytes end.
  void feed(std::string_view bytes, std::vector<std::string>& lines);
  // What has no end yet: at the end of the pipe, or when nothing came for a while. False: nothing.
  bool take_rest(std::string& line);

 private:
  std::string partial_;
  bool after_carriage_return_ = false;
};

}  // namespace yard::logs
