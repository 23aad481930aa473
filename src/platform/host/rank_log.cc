#include "host/rank_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/log.h"
#include "host/job_folder.h"

namespace yard::host {
namespace {

constexpr size_t kLineBytesMax = 16 * 1024;

}  // namespace

LinePrefixer::LinePrefixer(int rank) : prefix_(fmt::format("[rank {}] ", rank)) {}

std::string LinePrefixer::take(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const size_t room = kLineBytesMax - partial_.size();
    const auto newline = bytes.substr(0, room).find('\n');
    const bool whole = newline != std::string_view::npos;
    const size_t size = whole ? newline : std::min(room, bytes.size());
    partial_ += bytes.substr(0, size);
    bytes.remove_prefix(whole ? size + 1 : size);
    if (whole || partial_.size() == kLineBytesMax) {
      out += prefix_ + partial_ + "\n";
      partial_.clear();
    }
  }
  return out;
}

std::string LinePrefixer::finish() {
  if (partial_.empty()) return {};
  std::string out = prefix_ + partial_ + "\n";
  partial_.clear();
  return out;
}

Result<LogFile> LogFile::open(const std::string& path) {
  YARD_ASSIGN(UniqueFd fd, open_for_append(path));
  return LogFile(std::move(fd), path);
}

void LogFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      if (lost_bytes_ == 0) log_warning("{}: text is lost from here on", path_);
      lost_bytes_ += bytes.size();
      return;
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

Result<std::unique_ptr<RankLog>> RankLog::open(int rank, const std::string& path,
                                               LogFile* job_log) {
  YARD_ASSIGN(LogFile own, LogFile::open(path));
  std::unique_ptr<RankLog> log(new RankLog(rank, std::move(own), job_log));
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return errno_error("pipe for " + path, errno);
  log->reader_.reset(fds[0]);
  log->writer_.reset(fds[1]);
  // Only our end: a rank must be able to wait for us.
  if (::fcntl(fds[0], F_SETFL, O_NONBLOCK) != 0) return errno_error("pipe for " + path, errno);
  return log;
}

bool RankLog::pump(size_t bytes_max) {
  std::array<char, 64 * 1024> buffer;
  while (reader_.valid() && bytes_max > 0) {
    const ssize_t got = ::read(reader_.get(), buffer.data(), std::min(buffer.size(), bytes_max));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return false;
    if (got <= 0) {
      reader_.reset();
      return false;
    }
    const std::string_view bytes(buffer.data(), static_cast<size_t>(got));
    own_.write(bytes);
    job_log_->write(prefixer_.take(bytes));
    bytes_max -= bytes.size();
  }
  return reader_.valid();
}

void RankLog::finish() {
  job_log_->write(prefixer_.finish());
}

}  // namespace yard::host
