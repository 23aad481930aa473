#include "host/file_tail.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace yard::host {
namespace {

constexpr size_t kLineBytesMax = size_t{1} << 20;
constexpr size_t kReadBytesMax = size_t{64} << 20;

}  // namespace

std::vector<std::string> FileTail::read_lines() {
  std::vector<std::string> lines;
  if (!fd_.valid()) fd_.reset(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd_.valid()) return lines;
  std::array<char, 64 * 1024> buffer;
  for (size_t total = 0; total < kReadBytesMax;) {
    const ssize_t got = ::read(fd_.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    take({buffer.data(), static_cast<size_t>(got)}, lines);
    total += static_cast<size_t>(got);
  }
  return lines;
}

void FileTail::take(std::string_view bytes, std::vector<std::string>& lines) {
  while (!bytes.empty()) {
    const auto newline = bytes.find('\n');
    const auto piece = bytes.substr(0, newline);
    if (!dropping_ && partial_.size() + piece.size() > kLineBytesMax) {
      dropping_ = true;
      partial_.clear();
    }
    if (!dropping_) partial_ += piece;
    if (newline == std::string_view::npos) return;
    if (!dropping_) lines.push_back(std::move(partial_));
    partial_.clear();
    dropping_ = false;
    bytes.remove_prefix(newline + 1);
  }
}

}  // namespace yard::host
