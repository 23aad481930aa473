#include "jobs/job_account.h"

#include <algorithm>

namespace yard::jobs {
namespace {

// Where the seconds of a status go; null: the job has ended.
double JobAccount::*part_of(const StatusChange& change) {
  const std::string& status = change.status;
  if (status == "Pending") return &JobAccount::queued_s;
  // The one that is told when hosts were found.
  if (status == "Starting")
    return change.message.starts_with("Preparing") ? &JobAccount::provisioning_s
                                                   : &JobAccount::queued_s;
  if (status == "Downloading") return &JobAccount::download_s;
  if (status == "Training") return &JobAccount::training_s;
  if (status == "Uploading") return &JobAccount::upload_s;
  if (status == "Stopping") return &JobAccount::stopping_s;
  if (status == "Restarting" || status == "Interrupted") return &JobAccount::restarting_s;
  return nullptr;
}

double overlap(double start_t, double end_t, const std::vector<LostAttempt>& lost) {
  double sum_s = 0;
  for (const auto& attempt : lost)
    sum_s += std::max(0.0, std::min(end_t, attempt.end_t) - std::max(start_t, attempt.start_t));
  return sum_s;
}

bool is_work(double JobAccount::*part) {
  return part == &JobAccount::download_s || part == &JobAccount::training_s ||
         part == &JobAccount::upload_s || part == &JobAccount::stopping_s;
}

}  // namespace

double JobAccount::active_s() const {
  return billable_s() + lost_s;
}
double JobAccount::billable_s() const {
  return download_s + training_s + upload_s + stopping_s;
}
double JobAccount::total_s() const {
  return queued_s + provisioning_s + restarting_s + active_s();
}

JobAccount account_of(const std::vector<StatusChange>& changes,
                      const std::vector<LostAttempt>& lost, double now_t) {
  JobAccount account;
  for (const auto& change : changes) {
    const auto part = part_of(change);
    if (part == nullptr) continue;
    const double end_t = std::max(change.start_t, change.end_t.value_or(now_t));
    const double lost_s = is_work(part) ? overlap(change.start_t, end_t, lost) : 0;
    account.*part += end_t - change.start_t - lost_s;
    account.lost_s += lost_s;
  }
  return account;
}

Json to_json(const JobAccount& account) {
  return {{"queued_s", account.queued_s},         {"provisioning_s", account.provisioning_s},
          {"download_s", account.download_s},     {"training_s", account.training_s},
          {"upload_s", account.upload_s},         {"stopping_s", account.stopping_s},
          {"restarting_s", account.restarting_s}, {"lost_s", account.lost_s},
          {"active_s", account.active_s()},       {"billable_s", account.billable_s()}};
}

}  // namespace yard::jobs
