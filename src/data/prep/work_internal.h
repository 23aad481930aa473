// One message on its way through prep: taken in, described, judged, packed.
#pragma once

#include <string>

#include "base/stop_token.h"
#include "prep/description.h"
#include "prep/ledger.h"
#include "prep/spec.h"
#include "queue/message_queues.h"
#include "storage/object_store.h"

namespace yard::prep {

enum class Fate {
  kPack,
  kDrop,    // as a rule says: counted by `reason`, done with
  kReject,  // a person must look: to the dead letters, with `reason`
  kRetry,   // it comes back after `retry_s`
  kIgnore,  // it asks for nothing
  kTick,    // no message at all: the packer may look at its clock
};

struct Work {
  std::string receipt;
  std::string message;  // its body
  ObjectVersion object;
  Fate fate = Fate::kPack;
  std::string reason;
  int64_t retry_s = 1;
  bool is_idle = false;  // kTick: nothing was in work

  Measures measures;
  Description description;
  std::string stem;
  std::string extension;           // of the picture as it is packed
  std::vector<std::byte> picture;  // as it is packed

  bool is_open() const { return fate == Fate::kPack; }
  void end(Fate how, std::string why) {
    fate = how;
    reason = std::move(why);
    picture = {};
  }
};

struct Source {
  storage::ObjectStore& store;
  std::string prefix;
  std::string bucket;  // that events must name; empty: a folder
};

// Fetches, verifies, decodes, measures, reads sidecars, judges and encodes. Thread-safe.
Work take_in(const queue::ReceivedMessage& message, const Source& source, const PrepSpec& spec,
             int64_t now_ms);
// The rules that look at the description, steps' fields included; ends the work by the first that
// is broken.
void judge(const PrepSpec& spec, Work& work);

}  // namespace yard::prep
