// CheckpointSync: a folder that is kept in the store while a job writes it.
//
// Goes up what is whole: a file that nobody has open for writing (the kernel says so, by a lease),
// with a name that does not say it is half done. One version of a file goes up, or none of it: what
// changes under way is tried again. Files go in the order in which they were last written, so that
// a marker never precedes what it speaks of. Nothing is removed from the store.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "channels/channel_set.h"

namespace yard::channels {

struct CheckpointOptions {
  OpenUrl open;
  std::string url;     // s3://bucket/prefix
  std::string folder;  // exists
  std::chrono::milliseconds period{2'000};
  std::chrono::seconds behind_after{60};          // that a whole file has waited
  std::function<void(bool is_behind)> on_behind;  // told of changes, on the sync's thread
  StopToken stop;                                 // ends restore()
};

// "model.tmp", "x.part", "x~", "tmp-checkpoint-5/x": programs rename these when they are whole.
// Pure.
bool is_temporary_name(std::string_view path);

// One thread of its own between start() and finish().
class CheckpointSync {
 public:
  // Downloads what the store has; these files count as uploaded.
  static Result<std::unique_ptr<CheckpointSync>> restore(CheckpointOptions options,
                                                         ChannelProgress& progress);
  // Without what the store has: every file that comes goes up.
  static Result<std::unique_ptr<CheckpointSync>> of_new(CheckpointOptions options);
  ~CheckpointSync();
  void start();
  // The last round, when nothing writes any more: what is left goes up. The error of a file that
  // did not.
  Status finish();
  uint64_t uploaded_bytes() const;

 private:
  struct Impl;
  explicit CheckpointSync(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace yard::channels
