// HostLog: what the processes of a host print, as events of the job's log stream.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "jobs/progress_line.h"

namespace yard::host {

// A thread of its own reads the pipes. Thread-safe.
class HostLog {
 public:
  // Codes of logs::LogWriter::open().
  static Result<std::unique_ptr<HostLog>> open(const std::string& path);
  ~HostLog();

  // A line of the platform itself.
  void note(std::string_view line);

  // A new pipe is read; its writing end, to be given to a process for both of its streams, so that
  // their lines keep their order. Ours until close_writer(). One at a time.
  Result<int> open_pipe();
  void close_writer();
  // Waits until every process has closed the pipe, five seconds at most, and the lines are durable.
  void drain();

  size_t line_count() const;  // of what was printed since open_pipe()
  // What was printed last of the progress since open_pipe(). Of more than some thousand lines a
  // second not all are looked at.
  std::optional<jobs::ProgressMark> progress() const;
  // The end of what was printed since open_pipe(): from the last Python traceback on, else the last
  // lines; without the terminal's colours.
  std::string error_text() const;
  // bubblewrap's complaint, where that is all that was printed: no sandbox came to be.
  std::string sandbox_error() const;

 private:
  struct Impl;
  explicit HostLog(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace yard::host
