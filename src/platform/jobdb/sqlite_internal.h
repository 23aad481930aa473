// The seam to SQLite: handles that close themselves, codes that become ours.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace yard::jobdb::internal {

class Statement;

// Not thread-safe.
class Connection {
 public:
  static Result<Connection> open(const std::string& path);
  Status execute(const char* sql);  // any number of statements, without results
  Result<Statement> prepare(std::string_view sql);
  Error error(int rc, std::string_view doing) const;
  sqlite3* handle() const { return db_.get(); }

 private:
  struct Close {
    void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
  };
  Connection(sqlite3* db, std::string path) : db_(db), path_(std::move(path)) {}
  std::unique_ptr<sqlite3, Close> db_;
  std::string path_;
};

// Parameters are bound in order, columns are read in order.
class Statement {
 public:
  Statement& bind(std::string_view text);
  Statement& bind(int64_t value);
  Statement& bind(double value);
  Result<bool> step();  // true: a row is there
  Status run();         // to the end
  void reset();         // to be bound and run again
  std::string text();
  int64_t integer();
  double real();

 private:
  friend class Connection;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  Statement(const Connection* connection, sqlite3_stmt* statement)
      : connection_(connection), statement_(statement) {}
  const Connection* connection_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  int parameter_ = 0;
  int column_ = 0;
  int bind_rc_ = SQLITE_OK;
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

}  // namespace yard::jobdb::internal
