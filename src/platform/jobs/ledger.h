// Ledger: where every second of a job went, out of what its ranks and its supervisor told.
//
// Pure: no clock, no files. Each rank has a timeline with a cursor; every event claims the time up
// to itself for one part, so the parts add up to the wall time whatever the events are.
// The parts are described in docs/formats/job.md.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "jobs/heartbeat.h"
#include "jobs/supervisor_event.h"

namespace yard::jobs {

enum class Part {
  kStartup,
  kProductive,
  kDataWait,
  kCommWait,
  kCheckpoint,
  kEvaluation,
  kLostWork,
  kRecovery,
  kOther
};
inline constexpr size_t kPartCount = 9;
// "startup", "lost_work"; as a key of ledger.json with "_s" behind.
std::string_view to_string(Part part);

using PartSeconds = std::array<double, kPartCount>;

struct Ledger {
  double wall_s = 0;
  PartSeconds parts_s = {};  // the mean over ranks; adds up to wall_s
  int64_t restarts = 0;
  int64_t lost_steps = 0;  // of the rank that lost most
  int ranks = 1;
  double price_per_host_hour = 0;
  bool complete = false;

  double part_s(Part part) const { return parts_s[static_cast<size_t>(part)]; }
  double utilisation() const { return wall_s > 0 ? part_s(Part::kProductive) / wall_s : 0; }
  double cost_of(double seconds) const { return seconds / 3600 * price_per_host_hour; }
};

Json to_json(const Ledger& ledger);
Result<Ledger> ledger_from_json(const Json& json, std::string_view what);

namespace ledger_internal {

struct StepSeconds {
  int64_t global_step = 0;
  PartSeconds parts_s = {};
};

// One rank. Times never run backwards: an event before the cursor claims nothing.
class RankTimeline {
 public:
  void open(double t);
  void begin_attempt(double t);
  void fault(double t);
  void close(double t);
  void heartbeat(const Heartbeat& heartbeat);
  // Steps after `global_step` were thrown away.
  void lose_steps_after(int64_t global_step);

  // As if the present went on until `t`.
  PartSeconds parts_at(double t) const;
  int64_t lost_steps() const { return lost_steps_; }

 private:
  void claim(double t, Part part);
  void claim_step(const Heartbeat& heartbeat);
  Part present() const;
  Part part_of(Phase phase) const;

  PartSeconds parts_s_ = {};
  double cursor_ = 0;
  bool open_ = false;
  bool faulted_ = false;     // between a fault and the next attempt
  bool recovering_ = false;  // the attempt follows a fault
  bool heard_ = false;       // a heartbeat came in this attempt
  bool stepped_ = false;     // a step ended in this attempt
  Phase phase_ = Phase::kStartup;
  std::deque<StepSeconds> steps_;  // that a later attempt may redo; bounded
  int64_t lost_steps_ = 0;
};

}  // namespace ledger_internal

// Fed event by event, roughly in the order of their times. Not thread-safe. Memory is bounded: of
// each rank the last 65,536 steps can still become lost work.
class LedgerBuilder {
 public:
  LedgerBuilder(int ranks, double price_per_host_hour);
  void add(const SupervisorEvent& event);
  void add(int rank, const Heartbeat& heartbeat);
  // The ledger at time `t`; after `ended`, `t` no longer matters.
  Ledger at(double t) const;

 private:
  void open(double t);
  void close(double t);

  std::vector<ledger_internal::RankTimeline> ranks_;
  Ledger totals_;  // wall_s of ended sessions
  bool open_ = false;
  double opened_t_ = 0;
  double last_t_ = 0;
  int64_t checkpoint_step_ = 0;
};

// All at once: `heartbeats` by rank, each in the order of its file.
Ledger compute_ledger(const std::vector<SupervisorEvent>& events,
                      const std::vector<std::vector<Heartbeat>>& heartbeats,
                      double price_per_host_hour, double now_t);

}  // namespace yard::jobs
