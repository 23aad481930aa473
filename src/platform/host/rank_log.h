// RankLog: what a rank prints, byte for byte into its own file and line by line into the job's.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/result.h"

namespace yard::host {

// Puts "[rank N] " before every line. Pure. Lines over 16 KiB are broken, so that memory is
// bounded.
class LinePrefixer {
 public:
  explicit LinePrefixer(int rank);
  // The whole lines that `bytes` completes, ready to be written.
  std::string take(std::string_view bytes);
  // The rest that has no newline, as a line; empty when there is none.
  std::string finish();

 private:
  std::string prefix_;
  std::string partial_;
};

// A log on a full disk loses its text; the training goes on. Not thread-safe.
class LogFile {
 public:
  static Result<LogFile> open(const std::string& path);
  void write(std::string_view bytes);
  uint64_t lost_bytes() const { return lost_bytes_; }

 private:
  LogFile(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  UniqueFd fd_;
  std::string path_;
  uint64_t lost_bytes_ = 0;
};

// The reading end of one rank's standard output and error. `job_log` must outlive it.
class RankLog {
 public:
  static Result<std::unique_ptr<RankLog>> open(int rank, const std::string& path, LogFile* job_log);
  // The writing end for the rank; dropped by close_writer() once the rank has it.
  int writer() const { return writer_.get(); }
  void close_writer() { writer_.reset(); }
  // -1 once every writer is gone.
  int reader() const { return reader_.get(); }
  // Copies what is there, at most `bytes_max`; never waits. False when nothing is left to read yet.
  bool pump(size_t bytes_max);
  // Ends the last line.
  void finish();

 private:
  RankLog(int rank, LogFile own, LogFile* job_log)
      : prefixer_(rank), own_(std::move(own)), job_log_(job_log) {}
  LinePrefixer prefixer_;
  LogFile own_;
  LogFile* job_log_;
  UniqueFd reader_;
  UniqueFd writer_;
};

}  // namespace yard::host
