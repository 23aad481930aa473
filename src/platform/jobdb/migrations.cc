#include "jobdb/migrations_internal.h"

namespace yard::jobdb::internal {
namespace {

// kSteps[n] leads from version n to version n + 1.
constexpr const char* kSteps[kSchemaVersion] = {
    R"sql(
CREATE TABLE jobs (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  dir TEXT NOT NULL,
  state TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT '',
  host TEXT NOT NULL DEFAULT '',
  owner_pid INTEGER NOT NULL,
  owner_start_ticks INTEGER NOT NULL,
  created_t REAL NOT NULL,
  updated_t REAL NOT NULL
);
CREATE TABLE attempts (
  job_id INTEGER NOT NULL REFERENCES jobs(id) ON DELETE CASCADE,
  number INTEGER NOT NULL,
  started_t REAL NOT NULL,
  ended_t REAL NOT NULL DEFAULT 0,
  outcome TEXT NOT NULL DEFAULT '',
  detail TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (job_id, number)
);
CREATE TABLE transitions (
  id INTEGER PRIMARY KEY,
  job_id INTEGER NOT NULL REFERENCES jobs(id) ON DELETE CASCADE,
  t REAL NOT NULL,
  from_state TEXT NOT NULL,
  event TEXT NOT NULL,
  to_state TEXT NOT NULL,
  action TEXT NOT NULL,
  action_done INTEGER NOT NULL,
  detail TEXT NOT NULL
);
CREATE INDEX transitions_of_job ON transitions (job_id, id);
CREATE INDEX transitions_pending ON transitions (id) WHERE action_done = 0;
)sql",
    R"sql(
CREATE TABLE platform_jobs (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  arn TEXT NOT NULL UNIQUE,
  request TEXT NOT NULL,
  user TEXT NOT NULL,
  dir TEXT NOT NULL,
  stage TEXT NOT NULL,
  ending TEXT NOT NULL,
  status TEXT NOT NULL,
  secondary TEXT NOT NULL,
  failure_reason TEXT NOT NULL DEFAULT '',
  exit_code INTEGER NOT NULL DEFAULT -1,
  created_t REAL NOT NULL,
  modified_t REAL NOT NULL,
  queued_t REAL NOT NULL,
  training_start_t REAL NOT NULL DEFAULT 0,
  training_end_t REAL NOT NULL DEFAULT 0,
  attempt INTEGER NOT NULL DEFAULT 0,
  relaunches TEXT NOT NULL DEFAULT '[]',
  replaced_count INTEGER NOT NULL DEFAULT 0,
  avoided_slices TEXT NOT NULL DEFAULT '[]',
  host_was_at_fault INTEGER NOT NULL DEFAULT 0,
  model_uri TEXT NOT NULL DEFAULT '',
  output_uri TEXT NOT NULL DEFAULT '',
  warm_state TEXT NOT NULL DEFAULT '',
  keep_alive_s INTEGER NOT NULL DEFAULT 0,
  warm_since_t REAL NOT NULL DEFAULT 0,
  warm_until_t REAL NOT NULL DEFAULT 0,
  reused_by TEXT NOT NULL DEFAULT '',
  UNIQUE (kind, name)
);
CREATE INDEX platform_jobs_created ON platform_jobs (kind, created_t, id);
CREATE INDEX platform_jobs_queued ON platform_jobs (stage);
CREATE INDEX platform_jobs_active ON platform_jobs (id)
  WHERE stage NOT IN ('completed', 'failed', 'stopped');
CREATE TABLE platform_status_changes (
  job_id INTEGER NOT NULL REFERENCES platform_jobs(id) ON DELETE CASCADE,
  number INTEGER NOT NULL,
  status TEXT NOT NULL,
  start_t REAL NOT NULL,
  end_t REAL NOT NULL DEFAULT 0,
  message TEXT NOT NULL,
  PRIMARY KEY (job_id, number)
) WITHOUT ROWID;
CREATE TABLE platform_attempts (
  job_id INTEGER NOT NULL REFERENCES platform_jobs(id) ON DELETE CASCADE,
  number INTEGER NOT NULL,
  started_t REAL NOT NULL,
  ended_t REAL NOT NULL DEFAULT 0,
  outcome TEXT NOT NULL DEFAULT '',
  cause TEXT NOT NULL DEFAULT '',
  detail TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (job_id, number)
) WITHOUT ROWID;
CREATE TABLE platform_transitions (
  id INTEGER PRIMARY KEY,
  job_id INTEGER NOT NULL REFERENCES platform_jobs(id) ON DELETE CASCADE,
  t REAL NOT NULL,
  from_stage TEXT NOT NULL,
  event TEXT NOT NULL,
  to_stage TEXT NOT NULL,
  work TEXT NOT NULL,
  work_done INTEGER NOT NULL,
  detail TEXT NOT NULL
);
CREATE INDEX platform_transitions_of_job ON platform_transitions (job_id, id);
CREATE INDEX platform_transitions_pending ON platform_transitions (id) WHERE work_done = 0;
CREATE TABLE platform_hosts (
  job_id INTEGER NOT NULL REFERENCES platform_jobs(id) ON DELETE CASCADE,
  number INTEGER NOT NULL,
  name TEXT NOT NULL,
  life TEXT NOT NULL,
  group_name TEXT NOT NULL,
  instance_type TEXT NOT NULL,
  slice INTEGER NOT NULL DEFAULT 0,
  cores TEXT NOT NULL DEFAULT '[]',
  gpus TEXT NOT NULL DEFAULT '[]',
  memory_bytes INTEGER NOT NULL DEFAULT 0,
  price_per_hour REAL NOT NULL DEFAULT 0,
  is_shared INTEGER NOT NULL DEFAULT 1,
  PRIMARY KEY (job_id, number)
) WITHOUT ROWID;
CREATE INDEX platform_hosts_active ON platform_hosts (job_id) WHERE life != 'free';
CREATE TABLE platform_tags (
  arn TEXT NOT NULL REFERENCES platform_jobs(arn) ON DELETE CASCADE,
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (arn, key)
) WITHOUT ROWID;
)sql",
};

}  // namespace

Result<Connection> open_database(const std::string& path) {
  // Not power-safe: a supervisor never waits for the disk between a death and the restart. The
  // processes that a power cut would spare do not exist.
  return sqlite::open_database(path, {.steps = kSteps, .application_id = kApplicationId}, {});
}

}  // namespace yard::jobdb::internal
