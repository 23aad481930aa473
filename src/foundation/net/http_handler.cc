// Request and ResponseWriter: the handler's view of an Exchange.
#include <sys/socket.h>

#include <chrono>

#include "net/exchange_internal.h"

namespace yard {

using net_internal::Exchange;

std::string_view Request::method() const {
  return exchange_.head().method;
}
std::string_view Request::target() const {
  return exchange_.head().target;
}
std::string_view Request::path() const {
  return target().substr(0, target().find('?'));
}

std::string_view Request::query() const {
  const size_t mark = target().find('?');
  return mark == std::string_view::npos ? std::string_view() : target().substr(mark + 1);
}

const Headers& Request::headers() const {
  return exchange_.head().headers;
}
std::string_view Request::peer_address() const {
  return exchange_.connection().peer_address;
}
bool Request::is_tls() const {
  return exchange_.connection().channel.is_tls();
}
std::optional<uint64_t> Request::content_length() const {
  return exchange_.content_length();
}
Result<size_t> Request::read(std::span<std::byte> into) {
  return exchange_.read(into);
}
const StopToken& Request::stop_token() const {
  return exchange_.stop_token();
}

Result<std::string> Request::read_all(size_t size_bytes_max) {
  constexpr size_t kReadBytes = 64 << 10;
  if (content_length().value_or(0) > size_bytes_max)
    return exchange_.body_is_too_long(size_bytes_max);
  std::string body;
  for (;;) {
    const size_t before = body.size();
    // One byte more than allowed tells a longer body from one that fits.
    body.resize(before + std::min(kReadBytes, size_bytes_max + 1 - before));
    YARD_ASSIGN(const size_t bytes, read(std::as_writable_bytes(std::span(body).subspan(before))));
    body.resize(before + bytes);
    if (bytes == 0) return body;
    if (body.size() > size_bytes_max) return exchange_.body_is_too_long(size_bytes_max);
  }
}

Headers& ResponseWriter::headers() {
  return exchange_.response_headers();
}

Status ResponseWriter::send(int status, std::string_view body) {
  return exchange_.send(status, body);
}

Status ResponseWriter::send_file(int status, int fd, uint64_t offset, uint64_t length) {
  YARD_TRY(exchange_.start(status, length));
  YARD_TRY(exchange_.write_file(fd, offset, length));
  return exchange_.flush();
}

Status ResponseWriter::start(int status, std::optional<uint64_t> content_length) {
  return exchange_.start(status, content_length);
}

Status ResponseWriter::write(std::span<const std::byte> bytes) {
  return exchange_.write(bytes);
}

Status ResponseWriter::write_file(int fd, uint64_t offset, uint64_t length) {
  return exchange_.write_file(fd, offset, length);
}

Status ResponseWriter::flush() {
  return exchange_.flush();
}
bool ResponseWriter::started() const {
  return exchange_.started();
}
void ResponseWriter::close_connection() {
  exchange_.close_connection();
}
void ResponseWriter::abort() {
  exchange_.abort();
}

void serve_connection(UniqueFd socket, const ServerOptions& options, const HttpHandler& handler) {
  using net_internal::Connection;
  using net_internal::NextStep;
  const net_internal::SigpipeBlock block;
  net_internal::ServerContext context(options, handler);
  Connection connection(std::move(socket), nullptr, "local", options);
  const auto wait_for_more = [&] {
    const auto timeout = connection.input().empty() ? options.idle_timeout : options.header_timeout;
    return connection.channel.wait_readable(timeout) &&
           connection.try_fill() == net_internal::Channel::State::kMoved;
  };
  // False also when nothing came in time or the client closed: then the socket closes here.
  const NextStep last = net_internal::serve_requests(connection, context, wait_for_more);
  if (last != NextStep::kBreak) connection.channel.end_writing();
}

}  // namespace yard
