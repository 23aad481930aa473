#include "jobs/ledger.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace yard::jobs {
namespace {

using Kind = SupervisorEventKind;

constexpr size_t kStepsKeptMax = 65'536;
constexpr std::string_view kPartNames[kPartCount] = {"startup",   "productive", "data_wait",
                                                     "comm_wait", "checkpoint", "evaluation",
                                                     "lost_work", "recovery",   "other"};

double& at(PartSeconds& parts, Part part) {
  return parts[static_cast<size_t>(part)];
}

}  // namespace

std::string_view to_string(Part part) {
  return kPartNames[static_cast<size_t>(part)];
}

Json to_json(const Ledger& ledger) {
  Json json = {{"wall_s", ledger.wall_s},
               {"utilisation", ledger.utilisation()},
               {"restarts", ledger.restarts},
               {"lost_steps", ledger.lost_steps},
               {"ranks", ledger.ranks},
               {"price_per_host_hour", ledger.price_per_host_hour},
               {"cost", ledger.cost_of(ledger.wall_s)},
               {"complete", ledger.complete}};
  for (size_t i = 0; i < kPartCount; ++i)
    json[std::string(kPartNames[i]) + "_s"] = ledger.parts_s[i];
  return json;
}

Result<Ledger> ledger_from_json(const Json& json, std::string_view what) {
  Ledger ledger;
  YARD_ASSIGN(ledger.wall_s, json_field<double>(json, "wall_s", what));
  YARD_ASSIGN(ledger.restarts, json_field<int64_t>(json, "restarts", what));
  YARD_ASSIGN(ledger.lost_steps, json_field<int64_t>(json, "lost_steps", what));
  YARD_ASSIGN(ledger.ranks, json_field<int>(json, "ranks", what));
  YARD_ASSIGN(ledger.price_per_host_hour, json_field<double>(json, "price_per_host_hour", what));
  YARD_ASSIGN(ledger.complete, json_field<bool>(json, "complete", what));
  for (size_t i = 0; i < kPartCount; ++i) {
    const std::string key = std::string(kPartNames[i]) + "_s";
    YARD_ASSIGN(ledger.parts_s[i], json_field<double>(json, key, what));
  }
  return ledger;
}

namespace ledger_internal {

void RankTimeline::open(double t) {
  cursor_ = t;
  open_ = true;
  faulted_ = recovering_ = heard_ = stepped_ = false;
  phase_ = Phase::kStartup;
}

void RankTimeline::begin_attempt(double t) {
  if (!open_) return;
  claim(t, faulted_ ? Part::kRecovery : Part::kStartup);
  recovering_ = faulted_;
  faulted_ = heard_ = stepped_ = false;
  phase_ = Phase::kStartup;
}

// The step that the death interrupted is work too, and lost.
void RankTimeline::fault(double t) {
  if (!open_ || faulted_) return;
  const Part tail = present();
  claim(t, stepped_ && tail == Part::kOther ? Part::kLostWork : tail);
  faulted_ = true;
}

void RankTimeline::close(double t) {
  if (!open_) return;
  claim(t, present());
  open_ = false;
}

void RankTimeline::heartbeat(const Heartbeat& heartbeat) {
  // What a survivor still says after a peer's death lies in the recovery already.
  if (!open_ || faulted_) return;
  switch (heartbeat.event) {
    case HeartbeatEvent::kStep:
      claim_step(heartbeat);
      break;
    case HeartbeatEvent::kCheckpoint:
      claim(heartbeat.t - heartbeat.blocked_s, heard_ ? present() : part_of(Phase::kStartup));
      claim(heartbeat.t, heartbeat.blocked_s > 0 ? Part::kCheckpoint : present());
      break;
    case HeartbeatEvent::kResume:
      lose_steps_after(heartbeat.global_step);
      [[fallthrough]];
    default:
      claim(heartbeat.t, heard_ ? present() : part_of(Phase::kStartup));
  }
  heard_ = true;
  if (heartbeat.event == HeartbeatEvent::kPhase) phase_ = heartbeat.phase;
}

void RankTimeline::claim_step(const Heartbeat& step) {
  // The first step of an attempt redoes whatever an earlier attempt had done from there on.
  if (!stepped_) lose_steps_after(step.global_step - 1);
  claim(step.t - step.step_s, heard_ ? present() : part_of(Phase::kStartup));
  stepped_ = true;
  phase_ = Phase::kTrain;  // also of a script that tells no phases
  const double length_s = std::max(0.0, step.t - cursor_);
  const double told_s = step.compute_s + step.data_wait_s + step.comm_wait_s;
  const double scale = told_s > length_s ? length_s / told_s : 1.0;
  StepSeconds record{step.global_step, {}};
  at(record.parts_s, Part::kProductive) = step.compute_s * scale;
  at(record.parts_s, Part::kDataWait) = step.data_wait_s * scale;
  at(record.parts_s, Part::kCommWait) = step.comm_wait_s * scale;
  at(record.parts_s, Part::kOther) = std::max(0.0, length_s - told_s * scale);
  for (size_t i = 0; i < kPartCount; ++i) parts_s_[i] += record.parts_s[i];
  cursor_ = std::max(cursor_, step.t);
  steps_.push_back(record);
  if (steps_.size() > kStepsKeptMax) steps_.pop_front();
}

void RankTimeline::lose_steps_after(int64_t global_step) {
  while (!steps_.empty() && steps_.back().global_step > global_step) {
    for (size_t i = 0; i < kPartCount; ++i) {
      parts_s_[i] -= steps_.back().parts_s[i];
      at(parts_s_, Part::kLostWork) += steps_.back().parts_s[i];
    }
    ++lost_steps_;
    steps_.pop_back();
  }
}

PartSeconds RankTimeline::parts_at(double t) const {
  PartSeconds parts = parts_s_;
  if (open_ && t > cursor_) at(parts, present()) += t - cursor_;
  return parts;
}

void RankTimeline::claim(double t, Part part) {
  if (!(t > cursor_)) return;
  at(parts_s_, part) += t - cursor_;
  cursor_ = t;
}

// What the time goes to until the next event says otherwise.
Part RankTimeline::present() const {
  if (faulted_) return Part::kRecovery;
  return heard_ ? part_of(phase_) : Part::kOther;
}

Part RankTimeline::part_of(Phase phase) const {
  switch (phase) {
    case Phase::kStartup:
    case Phase::kTrain:
      if (!stepped_) return recovering_ ? Part::kRecovery : Part::kStartup;
      return phase == Phase::kStartup ? Part::kStartup : Part::kOther;
    case Phase::kCheckpoint:
    case Phase::kFinish:  // it writes the final model
      return Part::kCheckpoint;
    case Phase::kEvaluate:
    case Phase::kSample:
      return Part::kEvaluation;
  }
  YARD_UNREACHABLE();
}

}  // namespace ledger_internal

LedgerBuilder::LedgerBuilder(int ranks, double price_per_host_hour)
    : ranks_(static_cast<size_t>(ranks)) {
  YARD_CHECK(ranks > 0);
  totals_.ranks = ranks;
  totals_.price_per_host_hour = price_per_host_hour;
}

void LedgerBuilder::open(double t) {
  // A supervisor that was killed could not say when its time ended: with the last sign of life.
  if (open_) close(last_t_);
  open_ = true;
  opened_t_ = t;
  last_t_ = t;
  totals_.complete = false;
  for (auto& rank : ranks_) rank.open(t);
}

void LedgerBuilder::close(double t) {
  if (!open_) return;
  t = std::max(t, last_t_);
  for (auto& rank : ranks_) rank.close(t);
  totals_.wall_s += t - opened_t_;
  open_ = false;
}

void LedgerBuilder::add(const SupervisorEvent& event) {
  if (event.kind == Kind::kSupervisorStarted) return open(event.t);
  if (!open_) return;
  last_t_ = std::max(last_t_, event.t);
  switch (event.kind) {
    case Kind::kAttemptStarted:
      for (auto& rank : ranks_) rank.begin_attempt(event.t);
      return;
    case Kind::kFault:
      for (auto& rank : ranks_) rank.fault(event.t);
      return;
    case Kind::kRelaunched:
      ++totals_.restarts;
      return;
    case Kind::kEnded:
      // Nothing remembers the steps after the last checkpoint of a job that failed.
      if (event.state == "failed")
        for (auto& rank : ranks_) rank.lose_steps_after(checkpoint_step_);
      close(event.t);
      totals_.complete = true;
      return;
    default:
      return;
  }
}

void LedgerBuilder::add(int rank, const Heartbeat& heartbeat) {
  YARD_CHECK(rank >= 0 && static_cast<size_t>(rank) < ranks_.size());
  if (!open_) return;
  last_t_ = std::max(last_t_, heartbeat.t);
  if (heartbeat.event == HeartbeatEvent::kCheckpoint) checkpoint_step_ = heartbeat.global_step;
  if (heartbeat.event == HeartbeatEvent::kResume)
    checkpoint_step_ = std::min(checkpoint_step_, heartbeat.global_step);
  ranks_[static_cast<size_t>(rank)].heartbeat(heartbeat);
}

Ledger LedgerBuilder::at(double t) const {
  Ledger ledger = totals_;
  t = std::max(t, last_t_);
  if (open_) ledger.wall_s += t - opened_t_;
  for (const auto& rank : ranks_) {
    const PartSeconds parts = rank.parts_at(t);
    for (size_t i = 0; i < kPartCount; ++i) {
      // Taking lost steps out again may leave a rounding error below zero.
      ledger.parts_s[i] += std::max(0.0, parts[i]) / static_cast<double>(ranks_.size());
    }
  }
  for (const auto& rank : ranks_)
    ledger.lost_steps = std::max(ledger.lost_steps, rank.lost_steps());
  return ledger;
}

Ledger compute_ledger(const std::vector<SupervisorEvent>& events,
                      const std::vector<std::vector<Heartbeat>>& heartbeats,
                      double price_per_host_hour, double now_t) {
  // Where times are equal, what begins comes before what was told and what ends comes after it.
  const auto order_of = [](Kind kind) {
    return kind == Kind::kSupervisorStarted || kind == Kind::kAttemptStarted ? 0 : 2;
  };
  struct Item {
    double t;
    int order;
    const SupervisorEvent* event;
    const Heartbeat* heartbeat;
    int rank;
  };
  std::vector<Item> items;
  for (const auto& event : events)
    items.push_back({event.t, order_of(event.kind), &event, nullptr, 0});
  for (size_t rank = 0; rank < heartbeats.size(); ++rank) {
    for (const auto& heartbeat : heartbeats[rank])
      items.push_back({heartbeat.t, 1, nullptr, &heartbeat, static_cast<int>(rank)});
  }
  std::ranges::stable_sort(items, {},
                           [](const Item& item) { return std::pair(item.t, item.order); });
  LedgerBuilder builder(static_cast<int>(heartbeats.size()), price_per_host_hour);
  for (const Item& item : items) {
    if (item.event != nullptr) {
      builder.add(*item.event);
    } else {
      builder.add(item.rank, *item.heartbeat);
    }
  }
  return builder.at(now_t);
}

}  // namespace yard::jobs
