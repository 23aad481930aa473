#include <fmt/format.h>

#include "sqlite/sqlite.h"

namespace yard::sqlite {
namespace {

constexpr int kBusyTimeout_ms = 10'000;

Code code_of(int rc) {
  switch (rc & 0xff) {
    case SQLITE_FULL:
    case SQLITE_NOMEM:
      return Code::kExhausted;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Code::kUnavailable;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Code::kCorrupt;
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return Code::kInvalidArgument;
    case SQLITE_IOERR:
      return Code::kUnavailable;
    default:
      return Code::kInternal;
  }
}

Error error_of(sqlite3* db, std::string_view name, int rc, std::string_view doing) {
  // An I/O error with ENOSPC comes as SQLITE_FULL; the rest of SQLITE_IOERR may pass.
  return {code_of(rc), fmt::format("{}: {} ({})", name, sqlite3_errmsg(db), doing)};
}

}  // namespace

Connection::Connection(sqlite3* db, std::string path) : db_(db), path_(std::move(path)) {}
Connection::Connection(Connection&&) noexcept = default;
Connection& Connection::operator=(Connection&&) noexcept = default;
Connection::~Connection() = default;

Result<Connection> Connection::open(const std::string& path) {
  sqlite3* db = nullptr;
  const int rc = sqlite3_open_v2(
      path.c_str(), &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  if (db == nullptr) return Error{Code::kExhausted, path + ": no memory for the database"};
  Connection connection(db, path);
  if (rc != SQLITE_OK) return connection.error(rc, "opening");
  sqlite3_extended_result_codes(db, 1);
  sqlite3_busy_timeout(db, kBusyTimeout_ms);
  return connection;
}

Status Connection::execute(const char* sql) {
  const int rc = sqlite3_exec(handle(), sql, nullptr, nullptr, nullptr);
  if (rc != SQLITE_OK) return error(rc, sql);
  return Ok{};
}

Result<Statement> Connection::prepare(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int rc =
      sqlite3_prepare_v2(handle(), sql.data(), static_cast<int>(sql.size()), &statement, nullptr);
  if (rc != SQLITE_OK) return error(rc, sql);
  return Statement(handle(), statement);
}

Result<CachedStatement> Connection::cached(std::string_view sql) {
  auto found = cached_.find(sql);
  if (found == cached_.end()) {
    YARD_ASSIGN(Statement statement, prepare(sql));
    found = cached_.emplace(sql, std::make_unique<Statement>(std::move(statement))).first;
  }
  return CachedStatement(found->second.get());
}

Error Connection::error(int rc, std::string_view doing) const {
  return error_of(handle(), path_, rc, doing);
}

Statement& Statement::bind(std::string_view text) {
  // A view of nothing is an empty text, not NULL.
  const int rc = sqlite3_bind_text64(statement_.get(), ++parameter_, text.data() ? text.data() : "",
                                     text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  if (rc != SQLITE_OK) bind_rc_ = rc;
  return *this;
}

Statement& Statement::bind(int64_t value) {
  const int rc = sqlite3_bind_int64(statement_.get(), ++parameter_, value);
  if (rc != SQLITE_OK) bind_rc_ = rc;
  return *this;
}

Statement& Statement::bind(double value) {
  const int rc = sqlite3_bind_double(statement_.get(), ++parameter_, value);
  if (rc != SQLITE_OK) bind_rc_ = rc;
  return *this;
}

Statement& Statement::bind_null() {
  const int rc = sqlite3_bind_null(statement_.get(), ++parameter_);
  if (rc != SQLITE_OK) bind_rc_ = rc;
  return *this;
}

void Statement::reset() {
  sqlite3_reset(statement_.get());
  sqlite3_clear_bindings(statement_.get());
  parameter_ = column_ = 0;
  bind_rc_ = SQLITE_OK;
}

Result<bool> Statement::step() {
  column_ = 0;
  const int rc = bind_rc_ == SQLITE_OK ? sqlite3_step(statement_.get()) : bind_rc_;
  if (rc == SQLITE_ROW) return true;
  if (rc == SQLITE_DONE) return false;
  const char* name = sqlite3_db_filename(db_, "main");
  return error_of(db_, name == nullptr ? "" : name, rc, sqlite3_sql(statement_.get()));
}

Status Statement::run() {
  while (true) {
    YARD_ASSIGN(const bool row, step());
    if (!row) return Ok{};
  }
}

std::string Statement::text() {
  const int column = column_++;
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
  const int size = sqlite3_column_bytes(statement_.get(), column);
  return bytes == nullptr ? std::string() : std::string(bytes, static_cast<size_t>(size));
}

int64_t Statement::integer() {
  return sqlite3_column_int64(statement_.get(), column_++);
}

double Statement::real() {
  return sqlite3_column_double(statement_.get(), column_++);
}

Result<Transaction> Transaction::begin(Connection& connection) {
  YARD_TRY(connection.execute("BEGIN IMMEDIATE"));
  return Transaction(&connection);
}

Transaction::~Transaction() {
  if (connection_ == nullptr) return;
  // It fails only where SQLite has rolled back by itself, as after a full disk.
  [[maybe_unused]] const Status rolled_back = connection_->execute("ROLLBACK");
}

Status Transaction::commit() {
  YARD_TRY(connection_->execute("COMMIT"));
  connection_ = nullptr;
  return Ok{};
}

}  // namespace yard::sqlite
