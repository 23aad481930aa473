// HostReport: what the supervisor of a host tells: status.json, always whole, and events.jsonl.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/result.h"
#include "jobs/host_plan.h"

namespace yard::host {

// Thread-safe. What cannot be written is logged: the job goes on.
class HostReport {
 public:
  // `prior`: what is gone on with.
  static Result<std::unique_ptr<HostReport>> open(const jobs::HostFolder& folder,
                                                  const Clock& clock,
                                                  const std::optional<jobs::HostStatus>& prior);

  void enter(jobs::HostPhase phase);
  void change(const std::function<void(jobs::HostStatus& status)>& how);
  void event(std::string_view kind, Json fields = Json::object());
  jobs::HostStatus status() const;
  // At least once per period, so that updated_t shows life.
  void refresh();

 private:
  HostReport(jobs::HostFolder folder, const Clock& clock, UniqueFd events,
             const std::optional<jobs::HostStatus>& prior);
  void write();  // under the mutex

  const jobs::HostFolder folder_;
  const Clock& clock_;
  const UniqueFd events_;
  mutable std::mutex mutex_;
  jobs::HostStatus status_;
};

}  // namespace yard::host
