// FileTail: the whole lines that were appended to a file since the last look.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"

namespace yard::host {

// Not thread-safe. A file that does not exist yet has no lines. What was read stays read: the file
// may only grow. Lines over 1 MiB are dropped; a read takes at most 64 MiB, the next one goes on.
class FileTail {
 public:
  explicit FileTail(std::string path) : path_(std::move(path)) {}
  // Without their newlines; a last line without newline is kept for later.
  std::vector<std::string> read_lines();
  // The file ends in the middle of a line.
  bool inside_line() const { return !partial_.empty() || dropping_; }

 private:
  void take(std::string_view bytes, std::vector<std::string>& lines);

  std::string path_;
  UniqueFd fd_;
  std::string partial_;
  bool dropping_ = false;
};

}  // namespace yard::host
