#include "base/log.h"

#include <fcntl.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"

namespace yard {
namespace {

struct Log {
  std::shared_ptr<spdlog::logger> logger;
  LogFormat format = LogFormat::kText;
  std::string source;
};

std::string_view name_of(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  YARD_UNREACHABLE();
}

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  YARD_UNREACHABLE();
}

std::shared_ptr<Log> make_log(const LogOptions& options, spdlog::sink_ptr sink) {
  auto log = std::make_shared<Log>();
  log->logger = std::make_shared<spdlog::logger>("yard", std::move(sink));
  log->format = options.format;
  log->source = options.source;
  const bool text = options.format == LogFormat::kText;
  log->logger->set_formatter(std::make_unique<spdlog::pattern_formatter>(
      text ? "%Y-%m-%dT%H:%M:%S.%eZ %^%-7l%$ %v" : "%v", spdlog::pattern_time_type::utc));
  log->logger->set_level(spdlog::level::debug);  // log_enabled() decides
  // The last lines before a crash are the ones that matter.
  log->logger->flush_on(spdlog::level::debug);
  return log;
}

std::atomic<LogLevel> current_level = LogLevel::kInfo;

// Never destroyed: threads may still log while main() returns.
struct Global {
  std::mutex mutex;
  std::shared_ptr<Log> log = make_log({}, std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
};

Global& global() {
  static auto* instance = new Global;
  return *instance;
}

std::shared_ptr<Log> current_log() {
  std::lock_guard lock(global().mutex);
  return global().log;
}

// spdlog would throw a text without the error number, so we try the path first.
Status check_writable(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file.valid()) return errno_error(path, errno);
  return Ok{};
}

Result<spdlog::sink_ptr> make_sink(const std::string& file) {
  try {
    if (file.empty())
      return spdlog::sink_ptr(std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    return spdlog::sink_ptr(std::make_shared<spdlog::sinks::basic_file_sink_mt>(file));
  } catch (const spdlog::spdlog_ex& error) {
    return Error{Code::kInvalidArgument, file + ": " + error.what()};
  }
}

std::string json_line(const Log& log, LogLevel level, std::string_view message) {
  Json line = {{"time", to_rfc3339(Clock::real().wall_now())}, {"level", name_of(level)}};
  if (!log.source.empty()) line["source"] = log.source;
  line["message"] = message;
  // A message may quote bytes that are not UTF-8; the line must stay JSON.
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

Status configure_log(const LogOptions& options) {
  if (!options.file.empty()) YARD_TRY(check_writable(options.file));
  YARD_ASSIGN(auto sink, make_sink(options.file));
  auto log = make_log(options, std::move(sink));
  std::lock_guard lock(global().mutex);
  global().log = std::move(log);
  current_level.store(options.level, std::memory_order_relaxed);
  return Ok{};
}

bool log_enabled(LogLevel level) {
  return level >= current_level.load(std::memory_order_relaxed);
}

void write_log(LogLevel level, std::string_view message) {
  if (!log_enabled(level)) return;
  const auto log = current_log();
  if (log->format == LogFormat::kJsonLines)
    log->logger->log(spdlog_level(level), json_line(*log, level, message));
  else if (log->source.empty())
    log->logger->log(spdlog_level(level), message);
  else
    log->logger->log(spdlog_level(level), "[{}] {}", log->source, message);
}

}  // namespace yard
