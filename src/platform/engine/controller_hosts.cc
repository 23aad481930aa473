// The hosts of one job: started, told, replaced, cleared.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "engine/controller_internal.h"
#include "host/job_folder.h"

namespace yard::engine::internal {

using jobdb::PlatformHostRow;
using jobs::HostLife;
using jobs::HostPhase;
using jobs::JobStage;
using jobs::PlatformEvent;

namespace {

// From being asked to go, by a word, to being ended.
constexpr double kClearGrace_s = 30;
// A host that its job needs again soon.
constexpr int kRestartKeep_s = 600;
constexpr int kResumesMax = 3;

bool is_past_script(const HostLook& look) {
  return look.status && look.status->phase >= HostPhase::kFinished;
}

bool is_kept(const HostLook& look) {
  return look.is_alive && look.status && look.status->phase == HostPhase::kEnded &&
         look.status->is_kept;
}

bool contains(const std::vector<int>& list, int item) {
  return std::ranges::find(list, item) != list.end();
}

}  // namespace

std::string Controller::dir_of(const LiveJob& live, const PlatformHostRow& host) const {
  return host_dir(live.row.dir, host.name);
}

void Controller::set_life(LiveJob& live, PlatformHostRow& host, HostLife life) {
  const Status stored =
      store_.with([&](auto& db) { return db.set_host_life(live.row.id, host.name, life); });
  // Said again at the next look.
  if (!stored) return log_warning("job '{}': {}", live.row.job.name, stored.error().message);
  host.life = life;
}

Status Controller::start_host(LiveJob& live, const PlatformHostRow& host) {
  const std::string dir = dir_of(live, host);
  YARD_ASSIGN(auto plan, build_host_plan(options_.context, live.row, live.hosts, host));
  plan.network_dir = live.network_dir;
  YARD_TRY(make_directories(dir));
  YARD_TRY(make_directories(plan.log_dir));
  YARD_TRY(host::replace_file(jobs::HostFolder{dir}.plan(), jobs::to_json(plan).dump(2) + "\n"));
  std::string kept_dir;
  if (live.row.attempt > 0)
    kept_dir = dir;
  else if (!live.pool_dir.empty())
    kept_dir = host_dir(live.pool_dir, host.name);
  return engine_->start(dir, host.slice, kept_dir);
}

// Scripts start together: when every host is ready for its own.
void Controller::let_go(LiveJob& live) {
  if (live.hosts.size() < 2) return;
  std::vector<const PlatformHostRow*> waiting;
  for (const auto& host : live.hosts) {
    const HostLook look = engine_->look(dir_of(live, host));
    if (host.life != HostLife::kStarted || !look.status) return;
    if (look.status->phase >= HostPhase::kTraining) continue;
    if (!look.status->is_ready) return;
    waiting.push_back(&host);
  }
  for (const PlatformHostRow* host : waiting) say(live, *host, "go");
}

// What a supervisor that vanished after its script's end still had to do, another one does.
void Controller::resume_hosts(LiveJob& live) {
  for (const auto& host : live.hosts) {
    if (host.life != HostLife::kStarted) continue;
    const HostLook look = engine_->look(dir_of(live, host));
    const bool has_more = look.status && (look.status->phase == HostPhase::kFinished ||
                                          look.status->phase == HostPhase::kUpload);
    if (look.is_alive || !has_more || live.resumed_count[host.name] >= kResumesMax) continue;
    ++live.resumed_count[host.name];
    live.said.erase(host.name);
    log_info("job '{}', {}: its supervisor vanished, another goes on", live.row.job.name,
             host.name);
    const Status started = engine_->start(dir_of(live, host), host.slice, "");
    if (!started) live.start_errors[host.name] = started.error().message;
  }
}

void Controller::start_hosts(LiveJob& live) {
  bool started_one = false;
  for (auto& host : live.hosts) {
    if (host.life != HostLife::kHeld) continue;
    const Status started = start_host(live, host);
    if (!started) {
      log_warning("job '{}', {}: {}", live.row.job.name, host.name, started.error().message);
      live.start_errors[host.name] = started.error().message;
    }
    set_life(live, host, HostLife::kStarted);
    started_one = true;
  }
  if (!started_one) return;
  const Status marked = store_.with([&](auto& db) { return db.mark_work_done(live.row.id); });
  if (!marked) log_warning("job '{}': {}", live.row.job.name, marked.error().message);
}

void Controller::say(LiveJob& live, const PlatformHostRow& host, std::string_view word) {
  auto& said = live.said[host.name];
  if (said.contains(word)) return;
  // Not heard: said again at the next look, until the host is past it or gone.
  if (engine_->send(dir_of(live, host), word)) said.emplace(word);
}

void Controller::tell_hosts(LiveJob& live) {
  const bool ends = live.row.state.stage == JobStage::kEnding;
  const bool failed = live.row.state.ending == jobs::EndReason::kFailure;
  for (const auto& host : live.hosts) {
    const HostLook look = engine_->look(dir_of(live, host));
    if (!look.is_alive) continue;
    if (ends && !is_past_script(look)) say(live, host, failed ? "kill" : "stop");
    if (ends || !look.status || look.status->phase != HostPhase::kFinished) continue;
    if (jobs::may_have_warm_pool(live.row.job, live.needs) && !live.row.host_was_at_fault)
      say(live, host, fmt::format("keep {}", live.needs.keep_alive_s));
    say(live, host, "upload");
  }
}

// True once nothing of the supervisor and its script is left.
bool Controller::clear_host(LiveJob& live, const PlatformHostRow& host) {
  const std::string dir = dir_of(live, host);
  const HostLook look = engine_->look(dir);
  if (!look.is_alive) {
    const bool ended_well = look.status && look.status->phase == HostPhase::kEnded;
    const bool may_have_left_something = look.status || host.life == HostLife::kStarted;
    if (ended_well || !may_have_left_something || live.cleaned.contains(host.name)) return true;
    live.cleaned.insert(host.name);
    engine_->kill(dir);
    return false;
  }
  say(live, host, is_past_script(look) ? "release" : "kill");
  const double since_t = live.clearing_since_t.try_emplace(host.name, now_t()).first->second;
  if (now_t() - since_t > kClearGrace_s) {
    live.cleaned.insert(host.name);
    engine_->kill(dir);
  }
  return false;
}

// Hosts that failed before their script began, once they are gone: others in their places.
bool Controller::replace_hosts(LiveJob& live) {
  std::vector<PlatformHostRow> rows;
  std::vector<std::string> types;
  bool all_gone = true;
  for (const auto& host : live.hosts) {
    if (host.life != HostLife::kClearing) continue;
    rows.push_back(host);
    types.push_back(host.slice.instance_type);
    all_gone &= clear_host(live, host);
  }
  if (rows.empty() || !all_gone) return false;
  std::vector<jobs::Slice> held = held_slices();
  std::erase_if(held, [&](const jobs::Slice& slice) {
    return std::ranges::any_of(rows, [&](const auto& row) { return row.slice == slice; });
  });
  const auto slices = engine_->place(held, types, live.row.avoided_slices);
  if (!slices && slices.error().code == Code::kExhausted) return false;
  if (!slices)
    return apply(live, {.job_id = live.row.id,
                        .event = PlatformEvent::kFault,
                        .t = now_t(),
                        .detail = "CapacityError: " + slices.error().message,
                        .cause = jobs::FaultCause::kHostFault});
  // Who has met all hosts already meets those that take their places.
  for (const auto& host : live.hosts)
    if (host.life == HostLife::kStarted) (void)engine_->send(dir_of(live, host), "meet");
  for (size_t i = 0; i < rows.size(); ++i) {
    const Status retired = engine_->retire(dir_of(live, rows[i]), live.row.attempt);
    if (!retired) log_warning("{}", retired.error().message);
    rows[i].slice = (*slices)[i];
    rows[i].life = HostLife::kHeld;
    live.said.erase(rows[i].name);
    live.cleaned.erase(rows[i].name);
    live.clearing_since_t.erase(rows[i].name);
    live.start_errors.erase(rows[i].name);
  }
  return apply(live, {.job_id = live.row.id,
                      .event = PlatformEvent::kHostsReplaced,
                      .t = now_t(),
                      .hosts = std::move(rows)});
}

// True once its script is gone; its supervisor stays, with what it downloaded, if it can.
bool Controller::keep_for_restart(LiveJob& live, const PlatformHostRow& host) {
  const HostLook look = engine_->look(dir_of(live, host));
  if (is_kept(look)) return true;
  if (look.is_alive) say(live, host, fmt::format("keep {}", kRestartKeep_s));
  return clear_host(live, host);
}

// Healthy hosts keep their slices, and what they have, for the next attempt.
bool Controller::clear_for_restart(LiveJob& live) {
  const bool hangs = std::ranges::any_of(live.hosts, [&](const auto& host) {
    const HostLook look = engine_->look(dir_of(live, host));
    return look.status && look.status->cause == jobs::HostCause::kHang;
  });
  bool all_gone = true;
  for (const auto& host : live.hosts) {
    const bool is_bad =
        host.life != HostLife::kStarted || contains(live.row.avoided_slices, host.slice.number);
    // Where the others were when one of them was found to hang.
    if (hangs && engine_->look(dir_of(live, host)).is_alive) say(live, host, "stacks");
    all_gone &= is_bad ? clear_host(live, host) : keep_for_restart(live, host);
  }
  if (!all_gone) return false;
  std::vector<PlatformHostRow> rows = live.hosts;
  for (auto& row : rows) {
    const Status retired = engine_->retire(dir_of(live, row), live.row.attempt);
    if (!retired) {
      log_warning("{}", retired.error().message);
      return false;
    }
    const bool is_bad = row.life == HostLife::kClearing || row.life == HostLife::kWanted ||
                        contains(live.row.avoided_slices, row.slice.number);
    row.life = is_bad ? HostLife::kWanted : HostLife::kHeld;
  }
  return apply(live, {.job_id = live.row.id,
                      .event = PlatformEvent::kHostsCleared,
                      .t = now_t(),
                      .hosts = std::move(rows)});
}

bool Controller::give_back_hosts(LiveJob& live) {
  const bool stays = live.row.warm.state == jobs::WarmState::kAvailable;
  bool gave_one = false;
  for (auto& host : live.hosts) {
    // For how long may be changed while they wait.
    if (stays && host.life == HostLife::kKept && live.row.warm.keep_alive_s > 0)
      say(live, host, fmt::format("keep {}", live.row.warm.keep_alive_s));
    const bool is_done = host.life == HostLife::kFree || host.life == HostLife::kKept;
    if (is_done) continue;
    const bool waits = stays && is_kept(engine_->look(dir_of(live, host)));
    if (!waits && !clear_host(live, host)) continue;
    set_life(live, host, stays ? HostLife::kKept : HostLife::kFree);
    gave_one = true;
  }
  const bool all_done = std::ranges::all_of(live.hosts, [](const auto& host) {
    return host.life == HostLife::kFree || host.life == HostLife::kKept;
  });
  if (!gave_one || !all_done) return false;
  const Status marked = store_.with([&](auto& db) { return db.mark_work_done(live.row.id); });
  if (!marked) log_warning("job '{}': {}", live.row.job.name, marked.error().message);
  return false;
}

}  // namespace yard::engine::internal
