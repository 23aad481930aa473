#include "base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "base/json.h"

namespace yard {
namespace {

struct Sink {
  std::shared_ptr<spdlog::logger> logger;
  LogFormat format = LogFormat::kText;
  std::string source;
};

std::shared_ptr<spdlog::logger> make_logger(spdlog::sink_ptr sink) {
  auto logger = std::make_shared<spdlog::logger>("yard", std::move(sink));
  logger->set_pattern("%v");  // we write the whole line ourselves, in either format
  logger->set_level(spdlog::level::trace);
  logger->flush_on(spdlog::level::trace);
  return logger;
}

std::atomic<LogLevel> level_min = LogLevel::kInfo;
std::mutex sink_mutex;

std::shared_ptr<Sink>& current_sink() {
  static auto sink = std::make_shared<Sink>(
      Sink{make_logger(std::make_shared<spdlog::sinks::stderr_sink_mt>()), LogFormat::kText, ""});
  return sink;
}

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

std::string line_of(const Sink& sink, LogLevel level, std::string_view message) {
  const std::string time = to_rfc3339(Clock::real().wall_now());
  if (sink.format == LogFormat::kJsonLines) {
    Json line = {{"time", time}, {"level", name_of(level)}, {"message", message}};
    if (!sink.source.empty()) line["source"] = sink.source;
    return line.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  const std::string level_text = level == LogLevel::kInfo ? "" : std::string(name_of(level)) + ": ";
  const std::string source = sink.source.empty() ? "" : "[" + sink.source + "] ";
  return fmt::format("{} {}{}{}", time, source, level_text, message);
}

}  // namespace

Status configure_log(const LogOptions& options) {
  auto sink = std::make_shared<Sink>();
  sink->format = options.format;
  sink->source = options.source;
  try {
    sink->logger =
        options.file.empty()
            ? make_logger(std::make_shared<spdlog::sinks::stderr_sink_mt>())
            : make_logger(std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file));
  } catch (const spdlog::spdlog_ex& error) {
    return Error{Code::kInvalidArgument, options.file + ": cannot open log: " + error.what()};
  }
  level_min = options.level;
  std::lock_guard lock(sink_mutex);
  current_sink() = std::move(sink);
  return Ok{};
}

bool log_enabled(LogLevel level) {
  return level >= level_min.load(std::memory_order_relaxed);
}

void write_log(LogLevel level, std::string_view message) {
  if (!log_enabled(level)) return;
  std::shared_ptr<Sink> sink;
  {
    std::lock_guard lock(sink_mutex);
    sink = current_sink();
  }
  sink->logger->info(line_of(*sink, level, message));
}

}  // namespace yard
