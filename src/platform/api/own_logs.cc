#include "api/own_logs.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/file.h"
#include "logs/log_stream.h"
#include "net/checksums.h"

namespace yard::api {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNameSuffix = ".name";
constexpr size_t kHashDigits = 32;

// Names of AWS may hold '/' and be longer than those of files.
std::string hash_of(const std::string& name) {
  return sha256_hex(name).substr(0, kHashDigits);
}

Result<double> time_of_file(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return errno_error(path, errno);
  return static_cast<double>(status.st_mtim.tv_sec) +
         static_cast<double>(status.st_mtim.tv_nsec) / 1e9;
}

Result<OwnLogName> read_name(const std::string& path) {
  YARD_ASSIGN(std::string name, read_file(path));
  YARD_ASSIGN(const double created_t, time_of_file(path));
  return OwnLogName{std::move(name), "", created_t};
}

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

Error no_such(const std::string& name) {
  return {Code::kNotFound, name};
}

// At least one piece, also of empty text.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (true) {
    const size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    if (end == text.npos || end + 1 == text.size()) return lines;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

std::string OwnLogs::group_dir(const std::string& group) const {
  return dir_ + "/" + hash_of(group);
}

Status OwnLogs::check_group(const std::string& group) const {
  if (exists(group_dir(group) + "/name")) return Ok{};
  return no_such(group);
}

Status OwnLogs::create_group(const std::string& group) {
  const std::lock_guard lock(mutex_);
  const std::string dir = group_dir(group);
  if (exists(dir + "/name")) return Error{Code::kExhausted, group + ": there already"};
  YARD_TRY(make_directories(dir));
  return write_file_atomic(dir + "/name", group);
}

Status OwnLogs::create_stream(const std::string& group, const std::string& stream) {
  const std::lock_guard lock(mutex_);
  YARD_TRY(check_group(group));
  const std::string path = group_dir(group) + "/" + hash_of(stream) + std::string(kNameSuffix);
  if (exists(path)) return Error{Code::kExhausted, stream + ": there already"};
  return write_file_atomic(path, stream);
}

Status OwnLogs::remove_group(const std::string& group) {
  const std::lock_guard lock(mutex_);
  YARD_TRY(check_group(group));
  std::error_code error;
  fs::remove_all(group_dir(group), error);
  if (error) return errno_error(group_dir(group), error.value());
  return Ok{};
}

Status OwnLogs::remove_stream(const std::string& group, const std::string& stream) {
  const std::lock_guard lock(mutex_);
  YARD_TRY(check_group(group));
  const std::string hash = hash_of(stream);
  const std::string dir = group_dir(group);
  if (!exists(dir + "/" + hash + std::string(kNameSuffix))) return no_such(stream);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error))
    if (entry.path().filename().string().starts_with(hash)) fs::remove(entry.path(), error);
  if (error) return errno_error(dir, error.value());
  return Ok{};
}

Result<std::vector<OwnLogName>> OwnLogs::groups() const {
  std::vector<OwnLogName> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir_, error)) {
    auto name = read_name(entry.path().string() + "/name");
    if (name) found.push_back(*std::move(name));  // else it is just being removed
  }
  std::ranges::sort(found, {}, &OwnLogName::name);
  return found;
}

Result<std::vector<OwnLogName>> OwnLogs::streams(const std::string& group) const {
  YARD_TRY(check_group(group));
  std::vector<OwnLogName> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(group_dir(group), error)) {
    std::string path = entry.path().string();
    if (!path.ends_with(kNameSuffix)) continue;
    auto name = read_name(path);
    if (!name) continue;
    path.resize(path.size() - kNameSuffix.size());
    name->path = path + ".log";
    found.push_back(*std::move(name));
  }
  std::ranges::sort(found, {}, &OwnLogName::name);
  return found;
}

Result<OwnLogName> OwnLogs::stream(const std::string& group, const std::string& stream) const {
  YARD_TRY(check_group(group));
  const std::string base = group_dir(group) + "/" + hash_of(stream);
  auto name = read_name(base + std::string(kNameSuffix));
  if (!name) return name.error().code == Code::kNotFound ? no_such(stream) : name.error();
  name->path = base + ".log";
  return name;
}

Status OwnLogs::put(const std::string& group, const std::string& stream,
                    const std::vector<OwnLogEvent>& events) {
  const std::lock_guard lock(mutex_);
  YARD_ASSIGN(const OwnLogName found, this->stream(group, stream));
  YARD_ASSIGN(auto writer, logs::LogWriter::open({.path = found.path}));
  for (const OwnLogEvent& event : events)
    YARD_TRY(writer.append_at(event.t_ms, lines_of(event.text)));
  return Ok{};
}

}  // namespace yard::api
