#include "host/reserved_python.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/json.h"
#include "host/embedded_internal.h"

namespace yard::host {
namespace {

constexpr std::string_view kReady = "ready";
constexpr timeval kSendTimeout = {.tv_sec = 10, .tv_usec = 0};

Error gone() {
  return {Code::kUnavailable, "the interpreter that was kept ready has ended"};
}

// The length, and with it the descriptor.
Status send_head(int socket, uint32_t size_bytes, int output_fd) {
  iovec part = {.iov_base = &size_bytes, .iov_len = sizeof size_bytes};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &output_fd, sizeof output_fd);
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == ssize_t(sizeof size_bytes) ? Status(Ok{})
                                                                                 : Status(gone());
}

Status send_body(int socket, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return gone();
    text.remove_prefix(size_t(put));
  }
  return Ok{};
}

}  // namespace

std::vector<std::string> fork_server_command(const std::string& python,
                                             const std::vector<std::string>& modules) {
  std::vector<std::string> command = {python, "-c",
                                      std::string(embedded_program("fork_server.py"))};
  command.insert(command.end(), modules.begin(), modules.end());
  return command;
}

Result<std::unique_ptr<ReservedPython>> ReservedPython::start(SubprocessOptions sandbox) {
  std::array<int, 2> ends = {};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return errno_error("socketpair", errno);
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  ::setsockopt(ours.get(), SOL_SOCKET, SO_SNDTIMEO, &kSendTimeout, sizeof kSendTimeout);
  sandbox.stdin_fd = theirs.get();
  YARD_ASSIGN(Subprocess process, Subprocess::spawn(sandbox));
  return std::unique_ptr<ReservedPython>(new ReservedPython(std::move(process), std::move(ours)));
}

bool ReservedPython::is_ready() {
  if (is_ready_) return !process_.wait(std::chrono::milliseconds(0));
  std::array<char, 16> buffer;
  const ssize_t got = ::recv(socket_.get(), buffer.data(), kReady.size(), MSG_DONTWAIT);
  is_ready_ = got > 0 && std::string_view(buffer.data(), size_t(got)) == kReady;
  return is_ready_;
}

Result<Subprocess> ReservedPython::run(const ReservedProgram& program) && {
  YARD_CHECK(is_ready_);
  const Json request = {{"argv", program.command},
                        {"env", program.env},
                        {"cwd", program.cwd},
                        {"plain", program.is_plain},
                        {"becomes", program.becomes_it}};
  const std::string text = request.dump(-1, ' ', true, Json::error_handler_t::replace);
  YARD_TRY(send_head(socket_.get(), uint32_t(text.size()), program.output_fd));
  YARD_TRY(send_body(socket_.get(), text));
  return std::move(process_);
}

}  // namespace yard::host
