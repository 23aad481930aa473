// CheckpointStore: the checkpoints of one run under one prefix of a store.
//
//   PREFIX/step-00001200/manifest.json           the commit point: written last, removed first
//   PREFIX/step-00001200/data-<id>/...           the files that the manifest names
//
// A step without a manifest is no checkpoint: somebody is writing it, or died doing so.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "checkpoint/manifest.h"
#include "storage/object_store.h"

namespace yard::checkpoint {

// Which checkpoints stay when there is a new one.
struct RetentionRule {
  int64_t keep_last = 0;         // the newest so many; 0: all
  int64_t keep_every_steps = 0;  // and those whose step is a multiple of it; 0: none besides
};
// Of `steps` (ascending), those that go. Pure.
std::vector<int64_t> steps_to_remove(std::span<const int64_t> steps, const RetentionRule& rule);

struct CheckpointInfo {
  int64_t step = 0;
  bool is_whole = false;  // has a manifest
};

// Thread-safe as its store. Removing is for one rank at a time.
class CheckpointStore {
 public:
  // `store` must outlive it. `prefix`: "" or a folder, with or without a '/' at its end.
  CheckpointStore(storage::ObjectStore& store, std::string_view prefix);

  // Every step that has a folder, ascending.
  Result<std::vector<CheckpointInfo>> list() const;
  // Only whole ones; the newest of them (nullopt: there is none) that can be read: one whose
  // manifest is damaged is passed over with a warning.
  Result<std::vector<int64_t>> steps() const;
  Result<std::optional<CheckpointManifest>> latest() const;

  // kNotFound: no such checkpoint; kCorrupt: its manifest is damaged.
  Result<CheckpointManifest> read(int64_t step) const;

  // Reads every byte of the step and compares it with its checksums. kCorrupt names file and
  // tensor. `on_bytes` hears of what was read, from any thread.
  Status verify(const CheckpointManifest& manifest, const StopToken& stop = {},
                const std::function<void(uint64_t)>& on_bytes = nullptr) const;

  // The manifest first, so that an interrupted removal leaves nothing that looks whole.
  Status remove(int64_t step) const;
  // Removes what `rule` lets go: whole checkpoints only.
  Status retain(const RetentionRule& rule) const;
  // Removes what unfinished saves left, unless something of it was written within `age_min`: files
  // that their step's manifest does not name, steps without one, and messages by which ranks
  // agreed through the store, these an hour old at least. `spared_id`: of a save that is
  // under way. How many objects were removed.
  Result<uint64_t> sweep(std::chrono::seconds age_min, std::string_view spared_id = {},
                         const Clock& clock = Clock::real()) const;

  storage::ObjectStore& store() const { return store_; }
  const std::string& prefix() const { return prefix_; }  // "" or ending in '/'
  std::string folder_of(int64_t step) const;             // "PREFIX/step-00001200/"
  std::string manifest_key(int64_t step) const;
  std::string url_of(std::string_view key) const;

 private:
  Result<std::vector<int64_t>> folders() const;
  // What sweep() removes of a step.
  Result<std::vector<std::string>> abandoned_files(int64_t step, Clock::Wall written_max,
                                                   std::string_view spared_id) const;

  storage::ObjectStore& store_;
  const std::string prefix_;
};

// "data-<id>/00001-of-00008-002.safetensors": the file `index` of `rank`, from the step's folder.
std::string data_file_name(std::string_view id, int rank, int world_size, size_t index);

}  // namespace yard::checkpoint
