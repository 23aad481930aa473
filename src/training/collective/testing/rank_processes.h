// For tests: ranks as processes that can be killed.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/file.h"
#include "collective/collective.h"
#include "collective/rendezvous.h"

namespace yard::collective {

// What a rank says: once when it has done its first round, then when it has met an Error.
struct Told {
  int32_t rank = -1;
  int32_t code = -1;  // -1: no Error
  int64_t at_ns = 0;  // CLOCK_MONOTONIC, the same for all processes
  int64_t rounds = 0;
  char message[400] = {};
};

int64_t now_ns();

// Each rank runs rounds until one fails. SIGUSR1 makes one exit, as if its program had ended.
// Killed and waited for at the end.
class RankProcesses {
 public:
  using Round = std::function<Status(Group&)>;
  RankProcesses(const std::vector<RendezvousOptions>& options, const Round& round);
  ~RankProcesses();

  void signal(int rank, int number);
  std::string maps_of(int rank) const;
  // Waits for the first of each rank's messages: all run. Fails the test when one does not.
  void all_run();
  Told next();

 private:
  UniqueFd read_end_;
  std::vector<pid_t> pids_;
};

}  // namespace yard::collective
