// PointToPoint: messages between any two ranks of a group, matched by sender and tag.
//
// One connection for each direction of a pair that talks, made at its first message. Up to 64 KiB
// go at once, as long as the receiver has not left too much of it lying ("eager"). Larger messages
// are offered first and travel when their receive has been issued: within a host the receiver reads
// them out of the sender's memory (process_vm_readv), if it may; else they come over the
// connection. All sockets belong to one thread, which begins with the first message.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "collective/call_internal.h"
#include "collective/failure_internal.h"
#include "collective/frame_internal.h"
#include "collective/socket_internal.h"

namespace yard::collective {

// Where a rank takes connections.
struct PeerDoor {
  std::string address;  // TCP, for ranks of other hosts
  uint16_t port = 0;
  uint16_t reunion_port = 0;  // TCP too, see reunion_internal.h
  std::string team_name;      // abstract unix socket, for those of its own
  std::string host_name;      // for people; may be empty
  bool is_near = false;       // on our host
};

enum class Channel : uint8_t { kUser, kCollective };  // who chose the tag

// One send or receive in flight.
struct Message {
  CallRecord call;
  Channel channel = Channel::kUser;
  uint64_t tag = 0;
  std::span<const std::byte> out;  // of a send
  std::span<std::byte> in;         // of a receive
  int* source = nullptr;
  std::chrono::steady_clock::time_point issued;
  std::atomic<bool> done = false;
  Status status = Ok{};  // once done
  int peer() const { return call.root; }
};

// Thread-safe.
class PointToPoint {
 public:
  struct Place {
    int rank = 0;
    std::string session;
    std::vector<PeerDoor> doors;          // by rank
    UniqueFd data_listener;               // TCP
    UniqueFd team_listener;               // unix
    std::shared_ptr<TlsTunnels> tunnels;  // for TCP; null: plain
  };
  // `failure` outlives it.
  PointToPoint(Place place, Failure& failure, std::chrono::milliseconds operation_timeout);
  ~PointToPoint();

  std::shared_ptr<Message> send(std::span<const std::byte> bytes, int to, Channel channel,
                                uint64_t tag);
  std::shared_ptr<Message> receive(std::span<std::byte> bytes, int from, Channel channel,
                                   uint64_t tag, int* source);
  // kDeadlineExceeded, reported to the Failure, names the rank waited for.
  Status wait(Message& message);
  // Where ranks take connections, and the group's secret.
  const std::vector<PeerDoor>& doors() const { return place_.doors; }
  const std::string& session() const { return place_.session; }
  // Reports it to the Failure, which ends all messages.
  void fail(const Error& error) { failure_.report(error); }
  // Messages on their way out still go, for at most two seconds; what waits for a receive or for
  // another's send gets kCancelled. Idempotent.
  void close();

 private:
  void run();
  std::shared_ptr<Message> issue(std::shared_ptr<Message> message);
  void finish(Message& message, Status status);

  Place place_;  // the listeners are the thread's
  Failure& failure_;
  const std::chrono::milliseconds operation_timeout_;
  UniqueFd wake_;  // eventfd
  std::mutex mutex_;
  std::condition_variable finished_;
  std::deque<std::shared_ptr<Message>> issued_;  // not yet taken by the thread
  uint64_t send_count_ = 0;
  uint64_t receive_count_ = 0;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace yard::collective
