// For tests: ranks as processes that can be killed.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/file.h"
#include "collective/collective.h"
#include "collective/rendezvous.h"
#include "collective/testing/ranks.h"

namespace yard::collective {

// What a rank says: once when it has done its first round, then when it has met an Error.
struct Told {
  int32_t rank = -1;
  int32_t code = -1;  // -1: no Error
  int64_t rounds = 0;
  char message[400] = {};
};

// Each rank runs rounds until one fails. SIGUSR1 makes one exit, as if its program had ended.
// Killed and waited for at the end.
class RankProcesses {
 public:
  using Round = std::function<Status(Group&)>;
  RankProcesses(const std::vector<RendezvousOptions>& options, const Round& round);
  ~RankProcesses();

  void signal(int rank, int number);
  std::string maps_of(int rank) const;
  // Waits for the first of each rank's messages: whether all run.
  [[nodiscard]] bool all_run();
  // Fails the test where nobody says anything for minutes.
  Told next();

 private:
  UniqueFd read_end_;
  std::vector<pid_t> pids_;
};

// Ranks with that time-out, of which `victim` is stopped: what does not become of the others, if
// not an Error that names it. See with_patience().
std::string complaint_of_stopped(const Hosts& hosts, int victim, std::chrono::milliseconds timeout,
                                 const RankProcesses::Round& round);

}  // namespace yard::collective
