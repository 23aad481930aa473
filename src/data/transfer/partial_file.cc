#include "transfer/partial_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "net/checksums.h"

namespace yard::transfer {
namespace {

constexpr size_t kNameBytesMax = 255;
constexpr size_t kHeaderBytesMax = 16 << 10;
constexpr std::string_view kMagic = "yard partial file 1";
constexpr char kArrived = 1;
constexpr uint64_t kFileBytesMax = uint64_t{1} << 50;  // also bounds the record of parts

std::string directory_of(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

Status sync_directory(const std::string& path) {
  const UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return errno_error(path, errno);
  // Some network file systems cannot sync a directory and say EINVAL; the rename stands.
  if (::fsync(folder.get()) != 0 && errno != EINVAL) return errno_error(path, errno);
  return Ok{};
}

timespec timespec_of(std::chrono::system_clock::time_point time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  const auto rest = std::chrono::duration_cast<std::chrono::nanoseconds>(time - whole);
  return {whole.time_since_epoch().count(), rest.count()};
}

std::string read_text_at(int fd, uint64_t offset, size_t bytes_max) {
  std::string text(bytes_max, '\0');
  const ssize_t got = ::pread(fd, text.data(), text.size(), off_t(offset));
  text.resize(size_t(std::max<ssize_t>(0, got)));
  return text;
}

// 0 or errno.
int give_name(const std::string& hidden, const std::string& path, bool if_absent) {
  if (if_absent) {
    if (::renameat2(AT_FDCWD, hidden.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0)
      return 0;
    if (errno != EINVAL) return errno;
    // Some network file systems cannot say that; who comes at this very moment is not seen there.
    struct stat info = {};
    if (::lstat(path.c_str(), &info) == 0) return EEXIST;
  }
  return ::rename(hidden.c_str(), path.c_str()) == 0 ? 0 : errno;
}

}  // namespace

Error already_exists_error(const std::string& path) {
  return {Code::kInvalidArgument, path + ": already exists"};
}

std::string partial_path(const std::string& path) {
  const std::filesystem::path split(path);
  std::string name = split.filename().string();
  if (name.size() + kPartialSuffix.size() + 1 > kNameBytesMax) {
    constexpr size_t kHashDigits = 16;
    const std::string hash = sha256_hex(name).substr(0, kHashDigits);
    name.resize(kNameBytesMax - kPartialSuffix.size() - 2 - kHashDigits);
    name += "-" + hash;
  }
  return (split.parent_path() / fmt::format(".{}{}", name, kPartialSuffix)).string();
}

std::string current_boot_id() {
  auto id = read_file("/proc/sys/kernel/random/boot_id", 100);
  if (!id) return {};
  while (id->ends_with('\n')) id->pop_back();
  return *std::move(id);
}

PartialFile::~PartialFile() {
  // Nothing arrived: nothing to go on with.
  if (fd_.valid() && count_parts() == 0) discard();
}

size_t PartialFile::count_parts() const {
  return size_t(std::ranges::count(arrived_, kArrived));
}

uint64_t PartialFile::part_size_bytes(size_t index) const {
  return std::min(identity_.part_bytes, identity_.size_bytes - part_offset(index));
}

Result<PartialFile> PartialFile::open(const std::string& path, Identity identity,
                                      const std::string& boot_id) {
  YARD_CHECK(std::has_single_bit(identity.part_bytes));
  if (identity.size_bytes > kFileBytesMax)
    return Error{Code::kExhausted, fmt::format("{}: {} bytes are more than a file can have", path,
                                               identity.size_bytes)};
  const std::string hidden = partial_path(path);
  for (int attempt = 0; attempt < 16; ++attempt) {
    UniqueFd fd(::open(hidden.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (!fd.valid()) return errno_error(path, errno);
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
      return errno == EWOULDBLOCK
                 ? Error{Code::kUnavailable, path + ": another process is writing this file"}
                 : errno_error(path, errno);
    // Whoever had it before may have given it its name, or removed it, while we came.
    struct stat named = {}, opened = {};
    if (::fstat(fd.get(), &opened) != 0) return errno_error(path, errno);
    if (::stat(hidden.c_str(), &named) != 0 || named.st_ino != opened.st_ino) continue;
    PartialFile file(path, hidden, std::move(identity), std::move(fd));
    if (!file.resume(boot_id)) YARD_TRY(file.start(boot_id));
    return file;
  }
  return Error{Code::kUnavailable, path + ": other processes are writing this file"};
}

std::string PartialFile::header(const std::string& boot_id) const {
  return fmt::format("{}\nboot {}\nsource {}\nsize_bytes {}\npart_bytes {:016x}\n", kMagic, boot_id,
                     sha256_hex(identity_.source), identity_.size_bytes, identity_.part_bytes);
}

Status PartialFile::start(const std::string& boot_id) {
  const uint64_t part_count =
      (identity_.size_bytes + identity_.part_bytes - 1) / identity_.part_bytes;
  arrived_.assign(part_count, 0);
  if (::ftruncate(fd_.get(), 0) != 0) return errno_error(path_, errno);
  // One part needs no record: it is there or it is not.
  if (part_count <= 1) return Ok{};
  const std::string text = header(boot_id);
  record_offset_ = identity_.size_bytes + text.size();
  if (::ftruncate(fd_.get(), off_t(record_offset_ + part_count)) != 0)
    return errno_error(path_, errno);
  return write_at(identity_.size_bytes, std::as_bytes(std::span(text)));
}

bool PartialFile::resume(const std::string& boot_id) {
  struct stat info = {};
  if (boot_id.empty() || ::fstat(fd_.get(), &info) != 0 ||
      uint64_t(info.st_size) <= identity_.size_bytes)
    return false;
  const std::string text = read_text_at(fd_.get(), identity_.size_bytes, kHeaderBytesMax);
  constexpr std::string_view kField = "\npart_bytes ";
  const size_t field = text.find(kField);
  if (field == text.npos) return false;
  const uint64_t wanted_part_bytes = identity_.part_bytes;
  unsigned long part_bytes = 0;
  if (std::sscanf(text.c_str() + field + kField.size(), "%16lx\n", &part_bytes) != 1 ||
      !std::has_single_bit(part_bytes))
    return false;
  identity_.part_bytes = part_bytes;
  const std::string expected = header(boot_id);
  const uint64_t part_count = (identity_.size_bytes + part_bytes - 1) / part_bytes;
  record_offset_ = identity_.size_bytes + expected.size();
  const std::string record = read_text_at(fd_.get(), record_offset_, part_count);
  if (!text.starts_with(expected) || record.size() != part_count ||
      uint64_t(info.st_size) != record_offset_ + part_count) {
    identity_.part_bytes = wanted_part_bytes;
    return false;
  }
  arrived_.assign(record.begin(), record.end());
  return true;
}

Status PartialFile::write_at(uint64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd_.get(), bytes.data(), bytes.size(), off_t(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno_error(path_, errno);
    bytes = bytes.subspan(size_t(written));
    offset += uint64_t(written);
  }
  return Ok{};
}

Status PartialFile::write(size_t index, uint64_t position, std::span<const std::byte> bytes) const {
  YARD_CHECK(position + bytes.size() <= part_size_bytes(index));
  return write_at(part_offset(index) + position, bytes);
}

Status PartialFile::mark_part(size_t index) {
  if (record_offset_ != 0)
    YARD_TRY(write_at(record_offset_ + index, std::as_bytes(std::span(&kArrived, 1))));
  arrived_[index] = kArrived;
  return Ok{};
}

Status PartialFile::read(size_t index, uint64_t position, std::span<std::byte> out) const {
  YARD_CHECK(position + out.size() <= part_size_bytes(index));
  uint64_t offset = part_offset(index) + position;
  while (!out.empty()) {
    const ssize_t got = ::pread(fd_.get(), out.data(), out.size(), off_t(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(hidden_, errno);
    if (got == 0) return Error{Code::kCorrupt, hidden_ + ": is shorter than it was"};
    out = out.subspan(size_t(got));
    offset += uint64_t(got);
  }
  return Ok{};
}

Status PartialFile::finish(const FinishOptions& options) {
  YARD_CHECK(count_parts() == part_count());
  if (::ftruncate(fd_.get(), off_t(identity_.size_bytes)) != 0) return errno_error(path_, errno);
  if (options.modified.time_since_epoch().count() != 0) {
    const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, timespec_of(options.modified)};
    if (::futimens(fd_.get(), times) != 0) return errno_error(path_, errno);
  }
  if (options.sync && ::fsync(fd_.get()) != 0) return errno_error(path_, errno);
  const int why = give_name(hidden_, path_, options.if_absent);
  if (why != 0) {
    if (why == EEXIST) return already_exists_error(path_);
    if (why == EISDIR) return Error{Code::kInvalidArgument, path_ + ": there is a folder here"};
    return errno_error(path_, why);
  }
  fd_.reset();
  if (options.sync) return sync_directory(directory_of(path_));
  return Ok{};
}

void PartialFile::discard() {
  ::unlink(hidden_.c_str());
  fd_.reset();
}

}  // namespace yard::transfer
