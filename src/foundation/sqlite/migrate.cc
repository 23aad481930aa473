#include <fmt/format.h>

#include <chrono>
#include <iterator>

#include "base/clock.h"
#include "sqlite/sqlite.h"

namespace yard::sqlite {
namespace {

Result<int64_t> read_pragma(Connection& connection, const char* sql) {
  YARD_ASSIGN(Statement statement, connection.prepare(sql));
  YARD_ASSIGN(const bool row, statement.step());
  return row ? statement.integer() : int64_t{0};
}

Status check_readable(int64_t version, int64_t application, const Schema& schema,
                      const std::string& path) {
  if (version > std::ssize(schema.steps)) {
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: written by a newer trainyard (schema {}, this one knows {}): use "
                             "that version, or another YARD_HOME",
                             path, version, schema.steps.size())};
  }
  if (application == schema.application_id || (application == 0 && version == 0)) return Ok{};
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

Status migrate(Connection& connection, const Schema& schema, const std::string& path) {
  // Once without the lock: readers of a database that is up to date never wait.
  YARD_ASSIGN(int64_t version, read_pragma(connection, "PRAGMA user_version"));
  YARD_ASSIGN(int64_t application, read_pragma(connection, "PRAGMA application_id"));
  YARD_TRY(check_readable(version, application, schema, path));
  if (version == std::ssize(schema.steps)) return Ok{};

  YARD_ASSIGN(Transaction transaction, Transaction::begin(connection));
  YARD_ASSIGN(version, read_pragma(connection, "PRAGMA user_version"));
  YARD_ASSIGN(application, read_pragma(connection, "PRAGMA application_id"));
  YARD_TRY(check_readable(version, application, schema, path));
  if (version == 0) {
    YARD_ASSIGN(const int64_t tables,
                read_pragma(connection, "SELECT count(*) FROM sqlite_master"));
    if (tables > 0) return Error{Code::kCorrupt, path + ": not a database of trainyard"};
  }
  for (; version < std::ssize(schema.steps); ++version)
    YARD_TRY(connection.execute(schema.steps[static_cast<size_t>(version)]));
  YARD_TRY(connection.execute(fmt::format("PRAGMA user_version = {}; PRAGMA application_id = {}",
                                          std::ssize(schema.steps), schema.application_id)
                                  .c_str()));
  return transaction.commit();
}

}  // namespace

Result<Connection> open_database(const std::string& path, const Schema& schema,
                                 const DatabaseOptions& options) {
  YARD_ASSIGN(Connection connection, Connection::open(path));
  YARD_TRY(use_write_ahead_log(connection));
  YARD_TRY(connection.execute(options.power_safe ? "PRAGMA synchronous = FULL"
                                                 : "PRAGMA synchronous = NORMAL"));
  YARD_TRY(connection.execute("PRAGMA foreign_keys = ON"));
  YARD_TRY(migrate(connection, schema, path));
  return connection;
}

}  // namespace yard::sqlite
