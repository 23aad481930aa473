// CheckpointFolder: checkpoints of a run in a store, each visible only when it is whole.
//
// docs/formats/checkpoint.md has the layout. A checkpoint is a folder of files and manifest.json,
// written last: a folder without a valid manifest does not count and is removed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "storage/object_store.h"

namespace yard::loop {

struct CheckpointFile {
  std::string name;  // "unet.safetensors"
  std::string bytes;
};

struct FoundCheckpoint {
  int64_t global_step = 0;
  std::string key;  // "checkpoints/step-00001200"
  Json manifest;
};

// Thread-safe as its store, but only one rank may write or clean.
class CheckpointFolder {
 public:
  // `store` must outlive it.
  explicit CheckpointFolder(storage::ObjectStore& store) : store_(store) {}

  // Makes a checkpoint of that step, replacing one. On failure (kExhausted: store full) nothing of
  // it stays visible. `facts`: further keys of the manifest.
  Status write(int64_t global_step, const std::vector<CheckpointFile>& files, Json facts);

  // The newest checkpoint whose every file has its size and checksum; those that fail are passed
  // over with a warning in the log. nullopt: there is none.
  Result<std::optional<FoundCheckpoint>> newest() const;

  // Removes what is no whole checkpoint, and all but the newest `keep`.
  Status clean(int64_t keep);

  // "checkpoints/step-00001200".
  static std::string key_of(int64_t global_step);

 private:
  Result<std::vector<int64_t>> steps() const;  // of every folder, ascending
  Result<FoundCheckpoint> read_manifest(int64_t global_step) const;
  Status verify(const FoundCheckpoint& checkpoint) const;
  Status verify_file(const std::string& key, uint64_t size_bytes, uint32_t checksum) const;
  Status remove(int64_t global_step);

  storage::ObjectStore& store_;
};

}  // namespace yard::loop
