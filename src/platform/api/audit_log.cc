#include "api/audit_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/json.h"
#include "base/log.h"

namespace yard::api {

Result<std::unique_ptr<AuditLog>> AuditLog::open(Options options, const Clock& clock) {
  std::unique_ptr<AuditLog> log(new AuditLog(std::move(options), clock));
  YARD_TRY(log->open_file());
  return log;
}

Status AuditLog::open_file() {
  file_.reset(::open(options_.path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
  struct stat info = {};
  if (!file_.valid() || ::fstat(file_.get(), &info) != 0) return errno_error(options_.path, errno);
  size_bytes_ = uint64_t(info.st_size);
  return Ok{};
}

void AuditLog::rotate() {
  for (int i = options_.kept_count - 1; i >= 1; --i)
    (void)std::rename((options_.path + "." + std::to_string(i)).c_str(),
                      (options_.path + "." + std::to_string(i + 1)).c_str());
  (void)std::rename(options_.path.c_str(), (options_.path + ".1").c_str());
  if (const auto opened = open_file(); !opened) log_error("audit log: {}", opened.error().message);
}

void AuditLog::write(const AuditEntry& entry) {
  const Json line = {{"time", to_rfc3339(clock_.wall_now())},
                     {"user", entry.user},
                     {"access_key", entry.access_key},
                     {"address", entry.address},
                     {"service", entry.service},
                     {"operation", entry.operation},
                     {"resource", entry.resource},
                     {"outcome", entry.outcome},
                     {"request_id", entry.request_id}};
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  const std::lock_guard lock(mutex_);
  if (size_bytes_ > 0 && size_bytes_ + text.size() > options_.size_bytes_max) rotate();
  // One call, so that lines of two processes never mix.
  if (::write(file_.get(), text.data(), text.size()) != ssize_t(text.size()))
    log_error("audit log: {}", errno_error(options_.path, errno).message);
  else
    size_bytes_ += text.size();
}

}  // namespace yard::api
