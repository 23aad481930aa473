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

}  // namespace

Result<std::unique_ptr<Quarantine>> Quarantine::open(const std::string& path) {
  UniqueFd fd;
  if (!path.empty()) {
    fd = UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    if (!fd.valid()) return errno_error(path, errno);
  }
  return std::unique_ptr<Quarantine>(new Quarantine(std::move(fd)));
}

void Quarantine::add(uint64_t sample_id, const Error& error) {
  const int64_t line = ++log_line_count_;
  if (line <= kLogLinesMax) log_warning("skipped: {}", error.message);
  if (line == kLogLinesMax) log_warning("further skipped samples are only counted");
  if (!fd_.valid()) return;
  const nlohmann::json json = {{"sample_id", sample_id}, {"error", error.message}};
  const std::string text =
      json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  // One write of O_APPEND: lines of several ranks do not mix.
  if (::write(fd_.get(), text.data(), text.size()) != ssize_t(text.size()))
    log_warning("a skipped sample could not be written down: {}", errno_error("", errno).message);
}

}  // namespace yard::loader
