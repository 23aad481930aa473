// Whose turn it is, and on which hosts.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "engine/controller_internal.h"
#include "host/job_folder.h"
#include "jobs/queue_order.h"

namespace yard::engine::internal {

using jobdb::PlatformHostRow;
using jobs::HostLife;
using jobs::JobStage;
using jobs::PlatformEvent;

namespace {

std::vector<std::string> wanted_types(const LiveJob& live) {
  std::vector<std::string> types;
  for (const auto& host : live.hosts)
    if (host.life == HostLife::kWanted) types.push_back(host.slice.instance_type);
  return types;
}

bool is_kept_whole(const LiveJob& pool) {
  return pool.row.warm.state == jobs::WarmState::kAvailable &&
         std::ranges::all_of(pool.hosts,
                             [](const auto& host) { return host.life == HostLife::kKept; });
}

}  // namespace

std::vector<jobs::Slice> Controller::held_slices() const {
  std::vector<jobs::Slice> held;
  for (const auto& [id, live] : jobs_)
    for (const auto& host : live.hosts)
      if (jobs::holds_slice(host.life)) held.push_back(host.slice);
  return held;
}

std::vector<int64_t> Controller::waiting_in_order() const {
  std::vector<jobs::WaitingJob> waiting;
  std::map<std::string, int> hosts_by_share;
  for (const auto& [id, live] : jobs_) {
    if (live.row.state.stage == JobStage::kQueued)
      waiting.push_back({.id = id,
                         .priority = live.needs.priority,
                         .share = live.needs.share,
                         .queued_t = live.row.created_t,
                         .host_count = live.needs.host_count()});
    else if (!is_final(live.row.state.stage))
      hosts_by_share[live.needs.share] += live.needs.host_count();
  }
  return jobs::queue_order(waiting, std::move(hosts_by_share));
}

// Nobody overtakes a job that waits for hosts that he could take from it; but what is scarce may be
// its own type alone.
bool Controller::waits_for_its_type_only(const LiveJob& live) const {
  const auto held = held_slices();
  return std::ranges::any_of(live.needs.groups, [&](const jobs::HostGroupNeed& group) {
    const auto& shape = jobs::shape_of(options_.config.slices, group.instance_type);
    const auto count = std::ranges::count(held, group.instance_type, &jobs::Slice::instance_type);
    return shape.slice_count_max > 0 && count + group.host_count > shape.slice_count_max;
  });
}

void Controller::place_waiting() {
  for (const int64_t id : waiting_in_order()) {
    const auto it = jobs_.find(id);
    if (it == jobs_.end()) continue;
    const Placed placed = place_job(it->second);
    if (placed != Placed::kNotNow) {
      settle(id);
      continue;
    }
    if (it->second.row.secondary != "Pending")
      apply(it->second,
            {.job_id = id, .event = PlatformEvent::kNoHosts, .t = now_t(), .detail = ""});
    const auto again = jobs_.find(id);
    if (again != jobs_.end() && !waits_for_its_type_only(again->second)) return;
  }
}

Controller::Placed Controller::place_job(LiveJob& live) {
  if (LiveJob* pool = find_warm_pool(live)) {
    if (place_on_pool(live, *pool)) return Placed::kYes;
  }
  jobdb::PlatformStep step{
      .job_id = live.row.id, .event = PlatformEvent::kPlaced, .t = now_t(), .detail = ""};
  step.hosts = live.hosts;
  const auto types = wanted_types(live);
  std::vector<jobs::Slice> slices;
  if (!types.empty()) {
    auto placed = engine_->place(held_slices(), types, live.row.avoided_slices);
    if (!placed && placed.error().code == Code::kInvalidArgument) {
      step = {.job_id = live.row.id,
              .event = PlatformEvent::kFault,
              .t = now_t(),
              .detail = "CapacityError: " + placed.error().message,
              .cause = jobs::FaultCause::kHostFault};
      apply(live, std::move(step));
      return Placed::kNever;
    }
    if (!placed) return Placed::kNotNow;
    slices = *std::move(placed);
  }
  auto slice = slices.begin();
  for (auto& host : step.hosts) {
    if (host.life == HostLife::kWanted) host.slice = *slice++;
    host.life = HostLife::kHeld;
  }
  // A request that came in between ended it: nothing is held.
  return apply(live, std::move(step)) ? Placed::kYes : Placed::kNever;
}

LiveJob* Controller::find_warm_pool(const LiveJob& live) {
  // A job that comes again has hosts, or had some that are at fault.
  if (live.row.attempt > 0 || !jobs::may_have_warm_pool(live.row.job, live.needs)) return nullptr;
  const std::string key = jobs::warm_pool_key(live.row.job);
  for (auto& [id, pool] : jobs_) {
    if (!is_kept_whole(pool) || pool.hosts.size() != live.hosts.size()) continue;
    if (pool.row.warm.until_t > now_t() && jobs::warm_pool_key(pool.row.job) == key) return &pool;
  }
  return nullptr;
}

bool Controller::place_on_pool(LiveJob& live, LiveJob& pool) {
  const int64_t pool_id = pool.row.id;
  std::vector<PlatformHostRow> rows = live.hosts;
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].slice = pool.hosts[i].slice;
    rows[i].life = HostLife::kHeld;
  }
  const Json note = {{"pool_dir", pool.row.dir},
                     {"network_dir", pool.network_dir.empty() ? pool.row.dir : pool.network_dir}};
  Status noted = make_directories(live.row.dir);
  if (noted) noted = host::replace_file(pool_note(live.row.dir), note.dump());
  // Without it the hosts start anew, on the slices that were kept.
  if (!noted) log_warning("{}", noted.error().message);
  const bool taken = apply(live, {.job_id = live.row.id,
                                  .event = PlatformEvent::kPlaced,
                                  .t = now_t(),
                                  .detail = "on the warm pool of " + pool.row.job.name,
                                  .hosts = std::move(rows),
                                  .warm_from = pool_id});
  if (!taken) ::unlink(pool_note(live.row.dir).c_str());
  reload(pool_id);
  settle(pool_id);
  return taken;
}

void Controller::expire_warm_pools() {
  std::vector<int64_t> expired;
  for (const auto& [id, live] : jobs_)
    if (is_kept_whole(live) && live.row.warm.until_t <= now_t()) expired.push_back(id);
  for (const int64_t id : expired) {
    // Who does not hear it, or starts to wait later, ends by its own time.
    for (const auto& host : jobs_.at(id).hosts)
      if (const Status told = engine_->send(dir_of(jobs_.at(id), host), "release"); !told)
        log_info("{}", told.error().message);
    const Status ended = store_.with([&](auto& db) { return db.end_warm_pool(id, now_t()); });
    if (!ended) log_warning("a warm pool does not end: {}", ended.error().message);
    reload(id);
    settle(id);
  }
}

}  // namespace yard::engine::internal
