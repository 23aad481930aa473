// Control: the connections over which ranks learn of each other's end.
//
// A star around rank 0, watched by a thread of its own: a connection that closes without a goodbye
// is a death, seen by the kernel and told on at once. Processes of the same host are watched by
// pidfd too, since a forked child may keep a dead rank's connection open.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/file.h"
#include "collective/door_keeper_internal.h"
#include "collective/failure_internal.h"
#include "collective/frame_internal.h"
#include "collective/socket_internal.h"

namespace yard::collective {

// Thread-safe. `failure` outlives it.
class Control {
 public:
  // Rank 0 gives a socket for every other rank, the others one, to rank 0. `answer_timeout`: see
  // find_culprit().
  Control(int rank, std::map<int, UniqueFd> sockets, Failure& failure,
          std::chrono::milliseconds answer_timeout);
  ~Control();

  // Also watches the process `pidfd` of `rank`; when it ends, `may_end` says whether it left in
  // peace (or has itself said why it did not).
  void watch(int rank, UniqueFd pidfd, std::function<bool()> may_end);

  // Of groups that this one came out of: whoever still comes there is turned away. Once.
  void watch_doors(KeptDoors doors, std::shared_ptr<TlsTunnels> tunnels);

  // Says that this rank is set up, and waits until all are.
  Status all_ready(const Patience& patience);
  // Tells all peers goodbye and ends the thread; afterwards nothing is watched. Idempotent.
  void stop();
  // This rank waits for `waited` for too long; that one may be waiting itself. Asks all ranks whom
  // they wait for (a stopped one cannot answer), waits for what they say until the answer timeout,
  // and returns the one at the end of the chain.
  int find_culprit(int waited);

 private:
  struct Peer {
    int rank = 0;
    UniqueFd fd;
    FrameReader reader{kSmallPayloadBytesMax};
    bool said_goodbye = false;
  };
  struct Process {
    int rank = 0;
    UniqueFd pidfd;
    std::function<bool()> may_end;
  };

  void run();
  void look_at(Peer& peer);
  void handle(Peer& peer, const Frame& frame);
  void look_at(Process& process);
  void handle_stalled(const Peer& peer, const Frame& frame);
  void tell_stalled(int waited);
  void send_to_all(const std::string& bytes);

  const int rank_;
  Failure& failure_;
  const std::chrono::milliseconds answer_timeout_;
  UniqueFd wake_;  // eventfd: more to watch, or stop
  std::mutex mutex_;
  std::condition_variable changed_;
  // Peers are fixed but for their sockets, which the thread closes and others send on:
  // socket_mutex_.
  std::mutex socket_mutex_;
  std::vector<Peer> peers_;
  std::vector<Process> processes_;       // the thread's
  std::vector<Process> new_processes_;   // mutex_
  DoorKeeper door_keeper_;               // the thread's
  KeptDoors new_doors_;                  // mutex_
  std::shared_ptr<TlsTunnels> tunnels_;  // mutex_
  size_t ready_count_ = 0;               // mutex_; of other ranks
  bool go_ = false;                      // mutex_
  bool stopped_ = false;                 // mutex_
  bool told_stalled_ = false;            // mutex_
  std::map<int, int> waited_by_;         // mutex_; rank -> the rank for which it waits too long
  std::thread thread_;
};

}  // namespace yard::collective
