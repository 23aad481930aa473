// The Group that connect() returns: a queue of operations and the thread that runs them.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "collective/collective.h"
#include "collective/control_internal.h"
#include "collective/door_keeper_internal.h"
#include "collective/flight_recorder_internal.h"
#include "collective/operations_internal.h"
#include "collective/point_to_point_internal.h"
#include "collective/rendezvous.h"

namespace yard::collective {

// Runs operations in the order of issue, each once, one at a time: on its own thread, or on a
// thread that waits for one of them anyway.
//
// Most small operations are waited for at once, and then waking the thread would cost more than
// the operation. So while operations come often, a small one does not wake it: the thread looks by
// itself every millisecond.
class OperationQueue {
 public:
  using Run = std::function<Status(Operation&)>;
  explicit OperationQueue(Run run);
  ~OperationQueue() { close(); }

  // Blocks while 4096 are pending.
  void push(std::shared_ptr<Operation> operation);
  Status wait(Operation& operation);
  bool idle() const;  // nothing pending or running
  // Waits for the one that runs; those not yet begun get kCancelled, as do all later ones.
  void close();
  double wait_seconds() const { return wait_seconds_.load(std::memory_order_relaxed); }

 private:
  void run_thread();
  void run_front(std::unique_lock<std::mutex>& lock);
  void wait_for_more(std::unique_lock<std::mutex>& lock);

  const Run run_;
  mutable std::mutex mutex_;
  std::condition_variable issued_;    // something to run, for the thread
  std::condition_variable finished_;  // one was run
  std::deque<std::shared_ptr<Operation>> pending_;
  std::chrono::steady_clock::time_point last_push_;
  bool asleep_ = false;  // the thread waits for a notification, however long
  bool running_ = false;
  bool closed_ = false;
  std::atomic<double> wait_seconds_ = 0;
  std::thread thread_;
};

// The parts of a connected rank, in the order in which they are made.
struct Connected {
  RendezvousOptions options;
  Topology topology;
  std::shared_ptr<TlsTunnels> tunnels;  // null: no key
  std::unique_ptr<Failure> failure;
  std::unique_ptr<Control> control;
  TeamPlace place;
  TeamSockets team_sockets;
  std::unique_ptr<Team> team;
  // With several hosts, if all of them have a rank at our place.
  std::unique_ptr<Links> links;
  std::unique_ptr<HostAlgorithms> rail;
  std::string own_address;  // where the others reach us
  KeptDoors doors;          // the last is this group's
  std::unique_ptr<PointToPoint> messages;
  std::shared_ptr<FlightRecorder> flight;
};

// connect(), rank 0 taking the others at `listener` if that is valid. The group keeps `doors` open.
Result<std::unique_ptr<Group>> connect_at(const RendezvousOptions& options, UniqueFd listener,
                                          const StopToken& stop, KeptDoors doors = {});

std::unique_ptr<Group> single_rank_group(KeptDoors doors);

std::unique_ptr<Group> make_group(Connected connected);

}  // namespace yard::collective
