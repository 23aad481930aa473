#include "transfer/sync_plan.h"

#include <chrono>

namespace yard::transfer {

bool is_same(const storage::ObjectInfo& source, const storage::ObjectInfo& target,
             const SyncOptions& options) {
  if (source.size_bytes != target.size_bytes) return false;
  if (options.size_only) return true;
  if (!source.etag.empty() && source.etag == target.etag) return true;
  using std::chrono::floor, std::chrono::seconds;
  return floor<seconds>(target.modified) >= floor<seconds>(source.modified);
}

SyncPlan plan_sync(std::span<const storage::ObjectInfo> source,
                   std::span<const storage::ObjectInfo> target, const SyncOptions& options) {
  SyncPlan plan;
  auto old = target.begin();
  const auto drop_until = [&](const std::string* key) {
    for (; old != target.end() && (key == nullptr || old->key < *key); ++old)
      if (options.delete_others) plan.deletions.push_back(old->key);
  };
  for (const storage::ObjectInfo& info : source) {
    drop_until(&info.key);
    const bool is_there = old != target.end() && old->key == info.key;
    if (is_there && is_same(info, *old, options))
      ++plan.same_count;
    else
      plan.copies.push_back(info);
    if (is_there) ++old;
  }
  drop_until(nullptr);
  return plan;
}

}  // namespace yard::transfer
