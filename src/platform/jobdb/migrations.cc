#include <fmt/format.h>

#include <chrono>

#include "base/clock.h"
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

Result<int64_t> read_pragma(Connection& connection, const char* sql) {
  YARD_ASSIGN(Statement statement, connection.prepare(sql));
  YARD_ASSIGN(const bool row, statement.step());
  return row ? statement.integer() : int64_t{0};
}

Status check_readable(int64_t version, int64_t application, const std::string& path) {
  if (version > kSchemaVersion) {
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: written by a newer trainyard (schema {}, this one knows {}): use "
                             "that version, or another YARD_HOME",
                             path, version, kSchemaVersion)};
  }
  if (application == kApplicationId || (application == 0 && version == 0)) return Ok{};
  return Error{Code::kCorrupt, path + ": not a database of trainyard"};
}

// When several processes open a new database at once, SQLite refuses the switch of all but one
// without regard to the busy time-out, so the waiting is done here.
Status use_write_ahead_log(Connection& connection) {
  constexpr int kAttempts = 1'000;
  constexpr std::chrono::milliseconds kPause(10);
  Status status = Ok{};
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    status = connection.execute("PRAGMA journal_mode = WAL");
    if (status || status.error().code != Code::kUnavailable) break;
    Clock::real().sleep_for(kPause, StopToken());
  }
  return status;
}

}  // namespace

Status migrate(Connection& connection, const std::string& path) {
  // Once without the lock: readers of a database that is up to date never wait.
  YARD_ASSIGN(int64_t version, read_pragma(connection, "PRAGMA user_version"));
  YARD_ASSIGN(int64_t application, read_pragma(connection, "PRAGMA application_id"));
  YARD_TRY(check_readable(version, application, path));
  if (version == kSchemaVersion) return Ok{};

  YARD_ASSIGN(Transaction transaction, Transaction::begin(connection));
  YARD_ASSIGN(version, read_pragma(connection, "PRAGMA user_version"));
  YARD_ASSIGN(application, read_pragma(connection, "PRAGMA application_id"));
  YARD_TRY(check_readable(version, application, path));
  if (version == 0) {
    YARD_ASSIGN(const int64_t tables,
                read_pragma(connection, "SELECT count(*) FROM sqlite_master"));
    if (tables > 0) return Error{Code::kCorrupt, path + ": not a database of trainyard"};
  }
  for (; version < kSchemaVersion; ++version) YARD_TRY(connection.execute(kSteps[version]));
  YARD_TRY(connection.execute(fmt::format("PRAGMA user_version = {}; PRAGMA application_id = {}",
                                          kSchemaVersion, kApplicationId)
                                  .c_str()));
  return transaction.commit();
}

Result<Connection> open_database(const std::string& path) {
  YARD_ASSIGN(Connection connection, Connection::open(path));
  // NORMAL: no fsync per commit, so a supervisor never waits for the disk between a death and the
  // restart. The processes that a power cut would spare do not exist.
  YARD_TRY(use_write_ahead_log(connection));
  YARD_TRY(connection.execute("PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON"));
  YARD_TRY(migrate(connection, path));
  return connection;
}

}  // namespace yard::jobdb::internal
