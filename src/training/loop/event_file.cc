#include "loop/event_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <cerrno>

#include "base/crc32c.h"

namespace yard::loop {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie");

// Protocol buffers' wire types.
enum : uint32_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

template <typename T>
void put_raw(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void put_key(std::string& out, uint32_t field, uint32_t wire_type) {
  put_varint(out, field << 3 | wire_type);
}

void put_number(std::string& out, uint32_t field, int64_t value) {
  put_key(out, field, kVarint);
  put_varint(out, static_cast<uint64_t>(value));
}

void put_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  put_key(out, field, kLengthDelimited);
  put_varint(out, bytes.size());
  out.append(bytes);
}

uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

// Fields of Event, Summary.Value and Summary.Image.
enum : uint32_t {
  kWallTime = 1,
  kStep = 2,
  kFileVersion = 3,
  kSummary = 5,
  kSessionLog = 7,
  kTag = 1,
  kSimpleValue = 2,
  kImage = 4,
};
constexpr int64_t kSessionStart = 1;
constexpr int64_t kColorspaceRgb = 3;

std::string summary_value(std::string_view tag, float value) {
  std::string out;
  put_bytes(out, kTag, tag);
  put_key(out, kSimpleValue, kFixed32);
  put_raw(out, value);
  return out;
}

}  // namespace

Result<EventFile> EventFile::create(const std::string& folder, Clock& clock, int64_t first_step) {
  YARD_TRY(make_directories(folder));
  const double now = to_unix_seconds(clock.wall_now());
  std::string path =
      fmt::format("{}/events.out.tfevents.{:010}.{}", folder, static_cast<int64_t>(now), getpid());
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd.valid()) return errno_error(path, errno);
  EventFile file(std::move(path), std::move(fd), clock);
  std::string version;
  put_key(version, kWallTime, kFixed64);
  put_raw(version, now);
  put_bytes(version, kFileVersion, "brain.Event:2");
  YARD_TRY(file.write_event(version));
  std::string session, start = file.event_head(first_step);
  put_number(session, 1, kSessionStart);
  put_bytes(start, kSessionLog, session);
  YARD_TRY(file.write_event(start));
  return file;
}

std::string EventFile::event_head(int64_t step) const {
  std::string out;
  put_key(out, kWallTime, kFixed64);
  put_raw(out, to_unix_seconds(clock_->wall_now()));
  put_number(out, kStep, step);
  return out;
}

Status EventFile::add_scalars(int64_t step, const Scalars& scalars) {
  std::string summary, event = event_head(step);
  for (const auto& [tag, value] : scalars)
    put_bytes(summary, 1, summary_value(tag, static_cast<float>(value)));
  put_bytes(event, kSummary, summary);
  return write_event(event);
}

Status EventFile::add_image(int64_t step, std::string_view tag, int width, int height,
                            std::string_view png) {
  std::string image, value, summary, event = event_head(step);
  put_number(image, 1, height);
  put_number(image, 2, width);
  put_number(image, 3, kColorspaceRgb);
  put_bytes(image, 4, png);
  put_bytes(value, kTag, tag);
  put_bytes(value, kImage, image);
  put_bytes(summary, 1, value);
  put_bytes(event, kSummary, summary);
  return write_event(event);
}

Status EventFile::write_event(std::string_view event) {
  std::string record;
  put_raw(record, uint64_t{event.size()});
  put_raw(record, masked_crc(record));
  record.append(event);
  put_raw(record, masked_crc(event));
  const ssize_t written = ::write(file_.get(), record.data(), record.size());
  if (written == static_cast<ssize_t>(record.size())) return Ok{};
  return written < 0 ? errno_error(path_, errno)
                     : Error{Code::kExhausted, path_ + ": only a part could be written"};
}

}  // namespace yard::loop
