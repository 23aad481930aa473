// The part of a save that runs while training goes on: agree, write, agree, commit.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/exchange.h"
#include "checkpoint/file_writer_internal.h"
#include "checkpoint/saver.h"

namespace yard::checkpoint {

// One save of this rank, copied.
struct SaveJob {
  int64_t step = 0;
  Layout layout;
  std::vector<bool> has_bytes;                    // of each chunk: it was copied
  std::vector<std::span<const std::byte>> bytes;  // where to
  SaveNotes notes;
  std::optional<Error> error;  // this rank cannot save: it takes part to tell the others
};

// Not thread-safe.
class SaveRunner {
 public:
  SaveRunner(CheckpointStore checkpoints, Exchange& exchange, const SaverOptions& options)
      : checkpoints_(std::move(checkpoints)), exchange_(exchange), options_(options) {}

  Status run(const SaveJob& job);

  // Which chunks this rank writes, known before it is asked where the layout is that of the save
  // before; nullptr where it is not.
  const std::vector<bool>* owned(const Layout& layout) const {
    return planned_ && planned_->layout == layout ? &planned_->owned : nullptr;
  }

 private:
  // Kept from save to save, so that layouts cross the network once.
  struct Planned {
    Layout layout;  // of this rank
    std::vector<bool> owned;
    std::vector<Layout> layouts;  // of all ranks; rank 0 alone needs them
  };

  void keep_in_memory(const SaveJob& job, const std::string& id);
  Status run_steps(const SaveJob& job, const std::string& id, WrittenFiles& written);
  Result<std::string> agree_to_begin(const SaveJob& job);
  Status plan(const SaveJob& job);
  Status commit(const SaveJob& job, const std::string& id, const std::vector<Json>& reports);
  Result<CheckpointManifest> make_manifest(const SaveJob& job, const std::string& id,
                                           const std::vector<Json>& reports) const;
  void clean_up();
  bool is_first() const { return exchange_.rank() == 0; }

  const CheckpointStore checkpoints_;
  Exchange& exchange_;
  const SaverOptions options_;
  std::optional<Planned> planned_;
  bool needs_sweep_ = true;  // what a run before this one left
};

}  // namespace yard::checkpoint
