#include "host/host_log.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "logs/line_splitter.h"
#include "logs/log_stream.h"

namespace yard::host {
namespace {

constexpr int kPipeBytes = 1 << 20;
constexpr size_t kReadBytes = 256 << 10;
constexpr std::chrono::milliseconds kPartialLineWait{500};
constexpr std::chrono::seconds kDrainMax{5};
constexpr size_t kTailLinesMax = 200;
constexpr size_t kTailLineBytesMax = 4096;
constexpr size_t kErrorLinesMax = 5;
constexpr size_t kProgressLinesMax = 64;  // of a batch, the last ones
constexpr std::string_view kTraceback = "Traceback (most recent call last)";

std::string without_colours(std::string_view line) {
  std::string out;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\x1b') {
      out += line[i];
      continue;
    }
    while (i < line.size() && !std::isalpha(static_cast<unsigned char>(line[i]))) ++i;
  }
  return out;
}

}  // namespace

struct HostLog::Impl {
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::optional<logs::LogWriter> writer;
  bool is_writing_well = true;
  std::deque<std::string> tail;
  size_t line_count = 0;  // since open_pipe()
  std::optional<jobs::ProgressMark> progress;
  UniqueFd write_end;
  std::thread thread;
  bool is_reading = false;

  void append(const std::vector<std::string>& lines);
  void note_progress(const std::vector<std::string>& lines);
  void read_pipe(UniqueFd pipe);
  void join();
};

void HostLog::Impl::append(const std::vector<std::string>& lines) {
  const std::lock_guard lock(mutex);
  const std::vector<std::string_view> views(lines.begin(), lines.end());
  const Status written = writer->append(views);
  if (!written && is_writing_well)
    log_error("lines of the log are lost: {}", written.error().message);
  is_writing_well = written.has_value();
  line_count += lines.size();
  note_progress(lines);
  for (const std::string& line : lines) {
    tail.push_back(line.substr(0, kTailLineBytesMax));
    if (tail.size() > kTailLinesMax) tail.pop_front();
  }
}

void HostLog::Impl::note_progress(const std::vector<std::string>& lines) {
  const size_t end = lines.size() - std::min(lines.size(), kProgressLinesMax);
  const double now_t = to_unix_seconds(Clock::real().wall_now());
  for (size_t i = lines.size(); i-- > end;) {
    const auto mark = jobs::progress_of_line(now_t, lines[i]);
    if (!mark) continue;
    progress = mark;
    return;
  }
}

void HostLog::Impl::read_pipe(UniqueFd pipe) {
  logs::LineSplitter splitter;
  std::vector<char> buffer(kReadBytes);
  std::vector<std::string> lines;
  std::string rest;
  while (true) {
    // A prompt or progress bar without a newline is shown when nothing follows it for a while.
    pollfd item{.fd = pipe.get(), .events = POLLIN, .revents = 0};
    if (::poll(&item, 1, int(kPartialLineWait.count())) == 0) {
      if (splitter.take_rest(rest)) append({rest});
      continue;
    }
    const ssize_t got = ::read(pipe.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    lines.clear();
    splitter.feed({buffer.data(), size_t(got)}, lines);
    if (!lines.empty()) append(lines);
  }
  if (splitter.take_rest(rest)) append({rest});
  const std::lock_guard lock(mutex);
  is_reading = false;
  changed.notify_all();
}

void HostLog::Impl::join() {
  write_end.reset();
  if (thread.joinable()) thread.join();
}

HostLog::HostLog(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HostLog::~HostLog() {
  impl_->join();
}

Result<std::unique_ptr<HostLog>> HostLog::open(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  logs::LogWriterOptions options;
  options.path = path;
  YARD_ASSIGN(impl->writer, logs::LogWriter::open(options));
  return std::unique_ptr<HostLog>(new HostLog(std::move(impl)));
}

void HostLog::note(std::string_view line) {
  const std::lock_guard lock(impl_->mutex);
  if (const Status written = impl_->writer->append(line); !written)
    log_error("a line of the log is lost: {}", written.error().message);
}

Result<int> HostLog::open_pipe() {
  impl_->join();
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("pipe", errno);
  UniqueFd read_end(ends[0]);
  impl_->write_end.reset(ends[1]);
  // More room than by default; the system may limit it.
  ::fcntl(ends[1], F_SETPIPE_SZ, kPipeBytes);
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->tail.clear();
    impl_->line_count = 0;
    impl_->progress.reset();
    impl_->is_reading = true;
  }
  impl_->thread = std::thread(
      [impl = impl_.get(), fd = std::make_shared<UniqueFd>(std::move(read_end))]() mutable {
        impl->read_pipe(std::move(*fd));
      });
  return ends[1];
}

void HostLog::close_writer() {
  impl_->write_end.reset();
}

void HostLog::drain() {
  impl_->write_end.reset();
  std::unique_lock lock(impl_->mutex);
  if (!impl_->changed.wait_for(lock, kDrainMax, [&] { return !impl_->is_reading; }))
    log_warning("somebody outside of the sandbox holds the job's output");
  if (const Status synced = impl_->writer->sync(); !synced) log_error("{}", synced.error().message);
}

size_t HostLog::line_count() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->line_count;
}

std::optional<jobs::ProgressMark> HostLog::progress() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->progress;
}

std::string HostLog::error_text() const {
  const std::lock_guard lock(impl_->mutex);
  const auto& tail = impl_->tail;
  size_t begin = tail.size() > kErrorLinesMax ? tail.size() - kErrorLinesMax : 0;
  for (size_t i = tail.size(); i-- > 0;) {
    if (tail[i].find(kTraceback) == std::string::npos) continue;
    begin = i;
    break;
  }
  std::string text;
  for (size_t i = begin; i < tail.size(); ++i)
    text += (text.empty() ? "" : "\n") + without_colours(tail[i]);
  return text;
}

std::string HostLog::sandbox_error() const {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->line_count != 1 || impl_->tail.empty() || !impl_->tail[0].starts_with("bwrap: "))
    return {};
  return impl_->tail[0];
}

}  // namespace yard::host
