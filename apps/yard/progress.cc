#include "progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/units.h"

namespace yard::app {
namespace {

constexpr std::chrono::milliseconds kDrawInterval{200};
constexpr size_t kWidthUnknown = 80;
constexpr size_t kBarMin = 10;

size_t terminal_width() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kWidthUnknown;
  return size.ws_col;
}

}  // namespace

std::string progress_text(uint64_t bytes_done, uint64_t bytes_total, uint64_t objects_done,
                          uint64_t objects_total, std::chrono::duration<double> elapsed,
                          size_t width) {
  const double seconds = std::max(elapsed.count(), 1e-3);
  const double rate = static_cast<double>(bytes_done) / seconds;
  const double share =
      bytes_total == 0 ? 0 : static_cast<double>(bytes_done) / static_cast<double>(bytes_total);
  std::string left = "";
  if (rate > 0 && bytes_done < bytes_total)
    left = "  " +
           format_duration(std::chrono::seconds(
               static_cast<int64_t>(static_cast<double>(bytes_total - bytes_done) / rate) + 1)) +
           " left";
  std::string text = fmt::format("{:3.0f}%  {} of {}  {}/s{}  {} of {}", share * 100,
                                 format_size_bytes(bytes_done), format_size_bytes(bytes_total),
                                 format_size_bytes(static_cast<uint64_t>(rate)), left, objects_done,
                                 objects_total);
  if (text.size() + kBarMin + 4 <= width) {
    const size_t bar = std::min<size_t>(width - text.size() - 4, 30);
    const auto filled = static_cast<size_t>(share * static_cast<double>(bar));
    text = "[" + std::string(filled, '#') + std::string(bar - filled, ' ') + "] " + text;
  }
  return text.substr(0, width > 1 ? width - 1 : 0);
}

ProgressLine::ProgressLine(const transfer::CopyProgress& progress, bool is_shown)
    : progress_(progress), start_(std::chrono::steady_clock::now()) {
  if (!is_shown) return;
  thread_ = std::thread([this] {
    const StopToken stop = stop_.token();
    while (!stop.wait_for(kDrawInterval)) draw();
  });
}

ProgressLine::~ProgressLine() {
  if (!thread_.joinable()) return;
  stop_.request();
  thread_.join();
  std::fputs("\r\x1b[K", stderr);
}

void ProgressLine::draw() const {
  const std::string text = progress_text(
      progress_.bytes_done, progress_.bytes_total, progress_.objects_done, progress_.objects_total,
      std::chrono::steady_clock::now() - start_, terminal_width());
  fmt::print(stderr, "\r\x1b[K{}", text);
  std::fflush(stderr);
}

}  // namespace yard::app
