// What a platform job cost, in seconds and money, out of its status changes. Pure.
#pragma once

#include <optional>
#include <vector>

#include "base/json.h"
#include "jobs/platform_job.h"

namespace yard::jobs {

// An attempt that a fault of a host or a preemption ended: its time is not the client's.
struct LostAttempt {
  double start_t = 0;
  double end_t = 0;
};

// Seconds of the job's life by what it did; they add up to the time from its creation to its end.
struct JobAccount {
  double queued_s = 0;        // Pending, and Starting before there were hosts
  double provisioning_s = 0;  // hosts were started and checked
  double download_s = 0;
  double training_s = 0;
  double upload_s = 0;
  double stopping_s = 0;
  double restarting_s = 0;
  double lost_s = 0;  // work inside attempts that were lost

  // TrainingTimeInSeconds: the hosts were there and at work for this job, in lost attempts too.
  double active_s() const;
  // BillableTimeInSeconds, of one host: without the time that was lost.
  double billable_s() const;
  double total_s() const;
};

// `now_t` ends the change that still lasts. A final status counts for nothing.
JobAccount account_of(const std::vector<StatusChange>& changes,
                      const std::vector<LostAttempt>& lost, double now_t);
// "queued_s", ..., "active_s", "billable_s": as `yard cost` and the console show it.
Json to_json(const JobAccount& account);

}  // namespace yard::jobs
