#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "loader/quarantine_internal.h"

namespace yard::loader {
namespace {

constexpr int64_t kLogLinesMax = 20;
// Of samples that are bad; who has more of them gets some lines twice.
constexpr size_t kKnownMax = 1 << 20;

}  // namespace

Result<std::unique_ptr<Quarantine>> Quarantine::open(const std::string& path) {
  UniqueFd fd;
  if (!path.empty()) {
    fd = UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    if (!fd.valid()) return errno_error(path, errno);
  }
  return std::unique_ptr<Quarantine>(new Quarantine(path, std::move(fd)));
}

bool Quarantine::is_new(uint64_t sample_id) {
  const std::lock_guard lock(mutex_);
  if (known_.size() >= kKnownMax) known_.clear();
  return known_.insert(sample_id).second;
}

void Quarantine::add(uint64_t sample_id, const Error& error) {
  if (!is_new(sample_id)) return;
  const int64_t line = ++log_line_count_;
  if (line <= kLogLinesMax) log_warning("skipped: {}", error.message);
  if (line == kLogLinesMax) log_warning("further skipped samples are only counted");
  if (!fd_.valid()) return;
  const nlohmann::json json = {{"sample_id", sample_id}, {"error", error.message}};
  const std::string text =
      json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  // One write of O_APPEND: lines of several ranks do not mix.
  const ssize_t written = ::write(fd_.get(), text.data(), text.size());
  if (written == ssize_t(text.size()) || has_failed_.exchange(true)) return;
  log_warning("{}; it is incomplete from here on",
              errno_error(path_, written < 0 ? errno : ENOSPC).message);
}

}  // namespace yard::loader
