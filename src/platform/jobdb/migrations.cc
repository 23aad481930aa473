#include <fmt/format.h>

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

}  // namespace yard::jobdb::internal
