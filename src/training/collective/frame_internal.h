// Frames: the small messages with which ranks find and watch each other. Bulk data is not framed.
//
// On the wire, little-endian: u32 magic, u8 type, u32 payload size, payload. Bytes come from
// whoever can reach the port: every size is checked before it is used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace yard::collective {

enum class FrameType : uint8_t {
  kHello = 1,       // member -> rank 0: who I am
  kWaiting = 2,     // rank 0 -> member: who is still missing
  kRefused = 3,     // rank 0 -> member: an Error, and whether trying again may help
  kWelcome = 4,     // rank 0 -> member: everybody's place
  kReady = 5,       // member -> rank 0: connected to all my neighbours
  kGo = 6,          // rank 0 -> member: all are ready
  kAbort = 7,       // either way: the Error that ended the group
  kGoodbye = 8,     // either way: I leave in peace
  kNeighbour = 9,   // between neighbours: session and rank
  kStalled = 10,    // either way: a rank, and the rank for which it waits too long
  kSurvivors = 11,  // who leads a reunion -> survivor: its place in the smaller group
};

// A whole group of 4096 ranks fits into a welcome of this size.
inline constexpr size_t kFramePayloadBytesMax = size_t{1} << 20;
// A hello, and everything else that a stranger may send.
inline constexpr size_t kSmallPayloadBytesMax = 2048;

struct Frame {
  FrameType type = FrameType::kHello;
  std::string payload;
};

class FrameWriter {
 public:
  explicit FrameWriter(FrameType type) : type_(type) {}
  FrameWriter& u8(uint8_t value) { return raw(&value, sizeof value); }
  FrameWriter& u16(uint16_t value) { return raw(&value, sizeof value); }
  FrameWriter& u32(uint32_t value) { return raw(&value, sizeof value); }
  FrameWriter& u64(uint64_t value) { return raw(&value, sizeof value); }
  FrameWriter& text(std::string_view value);  // cut to 1000 bytes
  FrameWriter& error(const Error& error);
  std::string bytes() const;  // the whole frame

 private:
  FrameWriter& raw(const void* from, size_t size_bytes);
  FrameType type_;
  std::string payload_;
};

// Reads the fields back in order. Past the end every field is 0 or empty and complete() is false.
class FrameFields {
 public:
  explicit FrameFields(std::string_view payload) : left_(payload) {}
  uint8_t u8() { return number<uint8_t>(); }
  uint16_t u16() { return number<uint16_t>(); }
  uint32_t u32() { return number<uint32_t>(); }
  uint64_t u64() { return number<uint64_t>(); }
  std::string text();
  Error error();
  // Every field was there and nothing is left over.
  bool complete() const { return !short_ && left_.empty(); }

 private:
  template <typename T>
  T number();
  std::string_view left_;
  bool short_ = false;
};

// Collects one frame after another from a non-blocking socket; never reads past a frame's end.
class FrameReader {
 public:
  explicit FrameReader(size_t payload_bytes_max) : payload_bytes_max_(payload_bytes_max) {}
  // nullopt: not all there yet. kUnavailable: the peer closed. kCorrupt: not our protocol, or
  // larger than allowed.
  Result<std::optional<Frame>> read(int fd);

 private:
  Result<bool> fill(int fd, size_t size_bytes);

  size_t payload_bytes_max_;
  std::string buffer_;
};

}  // namespace yard::collective
