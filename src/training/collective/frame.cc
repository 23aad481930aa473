#include "collective/frame_internal.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace yard::collective {
namespace {

constexpr uint32_t kMagic = 0x31435259;  // "YRC1"
constexpr size_t kHeaderBytes = 9;
constexpr size_t kTextBytesMax = 1000;

}  // namespace

FrameWriter& FrameWriter::raw(const void* from, size_t size_bytes) {
  payload_.append(static_cast<const char*>(from), size_bytes);
  return *this;
}

FrameWriter& FrameWriter::text(std::string_view value) {
  value = value.substr(0, kTextBytesMax);
  u16(static_cast<uint16_t>(value.size()));
  return raw(value.data(), value.size());
}

FrameWriter& FrameWriter::error(const Error& error) {
  return u8(static_cast<uint8_t>(error.code)).text(error.message);
}

std::string FrameWriter::bytes() const {
  YARD_CHECK(payload_.size() <= kFramePayloadBytesMax);
  const auto type = static_cast<uint8_t>(type_);
  const auto size_bytes = static_cast<uint32_t>(payload_.size());
  std::string frame(kHeaderBytes, '\0');
  std::memcpy(frame.data(), &kMagic, 4);
  std::memcpy(frame.data() + 4, &type, 1);
  std::memcpy(frame.data() + 5, &size_bytes, 4);
  return frame + payload_;
}

template <typename T>
T FrameFields::number() {
  T value = 0;
  if (left_.size() < sizeof value) {
    short_ = true;
    left_ = {};
    return 0;
  }
  std::memcpy(&value, left_.data(), sizeof value);
  left_.remove_prefix(sizeof value);
  return value;
}
template uint8_t FrameFields::number();
template uint16_t FrameFields::number();
template uint32_t FrameFields::number();
template uint64_t FrameFields::number();

std::string FrameFields::text() {
  const size_t size_bytes = u16();
  if (size_bytes > kTextBytesMax || left_.size() < size_bytes) {
    short_ = true;
    left_ = {};
    return {};
  }
  std::string value(left_.substr(0, size_bytes));
  left_.remove_prefix(size_bytes);
  return value;
}

Error FrameFields::error() {
  const uint8_t code = u8();
  std::string message = text();
  if (code > static_cast<uint8_t>(Code::kInternal)) short_ = true;
  return {short_ ? Code::kInternal : static_cast<Code>(code), std::move(message)};
}

Result<std::optional<Frame>> FrameReader::read(int fd) {
  YARD_ASSIGN(const bool has_header, fill(fd, kHeaderBytes));
  if (!has_header) return std::optional<Frame>();
  uint32_t magic = 0;
  uint8_t type = 0;
  uint32_t size_bytes = 0;
  std::memcpy(&magic, buffer_.data(), 4);
  std::memcpy(&type, buffer_.data() + 4, 1);
  std::memcpy(&size_bytes, buffer_.data() + 5, 4);
  if (magic != kMagic || type < static_cast<uint8_t>(FrameType::kHello) ||
      type > static_cast<uint8_t>(FrameType::kSurvivors) || size_bytes > payload_bytes_max_)
    return Error{Code::kCorrupt, "bytes that are not of this protocol"};
  YARD_ASSIGN(const bool has_payload, fill(fd, kHeaderBytes + size_bytes));
  if (!has_payload) return std::optional<Frame>();
  Frame frame{static_cast<FrameType>(type), buffer_.substr(kHeaderBytes)};
  buffer_.clear();
  return std::optional<Frame>(std::move(frame));
}

Result<bool> FrameReader::fill(int fd, size_t size_bytes) {
  constexpr size_t kPieceBytes = 65536;
  while (buffer_.size() < size_bytes) {
    const size_t have = buffer_.size();
    buffer_.resize(std::min(size_bytes, have + kPieceBytes));
    const ssize_t got = ::recv(fd, buffer_.data() + have, buffer_.size() - have, MSG_DONTWAIT);
    const int error = errno;
    buffer_.resize(have + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return Error{Code::kUnavailable, "connection closed"};
    if (got > 0 || error == EINTR) continue;
    if (error == EAGAIN || error == EWOULDBLOCK) return false;
    return Error{Code::kUnavailable, std::string("connection lost: ") + std::strerror(error)};
  }
  return true;
}

}  // namespace yard::collective
