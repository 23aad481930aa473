#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <memory>

#include "logs/segments_internal.h"

namespace yard::logs::internal {
namespace {

constexpr size_t kOffsetDigits = 20;
constexpr int kOpenTriesMax = 100;

struct DirectoryCloser {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

Result<uint64_t> size_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return errno_error(path, errno);
  return static_cast<uint64_t>(status.st_size);
}

bool parse_number(std::string_view digits, auto& out) {
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
  return error == std::errc() && end == digits.data() + digits.size();
}

bool same(const std::vector<Segment>& a, const std::vector<Segment>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Segment& x, const Segment& y) { return x.path == y.path; });
}

Result<UniqueFd> open_to_read(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return errno_error(path, errno);
  return fd;
}

}  // namespace

std::string full_segment_path(const std::string& path, uint64_t start) {
  return fmt::format("{}.{:020}", path, start);
}

Result<std::vector<Segment>> full_segments(const std::string& path) {
  const std::filesystem::path whole(path);
  const std::string folder = whole.has_parent_path() ? whole.parent_path().string() : ".";
  const std::string prefix = whole.filename().string() + ".";
  const std::unique_ptr<DIR, DirectoryCloser> directory(::opendir(folder.c_str()));
  if (!directory) return errno_error(folder, errno);
  std::vector<Segment> found;
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string_view name = entry->d_name;
    Segment segment;
    if (name.size() != prefix.size() + kOffsetDigits || !name.starts_with(prefix)) continue;
    if (!parse_number(name.substr(prefix.size()), segment.start)) continue;
    segment.path = full_segment_path(path, segment.start);
    auto size = size_of(segment.path);
    if (!size) continue;  // removed meanwhile
    segment.size = *size;
    found.push_back(std::move(segment));
  }
  std::sort(found.begin(), found.end(),
            [](const Segment& a, const Segment& b) { return a.start < b.start; });
  return found;
}

Result<OpenSegments> OpenSegments::open(const std::string& path) {
  for (int i = 0; i < kOpenTriesMax; ++i) {
    YARD_ASSIGN(std::vector<Segment> segments, full_segments(path));
    segments.push_back(
        {.path = path,
         .start = segments.empty() ? 0 : segments.back().start + segments.back().size,
         .size = 0});
    OpenSegments stream;
    bool moved = false;
    for (const Segment& segment : segments) {
      auto file = open_to_read(segment.path);
      // Alone and missing: it never was there, or was renamed since we listed the full ones.
      if (!file && segments.size() == 1) {
        YARD_ASSIGN(const auto renamed, full_segments(path));
        if (renamed.empty()) return std::move(file).error();
      }
      moved = moved || !file;
      if (!file) break;
      stream.files_.push_back(*std::move(file));
    }
    // A segment that was renamed or removed since we listed them has no sure place.
    YARD_ASSIGN(const auto now, full_segments(path));
    segments.pop_back();
    if (moved || !same(segments, now)) continue;
    struct stat status {};
    if (::fstat(stream.files_.back().get(), &status) != 0) return errno_error(path, errno);
    const uint64_t start = segments.empty() ? 0 : segments.back().start + segments.back().size;
    segments.push_back(
        {.path = path, .start = start, .size = static_cast<uint64_t>(status.st_size)});
    stream.end_ = start + segments.back().size;
    stream.segments_ = std::move(segments);
    return stream;
  }
  return Error{Code::kUnavailable, fmt::format("{}: rotated faster than it can be read", path)};
}

Result<std::string> OpenSegments::read(uint64_t offset, size_t count) const {
  std::string bytes;
  for (size_t i = 0; i < segments_.size() && bytes.size() < count; ++i) {
    const Segment& segment = segments_[i];
    const uint64_t at = offset + bytes.size();
    if (at < segment.start || at >= segment.start + segment.size) continue;
    const uint64_t left = segment.start + segment.size - at;
    const size_t wanted = std::min<uint64_t>(left, count - bytes.size());
    const size_t have = bytes.size();
    bytes.resize(have + wanted);
    const ssize_t got = ::pread(files_[i].get(), bytes.data() + have, wanted,
                                static_cast<off_t>(at - segment.start));
    if (got < 0) return errno_error(segment.path, errno);
    bytes.resize(have + static_cast<size_t>(got));
    if (static_cast<size_t>(got) < wanted) break;
  }
  return bytes;
}

Line parse_line(std::string_view line) {
  const size_t space = line.find(' ');
  int64_t t_ms = 0;
  if (space == std::string_view::npos || !parse_number(line.substr(0, space), t_ms) || t_ms < 0)
    return {.t_ms = -1, .text = line};
  return {.t_ms = t_ms, .text = line.substr(space + 1)};
}

}  // namespace yard::logs::internal
