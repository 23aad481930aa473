// The thread's side of PointToPoint: sockets, and what was sent but not yet received.
#pragma once

#include <poll.h>

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "collective/point_to_point_wire_internal.h"

namespace yard::collective {

enum class Progress { kComplete, kNotYet, kOver };  // kOver: the connection is closed

// For one thread. Errors are reported to the Failure; afterwards every message is finished with it.
class Connections {
 public:
  using Finish = std::function<void(Message&, Status)>;
  Connections(PointToPoint::Place& place, Failure& failure, Finish finish)
      : place_(place), failure_(failure), finish_(std::move(finish)) {}

  void begin(const std::shared_ptr<Message>& message);
  // One round of waiting for `wake_fd` or any socket, and of moving what can be moved.
  void step(int wake_fd, std::chrono::milliseconds timeout);
  bool sending() const;
  // Waits until the peers' kernels have what we sent, until `deadline` at most.
  void linger(std::chrono::steady_clock::time_point deadline);
  void finish_all(const Status& status);

 private:
  void send(const std::shared_ptr<Message>& message);
  void receive(const std::shared_ptr<Message>& message);
  Result<Outgoing*> outgoing_to(int peer);
  void write(int peer, Outgoing& outgoing);
  void read_replies(int peer, Outgoing& outgoing);
  void handle_reply(int peer, Outgoing& outgoing, const WireHeader& reply);
  void lose(int peer, Outgoing& outgoing, const std::string& reason);

  void accept_from(const UniqueFd& listener, bool is_near);
  bool introduce(Incoming& incoming);
  // False when the connection is over.
  bool read(Incoming& incoming);
  Progress read_header(Incoming& incoming);
  Progress read_payload(Incoming& incoming);
  void arrived(Incoming& incoming);
  void whole(Incoming& incoming);
  void close(Incoming& incoming);
  void give_up_on_gone();
  Incoming* connection(uint64_t id);

  std::shared_ptr<Message> match_receive(const Arrival& arrival);
  bool matches(const Message& receive, const Arrival& arrival) const;
  bool sizes_agree(const Message& receive, const Arrival& arrival);
  void take(Arrival& arrival);                               // whole, and matched
  void take_offer(const std::shared_ptr<Arrival>& arrival);  // matched
  bool read_memory(const Incoming& incoming, const Arrival& arrival);
  void reply(Incoming& incoming, WireType type, uint64_t id);
  void finish_receive(Arrival& arrival);
  void fail(Error error) { failure_.report(std::move(error)); }
  void wait_for_cause(Error error);

  PointToPoint::Place& place_;
  Failure& failure_;
  const Finish finish_;
  std::map<int, Outgoing> outgoing_;
  std::list<Incoming> incoming_;
  uint64_t connection_count_ = 0;
  std::list<std::shared_ptr<Arrival>> arrivals_;  // without a receive, in order
  std::list<std::shared_ptr<Message>> receives_;  // without an arrival, in order of issue
  std::set<int> gone_;  // peers that closed a connection: nothing new will come from them
};

}  // namespace yard::collective
