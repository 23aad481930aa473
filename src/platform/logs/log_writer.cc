#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "logs/log_stream.h"
#include "logs/segments_internal.h"

namespace yard::logs {
namespace {

int64_t now_ms(const Clock& clock) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(clock.wall_now().time_since_epoch())
      .count();
}

// At least one piece, also of an empty line.
void append_event(std::string& out, int64_t t_ms, std::string_view line) {
  do {
    fmt::format_to(std::back_inserter(out), "{} ", t_ms);
    out.append(line.substr(0, kLineBytesMax));
    out.push_back('\n');
    line.remove_prefix(std::min(line.size(), kLineBytesMax));
  } while (!line.empty());
}

Result<UniqueFd> open_to_append(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0640));
  if (!fd.valid()) return errno_error(path, errno);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
    return Error{Code::kUnavailable, fmt::format("{}: another process writes it", path)};
  return fd;
}

}  // namespace

Result<LogWriter> LogWriter::open(const LogWriterOptions& options) {
  YARD_ASSIGN(UniqueFd fd, open_to_append(options.path));
  LogWriter writer(options, std::move(fd));
  YARD_TRY(writer.take_up());
  return writer;
}

Status LogWriter::take_up() {
  YARD_ASSIGN(const auto full, internal::full_segments(options_.path));
  if (!full.empty()) start_ = full.back().start + full.back().size;
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) return errno_error(options_.path, errno);
  size_ = static_cast<uint64_t>(status.st_size);
  char last = '\n';
  if (size_ > 0 && ::pread(fd_.get(), &last, 1, static_cast<off_t>(size_ - 1)) != 1)
    return errno_error(options_.path, errno);
  if (last != '\n') YARD_TRY(write_whole("\n"));
  YARD_ASSIGN(const LogSummary summary, LogReader(options_.path).summary());
  last_ms_ = summary.last_ms.value_or(0);
  return Ok{};
}

Status LogWriter::append(const std::vector<std::string_view>& lines) {
  return append_at(now_ms(*options_.clock), lines);
}

Status LogWriter::append_at(int64_t t_ms, const std::vector<std::string_view>& lines) {
  last_ms_ = std::max(last_ms_, t_ms);
  std::string bytes;
  if (lost_lines_ > 0)
    append_event(bytes, last_ms_, fmt::format("[{} lines were lost: no space]", lost_lines_));
  for (const std::string_view line : lines) append_event(bytes, last_ms_, line);
  if (size_ >= options_.segment_bytes) YARD_TRY(rotate());
  if (auto written = write_whole(bytes); !written) {
    lost_lines_ += lines.size();
    return written;
  }
  lost_lines_ = 0;
  return Ok{};
}

// All or nothing: readers must not take the rest of a line for a line.
Status LogWriter::write_whole(std::string_view bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written = ::write(fd_.get(), bytes.data() + done, bytes.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const Error error = errno_error(options_.path, errno);
      if (::ftruncate(fd_.get(), static_cast<off_t>(size_)) != 0) size_ += done;
      return error;
    }
    done += static_cast<size_t>(written);
  }
  size_ += done;
  return Ok{};
}

Status LogWriter::rotate() {
  YARD_TRY(sync());
  const std::string full = internal::full_segment_path(options_.path, start_);
  if (::rename(options_.path.c_str(), full.c_str()) != 0) return errno_error(full, errno);
  auto next = open_to_append(options_.path);
  if (!next) {
    // The stream goes on in the old segment, under its old name.
    if (::rename(full.c_str(), options_.path.c_str()) != 0) return errno_error(full, errno);
    return std::move(next).error();
  }
  fd_ = *std::move(next);
  start_ += size_;
  size_ = 0;
  return remove_oldest();
}

// The last full segment stays: the place of the growing one follows from it.
Status LogWriter::remove_oldest() {
  YARD_ASSIGN(const auto full, internal::full_segments(options_.path));
  uint64_t total = 0;
  for (const auto& segment : full) total += segment.size;
  for (size_t i = 0; i + 1 < full.size() && total > options_.total_bytes_max; ++i) {
    if (::unlink(full[i].path.c_str()) != 0) return errno_error(full[i].path, errno);
    total -= full[i].size;
  }
  return Ok{};
}

Status LogWriter::sync() {
  if (::fdatasync(fd_.get()) != 0) return errno_error(options_.path, errno);
  return Ok{};
}

}  // namespace yard::logs
