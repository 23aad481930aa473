// SpareRanks: Python interpreters that wait, torch imported, to become the ranks of the next
// attempt, so that a restart does not wait for imports.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/subprocess.h"
#include "host/rank_plan.h"
#include "host/reserved_python.h"
#include "jobs/job_spec.h"

namespace yard::host {

struct SpareRanksOptions {
  const jobs::JobSpec* spec = nullptr;     // outlives this, as does the clock
  std::map<std::string, std::string> env;  // as AttemptOptions
  std::vector<int> cores;
  size_t core_count = 1;
  // From the time at which ranks are seen with torch to the start of the spares: their own start is
  // not to be slowed down.
  std::chrono::milliseconds start_after{2'000};
  const Clock* clock = &Clock::real();
};

// Not thread-safe. Only of a job whose command is a Python program that loads torch, on a host with
// memory to spare. Spares end with this object, and with the thread that calls look().
class SpareRanks {
 public:
  explicit SpareRanks(SpareRanksOptions options);

  // To be called now and then while the ranks `pids` of an attempt run. `next`: the attempt that
  // may follow; its port is not known yet.
  void look(const std::vector<int64_t>& pids, const AttemptPlan& next);
  // Those that have done their imports.
  int ready_count();
  // Starts `rank` in its spare: the process whose end is the rank's. nullopt: there is none that
  // can be it.
  std::optional<Subprocess> start(int rank, const SubprocessOptions& wanted);
  // After an attempt's start: what was not used is for no other.
  void clear();

 private:
  bool is_wanted() const;

  const SpareRanksOptions options_;
  std::optional<Clock::Monotonic> torch_seen_at_;
  bool has_started_ = false;
  std::vector<std::unique_ptr<ReservedPython>> spares_;  // by rank; null: none
};

// Whether a process has mapped torch's library.
bool has_loaded_torch(int64_t pid);

}  // namespace yard::host
