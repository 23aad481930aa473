#include "host/host_report.h"

#include <algorithm>

#include "base/log.h"
#include "host/job_folder.h"
#include "host/process.h"

namespace yard::host {

HostReport::HostReport(jobs::HostFolder folder, const Clock& clock, UniqueFd events,
                       const std::optional<jobs::HostStatus>& prior)
    : folder_(std::move(folder)), clock_(clock), events_(std::move(events)) {
  if (prior) status_ = *prior;
  const ProcessId self = identify_self();
  status_.supervisor_pid = self.pid;
  status_.supervisor_start_ticks = self.start_ticks;
}

Result<std::unique_ptr<HostReport>> HostReport::open(const jobs::HostFolder& folder,
                                                     const Clock& clock,
                                                     const std::optional<jobs::HostStatus>& prior) {
  YARD_ASSIGN(UniqueFd events, open_for_append(folder.events()));
  return std::unique_ptr<HostReport>(new HostReport(folder, clock, std::move(events), prior));
}

void HostReport::write() {
  status_.updated_t = to_unix_seconds(clock_.wall_now());
  const std::string text =
      jobs::to_json(status_).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  // The end must not be lost with the power: the daemon decides by it.
  const bool is_final = status_.phase == jobs::HostPhase::kEnded;
  const Status written =
      is_final ? write_file_atomic(folder_.status(), text) : replace_file(folder_.status(), text);
  if (!written) log_warning("the status is not up to date: {}", written.error().message);
}

void HostReport::enter(jobs::HostPhase phase) {
  {
    const std::lock_guard lock(mutex_);
    status_.phase = phase;
    // One that is gone on with was entered before.
    if (std::ranges::find(status_.phases, phase, &jobs::PhaseChange::phase) == status_.phases.end())
      status_.phases.push_back({phase, to_unix_seconds(clock_.wall_now())});
    write();
  }
  event("phase", {{"phase", jobs::to_string(phase)}});
}

void HostReport::change(const std::function<void(jobs::HostStatus& status)>& how) {
  const std::lock_guard lock(mutex_);
  how(status_);
  write();
}

void HostReport::event(std::string_view kind, Json fields) {
  fields["t"] = to_unix_seconds(clock_.wall_now());
  fields["event"] = kind;
  const std::string line = fields.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (const Status written = append_line(events_.get(), folder_.events(), line); !written)
    log_warning("{}", written.error().message);
}

jobs::HostStatus HostReport::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void HostReport::refresh() {
  const std::lock_guard lock(mutex_);
  write();
}

}  // namespace yard::host
