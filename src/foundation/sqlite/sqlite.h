// The seam to SQLite: handles that close themselves, codes that become ours.
//
// kExhausted: disk or memory full; kUnavailable: another process held the write lock for 10 s, or
// an I/O error; kCorrupt: damaged, or no database; kInvalidArgument: cannot be opened or written.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace yard::sqlite {

class CachedStatement;
class Statement;

// Not thread-safe.
class Connection {
 public:
  static Result<Connection> open(const std::string& path);
  Status execute(const char* sql);  // any number of statements, without results
  Result<Statement> prepare(std::string_view sql);
  // The same statement is prepared once and then only reset: for what runs thousands of times a
  // second. One use of a statement at a time, and none may outlive the connection.
  Result<CachedStatement> cached(std::string_view sql);
  Error error(int rc, std::string_view doing) const;
  int64_t changes() const { return sqlite3_changes64(handle()); }  // rows of the last statement
  int64_t last_row_id() const { return sqlite3_last_insert_rowid(handle()); }
  sqlite3* handle() const { return db_.get(); }

  Connection(Connection&&) noexcept;
  Connection& operator=(Connection&&) noexcept;
  ~Connection();

 private:
  struct Close {
    void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
  };
  Connection(sqlite3* db, std::string path);
  std::unique_ptr<sqlite3, Close> db_;
  std::string path_;
  std::map<std::string, std::unique_ptr<Statement>, std::less<>> cached_;
};

// Parameters are bound in order, columns are read in order.
class Statement {
 public:
  Statement& bind(std::string_view text);
  Statement& bind(int64_t value);
  Statement& bind(double value);
  Statement& bind_null();
  void reset();         // to be bound and run again
  Result<bool> step();  // true: a row is there
  Status run();         // to the end
  std::string text();
  int64_t integer();
  double real();

 private:
  friend class CachedStatement;
  friend class Connection;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  Statement(sqlite3* db, sqlite3_stmt* statement) : db_(db), statement_(statement) {}
  sqlite3* db_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  int parameter_ = 0;
  int column_ = 0;
  int bind_rc_ = SQLITE_OK;
};

// A schema as the list of steps that led to it: append a step, never change one that was released.
struct Schema {
  std::span<const char* const> steps;  // steps[n] leads from version n to n + 1
  int application_id = 0;              // in the file's header
};
// Made when missing, in WAL mode, with foreign keys, and brought up to the schema in one
// transaction. kInvalidArgument: a newer version wrote it; kCorrupt: it is something else;
// Connection's codes. The death of a process takes no commit. A power cut may take the last ones,
// unless `power_safe`, which waits for the disk at each commit.
struct DatabaseOptions {
  bool power_safe = false;
};
Result<Connection> open_database(const std::string& path, const Schema& schema,
                                 const DatabaseOptions& options);

// A use of a prepared statement: reset at its end, so that no read transaction stays open.
class CachedStatement {
 public:
  CachedStatement(CachedStatement&& other) noexcept
      : statement_(std::exchange(other.statement_, nullptr)) {}
  CachedStatement& operator=(CachedStatement&&) = delete;
  ~CachedStatement() {
    if (statement_ != nullptr) statement_->reset();
  }
  Statement* operator->() const { return statement_; }
  Statement& operator*() const { return *statement_; }

 private:
  friend class Connection;
  explicit CachedStatement(Statement* statement) : statement_(statement) {}
  Statement* statement_;
};

// Takes the write lock at once, so that what is read inside is still true at the commit. Rolled
// back unless committed.
class Transaction {
 public:
  static Result<Transaction> begin(Connection& connection);
  Transaction(Transaction&& other) noexcept : connection_(other.connection_) {
    other.connection_ = nullptr;
  }
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();
  Status commit();

 private:
  explicit Transaction(Connection* connection) : connection_(connection) {}
  Connection* connection_;
};

}  // namespace yard::sqlite
