// The schema, as the list of steps that led to it. Append a step; never change one that was
// released.
#pragma once

#include <string>

#include "base/result.h"
#include "jobdb/sqlite_internal.h"

namespace yard::jobdb::internal {

inline constexpr int kSchemaVersion = 2;
// "yard" in ASCII, in the file's header (PRAGMA application_id).
inline constexpr int kApplicationId = 0x79617264;

// Each step is one transaction with its number. See JobDb::open() for the codes.
Status migrate(Connection& connection, const std::string& path);

// Opened, migrated, in WAL mode.
Result<Connection> open_database(const std::string& path);

}  // namespace yard::jobdb::internal
