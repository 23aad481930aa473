// The schema, as the list of steps that led to it. Append a step; never change one that was
// released.
#pragma once

#include <string>

#include "base/result.h"
#include "sqlite/sqlite.h"

namespace yard::jobdb::internal {

using sqlite::Connection;
using sqlite::Statement;
using sqlite::Transaction;

inline constexpr int kSchemaVersion = 2;
// "yard" in ASCII, in the file's header (PRAGMA application_id).
inline constexpr int kApplicationId = 0x79617264;

// Opened and brought up to date. See JobDb::open() for the codes.
Result<Connection> open_database(const std::string& path);

}  // namespace yard::jobdb::internal
