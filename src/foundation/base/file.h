// Whole files: read, and replaced atomically.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace yard {

// The whole file; kExhausted when larger than `size_bytes_max`.
Result<std::string> read_file(const std::string& path, uint64_t size_bytes_max = uint64_t{1} << 30);

// Writes a temporary beside `path`, fsyncs it, renames it over `path`, fsyncs the directory: a
// reader sees the old content or the new, and a power cut leaves one of the two. The temporary is
// removed on failure. kExhausted: disk full.
Status write_file_atomic(const std::string& path, std::string_view content);

// mkdir -p.
Status make_directories(const std::string& path);

// Move-only owner of a file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

}  // namespace yard
