#include "host/job_record.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace yard::host {

JobRecord::JobRecord(JobFolder folder, const jobs::JobSpec& spec, Clock& clock)
    : folder_(std::move(folder)), clock_(&clock), ledger_(spec.ranks, spec.price_per_host_hour) {
  for (int rank = 0; rank < spec.ranks; ++rank) tails_.emplace_back(folder_.heartbeat(rank));
}

Result<JobRecord> JobRecord::open(const JobFolder& folder, const jobs::JobSpec& spec,
                                  Clock& clock) {
  JobRecord record(folder, spec, clock);
  YARD_ASSIGN(record.events_, open_for_append(folder.events()));
  record.replay();
  return record;
}

// Heartbeats are fed between the events by time; within a file they are in order.
void JobRecord::replay() {
  FileTail events(folder_.events());
  std::vector<std::pair<int, jobs::Heartbeat>> heartbeats;
  for (size_t rank = 0; rank < tails_.size(); ++rank) {
    for (auto lines = tails_[rank].read_lines(); !lines.empty(); lines = tails_[rank].read_lines())
      for (const auto& line : lines)
        if (auto heartbeat = jobs::parse_heartbeat(line))
          heartbeats.emplace_back(static_cast<int>(rank), *std::move(heartbeat));
  }
  std::ranges::stable_sort(heartbeats, {}, [](const auto& item) { return item.second.t; });
  auto next = heartbeats.begin();
  std::vector<jobs::SupervisorEvent> past;
  for (const auto& line : events.read_lines())
    if (auto event = jobs::parse_supervisor_event(line)) past.push_back(*std::move(event));
  // A fault's line is written when its cause is known, and carries the time of the death.
  std::ranges::stable_sort(past, {}, &jobs::SupervisorEvent::t);
  for (const auto& event : past) {
    for (; next != heartbeats.end() && next->second.t < event.t; ++next)
      take(next->first, next->second);
    take(event);
  }
  for (; next != heartbeats.end(); ++next) take(next->first, next->second);
}

void JobRecord::take(int rank, const jobs::Heartbeat& heartbeat) {
  ledger_.add(rank, heartbeat);
  progress_.add(rank, heartbeat);
  if (heartbeat.event == jobs::HeartbeatEvent::kStep)
    best_step_ = std::max(best_step_, heartbeat.global_step);
}

void JobRecord::take(const jobs::SupervisorEvent& event) {
  ledger_.add(event);
  if (event.kind == jobs::SupervisorEventKind::kAttemptStarted)
    next_attempt_ = std::max(next_attempt_, static_cast<int>(event.attempt) + 1);
  if (event.kind == jobs::SupervisorEventKind::kChaosKill) chaos_done_ = true;
}

void JobRecord::note(jobs::SupervisorEvent event) {
  if (event.t == 0) event.t = now_t();
  note_in_ledger(event);
  note_line(event);
}

void JobRecord::note_in_ledger(const jobs::SupervisorEvent& event) {
  take(event);
}

void JobRecord::note_line(const jobs::SupervisorEvent& event) {
  const Status written = append_line(events_.get(), folder_.events(), to_line(event));
  if (!written) log_warning("an event is lost: {}", written.error().message);
}

void JobRecord::read_heartbeats(
    const std::function<void(int, const jobs::Heartbeat&)>& on_heartbeat) {
  for (size_t rank = 0; rank < tails_.size(); ++rank) {
    for (const auto& line : tails_[rank].read_lines()) {
      const auto heartbeat = jobs::parse_heartbeat(line);
      if (!heartbeat) continue;
      on_heartbeat(static_cast<int>(rank), *heartbeat);
      take(static_cast<int>(rank), *heartbeat);
    }
  }
}

void JobRecord::mend_heartbeat_files() {
  for (size_t rank = 0; rank < tails_.size(); ++rank) {
    if (!tails_[rank].inside_line()) continue;
    const std::string path = folder_.heartbeat(static_cast<int>(rank));
    const auto file = open_for_append(path);
    if (file && append_line(file->get(), path, "")) continue;
    log_warning("{}: ends in the middle of a line", path);
  }
}

void JobRecord::write_ledger() {
  const Status written =
      replace_file(folder_.ledger(), to_json(ledger_.at(now_t())).dump(2) + "\n");
  if (!written) log_warning("the ledger is not up to date: {}", written.error().message);
}

}  // namespace yard::host
