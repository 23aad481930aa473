// PipeFeeder: the objects of a channel in input mode Pipe, one FIFO for each epoch: "train_0",
// "train_1", ... The next one is there before the one that is read ends.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "channels/channel_config.h"
#include "storage/object_store.h"

namespace yard::channels {

// A piece of a stream: an object, or bytes that are given (of an augmented manifest).
struct PipePart {
  std::shared_ptr<storage::ObjectStore> store;  // null: `text`
  storage::ObjectInfo info;
  std::string text;
};
// What stays together when the order is shuffled: an object, or the attributes of a line.
using PipeRecord = std::vector<PipePart>;

// A thread of its own feeds until the feeder is destroyed. A reader that closes early ends its
// epoch.
class PipeFeeder {
 public:
  // `folder` is that of all channels. Errors of making a FIFO.
  static Result<std::unique_ptr<PipeFeeder>> start(ChannelConfig channel,
                                                   std::vector<PipeRecord> records,
                                                   const std::string& folder);
  ~PipeFeeder();
  // The first thing that went wrong while feeding; the reader saw its pipe end too soon.
  Status status() const;

 private:
  struct Impl;
  explicit PipeFeeder(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace yard::channels
