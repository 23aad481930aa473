#include "host/job_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/ids.h"
#include "base/json.h"

namespace yard::host {
namespace {

constexpr uint64_t kSpecBytesMax = uint64_t{16} << 20;

Status write_whole(int fd, const std::string& path, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno_error(path, errno);
    content.remove_prefix(static_cast<size_t>(written));
  }
  return Ok{};
}

Status write_new_file(const std::string& path, std::string_view content) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file.valid()) return errno_error(path, errno);
  return write_whole(file.get(), path, content);
}

// mkdir, not mkdir -p: of two that make the same job at once, one is told.
Status make_own_directory(const std::string& dir) {
  if (::mkdir(dir.c_str(), 0777) == 0) return Ok{};
  if (errno == EEXIST) return Error{Code::kInvalidArgument, dir + ": already exists"};
  return errno_error(dir, errno);
}

Status fill_job_folder(const JobFolder& folder, const jobs::JobSpec& spec) {
  YARD_TRY(make_own_directory(folder.heartbeats()));
  YARD_TRY(make_own_directory(folder.logs()));
  YARD_TRY(make_directories(spec.output_dir));
  if (::access(spec.output_dir.c_str(), W_OK) != 0) return errno_error(spec.output_dir, errno);
  if (::mkfifo(folder.control().c_str(), 0600) != 0) return errno_error(folder.control(), errno);
  return write_file_atomic(folder.spec(), jobs::to_json(spec).dump(2) + "\n");
}

}  // namespace

std::string JobFolder::heartbeat(int rank) const {
  return fmt::format("{}/heartbeats/rank-{}.jsonl", dir, rank);
}

std::string JobFolder::rank_log(int rank) const {
  return fmt::format("{}/logs/rank-{}.log", dir, rank);
}

Status create_job_folder(const JobFolder& folder, const jobs::JobSpec& spec) {
  YARD_TRY(jobs::check_spec(spec));
  const auto slash = folder.dir.rfind('/');
  if (slash != std::string::npos && slash > 0)
    YARD_TRY(make_directories(folder.dir.substr(0, slash)));
  YARD_TRY(make_own_directory(folder.dir));
  Status filled = fill_job_folder(folder, spec);
  if (filled) return filled;
  // Half a job must not keep the name.
  std::error_code ignored;
  std::filesystem::remove_all(folder.dir, ignored);
  return filled;
}

Result<jobs::JobSpec> read_spec(const JobFolder& folder) {
  YARD_ASSIGN(const std::string content, read_file(folder.spec(), kSpecBytesMax));
  YARD_ASSIGN(const Json json, parse_json(content, folder.spec()));
  return jobs::job_spec_from_json(json, folder.spec());
}

Status replace_file(const std::string& path, std::string_view content) {
  const std::string temporary = path + ".tmp-" + random_name(8);
  Status written = write_new_file(temporary, content);
  if (written && ::rename(temporary.c_str(), path.c_str()) != 0) written = errno_error(path, errno);
  if (!written) ::unlink(temporary.c_str());
  return written;
}

Status append_line(int fd, const std::string& path, std::string_view line) {
  return write_whole(fd, path, std::string(line) + "\n");
}

Result<UniqueFd> open_for_append(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file.valid()) return errno_error(path, errno);
  return file;
}

Status send_control(const JobFolder& folder, std::string_view word) {
  const std::string path = folder.control();
  const UniqueFd fifo(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  if (!fifo.valid() && errno == ENXIO)
    return Error{Code::kUnavailable, path + ": no supervisor listens"};
  if (!fifo.valid()) return errno_error(path, errno);
  return append_line(fifo.get(), path, word);
}

}  // namespace yard::host
