// Mount: FastFile, the objects under a prefix as a read-only directory that streams.
//
//   YARD_ASSIGN(auto mount, Mount::start(store, {.prefix = "train/", .mount_point = "/data"}));
//   ... the files of /data are read, by this process or others ...
//   YARD_TRY(mount->stop());
//
// What a reader may rely on is in docs/SEMANTICS.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "base/stop_token.h"
#include "mount/key_share.h"
#include "storage/object_store.h"
#include "telemetry/counters.h"

namespace yard::mount {

struct MountOptions {
  std::string prefix;         // a folder's key, as "train/"; "": all of the store
  std::string mount_point;    // an existing directory
  uint64_t memory_bytes = 0;  // of all files together; 0: default_budget_bytes() of memory.h
  std::chrono::milliseconds metadata_ttl{60'000};  // how long a listing is believed
  std::optional<ShareOptions> share;               // show only this share of the objects
  bool allow_other = false;                        // users other than the one who mounts
  // Blocks that were read are kept in this folder; empty: nowhere.
  std::string cache_folder;
  uint64_t cache_bytes_max = uint64_t{10} << 30;
  // Files that are whole in the cache are read by the kernel itself, where it can.
  bool passthrough = true;
  std::chrono::milliseconds store_wait_max{300'000};  // readers wait for a store that is away
  std::chrono::milliseconds drain_max{30'000};        // stop() waits for open files
  uint64_t inode_count_max = 250'000;                 // of names that the kernel remembers
  // Requested when the mount ends and no request of the store is worth waiting for: the one whose
  // token the store was opened with.
  std::optional<StopSource> store_stop;
  StopToken stop;  // ends start() while it lists
};

// Thread-safe. One process may have several.
class Mount {
 public:
  // Lists a page of the prefix first, so that a wrong bucket is told here, and a prefix that is an
  // object (kInvalidArgument). One under which nothing is is mounted. A dead mount on
  // the directory is taken off. Returns when files can be opened. Codes of ObjectStore::list() and
  // of mount_point.h, and kUnavailable: the cache folder is in use.
  static Result<std::unique_ptr<Mount>> start(std::shared_ptr<storage::ObjectStore> store,
                                              MountOptions options, Clock& clock = Clock::real());
  ~Mount();  // stop()

  // Takes the mount off its directory at once; files that are open go on until they are closed, for
  // drain_max at most, or until `hurry`. Idempotent.
  Status stop(const StopToken& hurry = {});
  // Stopped once it is off its directory for whatever reason and no file is open any more.
  StopToken ended() const;

  const CounterRegistry& counters() const;  // mount_... of metric_names.h
  uint64_t memory_used_bytes() const;
  uint64_t held_name_count() const;  // names that the kernel remembers
  bool was_empty() const;            // when it started nothing was under the prefix
  bool has_passthrough() const;      // the kernel has it and lets us

 private:
  struct Impl;
  explicit Mount(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace yard::mount
