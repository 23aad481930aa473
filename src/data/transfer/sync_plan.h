// What `yard sync` has to do: two listings compared. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "storage/object_store.h"

namespace yard::transfer {

struct SyncOptions {
  bool delete_others = false;  // what only the target has
  bool size_only = false;      // times are not compared
};

// A source object and its target are taken for the same when their sizes are, and either their
// etags (of stores that make them alike, such as two buckets) or the target is not older, by whole
// seconds. Copying a file down gives it the object's time, so that the next sync finds it the same.
bool is_same(const storage::ObjectInfo& source, const storage::ObjectInfo& target,
             const SyncOptions& options);

struct SyncPlan {
  std::vector<storage::ObjectInfo> copies;  // of the source
  std::vector<std::string> deletions;       // keys of the target
  size_t same_count = 0;
};
// Keys relative to both roots, both lists in byte order.
SyncPlan plan_sync(std::span<const storage::ObjectInfo> source,
                   std::span<const storage::ObjectInfo> target, const SyncOptions& options);

}  // namespace yard::transfer
