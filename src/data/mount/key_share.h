// KeyShare: which of the objects under a prefix belong to one of several hosts.
//
// Whole objects, dealt out in turn in byte order of their keys, so that shares differ by one object
// at most and every host computes the same from the same listing. The listing is taken once, at the
// start: an object that comes later is in nobody's share, one that changes stays where it was.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/result.h"
#include "base/stop_token.h"
#include "storage/object_store.h"

namespace yard::mount {

struct ShareOptions {
  uint32_t index = 0;  // from 0
  uint32_t count = 1;
};

// "1/4" is the second of four shares. kInvalidArgument, also for index >= count.
Result<ShareOptions> parse_share(std::string_view text);

// Immutable, 8 bytes for each object and folder of the share.
class KeyShare {
 public:
  // Lists everything under `prefix`. Codes of ObjectStore::list(); kCancelled.
  static Result<KeyShare> take(storage::ObjectStore& store, std::string_view prefix,
                               const ShareOptions& options, const StopToken& stop);

  bool has_object(std::string_view key) const;
  bool has_folder(std::string_view key) const;  // "a/b/": whether an object under it is ours
  uint64_t object_count() const { return objects_.size(); }

 private:
  KeyShare() = default;
  // 64-bit hashes: two keys of a million share one with a chance of 3e-8, and then show a file
  // more.
  std::unordered_set<uint64_t> objects_;
  std::unordered_set<uint64_t> folders_;
};

// Of a key, the same in every process and build (FNV-1a, then mixed).
uint64_t key_hash(std::string_view key);

}  // namespace yard::mount
