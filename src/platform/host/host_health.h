// Health: whether this machine may run a host of a job. Measures only what has a floor.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"
#include "base/stop_token.h"
#include "jobs/host_plan.h"

namespace yard::host {

struct HealthCheck {
  std::string name;  // "cpu", "memory", "disk", "space", "clock", "gpu"
  double value = 0;  // in the floor's unit
  double limit = 0;
  bool passed = true;
  std::string message;  // of one that did not pass
};

// `folder`: where the job writes. `store_url`: whose clock is compared; empty: none. Checks in turn
// until `stop`; a store that does not answer is left to the downloads.
std::vector<HealthCheck> check_health(const jobs::PlanHealth& floors, const std::string& folder,
                                      const std::string& store_url, const StopToken& stop,
                                      const Clock& clock = Clock::real());
Json to_json(const std::vector<HealthCheck>& checks);
// kUnavailable with every check that did not pass.
Status judge_health(const std::vector<HealthCheck>& checks);

// "Mon, 30 Nov 2026 05:16:27 GMT" to Unix seconds; nullopt for anything else. Pure.
std::optional<double> parse_http_date(const std::string& text);

}  // namespace yard::host
