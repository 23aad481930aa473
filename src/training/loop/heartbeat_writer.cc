#include "loop/heartbeat_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/log.h"

namespace yard::loop {

Result<HeartbeatWriter> HeartbeatWriter::open(const std::string& path, Clock& clock) {
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file.valid()) return errno_error(path, errno);
  return HeartbeatWriter(std::move(file), clock);
}

void HeartbeatWriter::tell(std::string_view event, Json fields) {
  if (!file_.valid()) return;
  fields["t"] = to_unix_seconds(clock_->wall_now());
  fields["event"] = event;
  // One write(2) with O_APPEND: lines of several writers do not mix.
  const std::string line = fields.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  const ssize_t written = ::write(file_.get(), line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size()) || complained_.exchange(true)) return;
  log_warning("heartbeats cannot be written: {}",
              written < 0 ? errno_error("heartbeat", errno).message : "short write");
}

}  // namespace yard::loop
