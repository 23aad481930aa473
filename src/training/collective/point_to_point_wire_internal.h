// What travels over the connections of PointToPoint, and each end's state of one connection.
//
// After a kNeighbour frame (session, rank) come headers of 40 bytes in the machine's byte order,
// some with a payload. Only ranks of the session get that far.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "base/file.h"
#include "collective/point_to_point_internal.h"

namespace yard::collective {

enum class WireType : uint8_t {
  kEager = 1,  // to the receiver, with the payload
  kOffer,      // to the receiver: a message lies at `address` of the sender's memory
  kData,       // to the receiver: the payload of an accepted offer
  kAccept,     // back: send the payload of that offer
  kTaken,      // back: that message was received
};

struct WireHeader {
  uint32_t magic = 0x32435259;  // "YRC2"
  WireType type = WireType::kEager;
  Channel channel = Channel::kUser;
  uint16_t reserved = 0;
  uint64_t id = 0;  // of the message, on this connection
  uint64_t tag = 0;
  uint64_t size_bytes = 0;
  uint64_t address = 0;
};
static_assert(std::is_trivially_copyable_v<WireHeader> && sizeof(WireHeader) == 40);

// A header and perhaps a payload on their way out.
struct WireItem {
  WireHeader header;
  std::span<const std::byte> payload;
  std::shared_ptr<Message> sent;  // finished once all is written; may be null
};

// Writes items one after the other to a non-blocking socket.
class WireWriter {
 public:
  void push(WireItem item) { items_.push_back(std::move(item)); }
  bool empty() const { return items_.empty(); }
  // Writes what goes; `done` gets the messages that are out. kUnavailable: the connection is gone.
  Status write(int fd, std::vector<std::shared_ptr<Message>>& done);
  // The messages that will never be out.
  std::vector<std::shared_ptr<Message>> drop();

 private:
  std::deque<WireItem> items_;
  size_t written_bytes_ = 0;  // of the first item, header and payload
};

// Our messages to one peer.
struct Outgoing {
  UniqueFd fd;
  WireWriter writer;
  WireHeader reply;
  size_t reply_bytes = 0;
  uint64_t next_id = 1;
  std::map<uint64_t, std::shared_ptr<Message>> offered;
  std::map<uint64_t, size_t> eager_bytes_of;  // not yet taken
  size_t eager_bytes = 0;
};

// One that came before its receive was issued, or whose payload is still coming.
struct Arrival {
  uint64_t connection_id = 0;
  int source = 0;
  WireHeader header;
  std::vector<std::byte> payload;  // of an eager one without a receive
  bool whole = false;
  std::shared_ptr<Message> receive;  // the matched one
};

// A peer's messages to us.
struct Incoming {
  uint64_t id = 0;
  UniqueFd fd;
  int peer = -1;                                   // until it has said who it is
  int pid = 0;                                     // 0: its memory cannot be read
  std::chrono::steady_clock::time_point deadline;  // of saying so
  FrameReader hello{kSmallPayloadBytesMax};
  WireWriter replies;
  WireHeader header;
  size_t header_bytes = 0;
  // The payload that is coming: where to, and what is complete with it.
  std::span<std::byte> payload;
  size_t payload_bytes = 0;  // that are there
  std::shared_ptr<Arrival> filling;
  std::map<uint64_t, std::shared_ptr<Arrival>> accepted;  // offers whose payload will come
};

}  // namespace yard::collective
