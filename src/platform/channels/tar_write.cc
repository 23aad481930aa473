#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "base/log.h"
#include "channels/tar_tree.h"
#include "shards/tar_header.h"

namespace yard::channels {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPieceBytes = 1 << 20;
// Fields of ustar that shards' writer does not set.
constexpr size_t kModeAt = 100, kTimeAt = 136, kChecksumAt = 148, kTypeAt = 156, kLinkAt = 157;
constexpr size_t kLinkBytesMax = 100;

struct Entry {
  std::string path;
  struct stat info = {};
};
// By the name in the archive, folders with a '/' behind.
using Entries = std::map<std::string, Entry>;

void collect(const std::string& root, Entries& entries) {
  std::error_code error;
  auto it = fs::recursive_directory_iterator(root, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    Entry entry{.path = it->path()};
    if (::lstat(entry.path.c_str(), &entry.info) != 0) continue;  // gone meanwhile
    std::string name = fs::path(entry.path).lexically_relative(root);
    std::error_code of_folder;
    if (S_ISDIR(entry.info.st_mode)) {
      if (!fs::is_empty(entry.path, of_folder)) continue;
      name += '/';
    } else if (!S_ISREG(entry.info.st_mode) && !S_ISLNK(entry.info.st_mode)) {
      log_warning("{}: is no file, and left out", entry.path);
      continue;
    }
    entries.emplace(std::move(name), std::move(entry));
  }
}

Entries collect_all(const std::vector<std::string>& folders) {
  Entries entries;
  for (const std::string& folder : folders) collect(folder, entries);
  return entries;
}

void set_octal(std::byte* block, size_t at, size_t digits, uint64_t value) {
  const std::string text = fmt::format("{:0{}o}", value, digits);
  std::memcpy(block + at, text.data(), digits);
}

// The last block of `header` gets what the file's own entry says.
void adapt_header(std::vector<std::byte>& header, const Entry& entry, char type,
                  const std::string& link) {
  std::byte* const block = header.data() + header.size() - shards::kTarBlockBytes;
  set_octal(block, kModeAt, 7, entry.info.st_mode & 07777);
  if (entry.info.st_mtime > 0)
    set_octal(block, kTimeAt, 11, std::min<uint64_t>(uint64_t(entry.info.st_mtime), 077777777777));
  block[kTypeAt] = std::byte(type);
  if (!link.empty()) std::memcpy(block + kLinkAt, link.data(), link.size());
  std::memset(block + kChecksumAt, ' ', 8);
  uint64_t sum = 0;
  for (size_t i = 0; i < shards::kTarBlockBytes; ++i) sum += std::to_integer<unsigned>(block[i]);
  set_octal(block, kChecksumAt, 6, sum);
  block[kChecksumAt + 6] = std::byte{0};
}

Status write_content(const Entry& entry, std::vector<std::byte>& buffer, const ByteSink& sink) {
  const UniqueFd file(::open(entry.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.valid()) return errno_error(entry.path, errno);
  uint64_t left = uint64_t(entry.info.st_size);
  while (left > 0) {
    const ssize_t got =
        ::read(file.get(), buffer.data(), size_t(std::min<uint64_t>(left, buffer.size())));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(entry.path, errno);
    if (got == 0) return Error{Code::kCorrupt, entry.path + ": became shorter while it was packed"};
    YARD_TRY(sink(std::span(buffer).first(size_t(got))));
    left -= uint64_t(got);
  }
  const std::vector<std::byte> padding(shards::padded_to_block(uint64_t(entry.info.st_size)) -
                                       uint64_t(entry.info.st_size));
  return sink(padding);
}

Status write_entry(const std::string& name, const Entry& entry, std::vector<std::byte>& buffer,
                   const ByteSink& sink) {
  const bool is_file = S_ISREG(entry.info.st_mode);
  std::string link;
  if (S_ISLNK(entry.info.st_mode)) {
    std::error_code error;
    link = fs::read_symlink(entry.path, error).string();
    if (error || link.size() > kLinkBytesMax) {
      log_warning("{}: where the link leads is too long a name: left out", entry.path);
      return Ok{};
    }
  }
  auto header = shards::tar_member_header(name, is_file ? uint64_t(entry.info.st_size) : 0);
  adapt_header(header, entry, is_file ? '0' : S_ISDIR(entry.info.st_mode) ? '5' : '2', link);
  YARD_TRY(sink(header));
  return is_file ? write_content(entry, buffer, sink) : Status(Ok{});
}

}  // namespace

Status write_tar(const std::vector<std::string>& folders, const ByteSink& sink) {
  std::vector<std::byte> buffer(kPieceBytes);
  for (const auto& [name, entry] : collect_all(folders))
    YARD_TRY(write_entry(name, entry, buffer, sink));
  const std::vector<std::byte> end(2 * shards::kTarBlockBytes);
  return sink(end);
}

bool has_files(const std::vector<std::string>& folders) {
  return !collect_all(folders).empty();
}

}  // namespace yard::channels
