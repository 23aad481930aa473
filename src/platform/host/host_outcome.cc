#include "host/host_outcome.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "base/exit_code.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

namespace yard::host {
namespace {

using jobs::HostCause;
using jobs::HostOutcome;

constexpr size_t kReasonBytesMax = 1024;
constexpr uint64_t kFailureFileBytesMax = uint64_t{64} << 20;

std::string failure_path(const jobs::HostFolder& folder) {
  return folder.ml() + "/output/failure";
}

HostEnd failed_by(HostCause cause, std::string reason) {
  return {
      .outcome = HostOutcome::kFailed, .exit_code = 0, .reason = std::move(reason), .cause = cause};
}

}  // namespace

HostEnd HostEnd::stopped(int exit_code) {
  return {.outcome = HostOutcome::kStopped,
          .exit_code = exit_code,
          .reason = {},
          .cause = HostCause::kStopped};
}

HostEnd HostEnd::host_fault(const std::string& why) {
  return failed_by(HostCause::kHostFault, "InternalServerError: " + why);
}

HostEnd HostEnd::failed(const jobs::HostFolder& folder, int exit_code, const std::string& error,
                        HostCause cause) {
  const auto file = read_file(failure_path(folder), kFailureFileBytesMax);
  const std::string text = utf8_prefix(file && !file->empty() ? *file : error, kReasonBytesMax);
  return {.outcome = HostOutcome::kFailed,
          .exit_code = exit_code,
          .reason = fmt::format("AlgorithmError: {}, exit code: {}", text, exit_code),
          .cause = cause};
}

HostCause cause_of_program(const std::vector<std::string>& command, int exit_code) {
  const bool is_launcher = command.size() > 1 && command[1] == "launch" &&
                           std::filesystem::path(command[0]).filename() == "yard";
  if (is_launcher && meaning_of_exit(exit_code, 0) == ExitMeaning::kRetryable)
    return HostCause::kUnavailable;
  return HostCause::kUserError;
}

HostEnd end_of_preparation(const Error& error) {
  switch (error.code) {
    case Code::kNotFound:
    case Code::kInvalidArgument:
    case Code::kCorrupt:
      return failed_by(HostCause::kUserError, "ClientError: " + error.message);
    case Code::kCancelled:
      return HostEnd::stopped();
    case Code::kUnavailable:
    case Code::kDeadlineExceeded:
      return failed_by(HostCause::kUnavailable, "InternalServerError: " + error.message);
    case Code::kExhausted:
    case Code::kInternal:
      return HostEnd::host_fault(error.message);
  }
  YARD_UNREACHABLE();
}

HostEnd end_of_upload(const Error& error) {
  HostEnd end = end_of_preparation(error);
  if (end.outcome == HostOutcome::kFailed)
    end.reason =
        fmt::format("{}: uploading: {}", end.reason.substr(0, end.reason.find(':')), error.message);
  return end;
}

void write_failure(const jobs::HostFolder& folder, const std::string& text) {
  const std::string path = failure_path(folder);
  if (::access(path.c_str(), F_OK) == 0) return;
  if (const Status written = write_file_atomic(path, text); !written)
    log_warning("{}", written.error().message);
}

std::string utf8_prefix(std::string_view text, size_t size_max) {
  std::string_view cut = text.substr(0, size_max);
  // A lead byte whose character does not fit goes with it.
  if (cut.size() < text.size()) {
    size_t end = cut.size();
    while (end > 0 && cut.size() - end < 4 && (uint8_t(text[end]) & 0xc0) == 0x80) --end;
    cut = cut.substr(0, end);
  }
  const std::string quoted =
      Json(std::string(cut)).dump(-1, ' ', false, Json::error_handler_t::replace);
  const auto clean = parse_json(quoted, "text");
  return clean ? clean->get<std::string>() : std::string();
}

}  // namespace yard::host
