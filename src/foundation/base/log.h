// Log lines for people (text) or machines (JSON lines), behind spdlog and fmt.
//
//   log_info("restored step {} from {}", step, path);
//
// The process-wide sink is the one piece of global state in the code base: main() configures it,
// everything else only writes. Thread-safe. Never log secrets.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace yard {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kText, kJsonLines };

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;
  std::string file;    // empty: stderr
  std::string source;  // who speaks, e.g. "rank 1"; shown in each line when not empty
};

// kInvalidArgument or kNotFound when the file cannot be opened.
Status configure_log(const LogOptions& options);
void write_log(LogLevel level, std::string_view message);
bool log_enabled(LogLevel level);

template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(LogLevel::kDebug))
    write_log(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  write_log(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  write_log(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  write_log(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace yard
