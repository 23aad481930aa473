// HeartbeatWriter: tells the supervisor what this rank does (docs/formats/rank.md).
//
// Thread-safe. A heartbeat that cannot be written is logged once and dropped: telling must never
// stop the training.
#pragma once

#include <atomic>
#include <string_view>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"

namespace yard::loop {

class HeartbeatWriter {
 public:
  // Tells nobody.
  HeartbeatWriter() = default;
  // Appends to `path`, made if needed. kNotFound, kExhausted: it cannot be opened.
  static Result<HeartbeatWriter> open(const std::string& path, Clock& clock);
  HeartbeatWriter(HeartbeatWriter&& other) noexcept
      : file_(std::move(other.file_)), clock_(other.clock_) {}

  // One line {"t": now, "event": event, fields...}; numbers that are not finite become null.
  void tell(std::string_view event, Json fields);
  void phase(std::string_view phase) { tell("phase", {{"phase", phase}}); }

 private:
  HeartbeatWriter(UniqueFd file, Clock& clock) : file_(std::move(file)), clock_(&clock) {}

  UniqueFd file_;
  Clock* clock_ = nullptr;
  std::atomic<bool> complained_ = false;
};

}  // namespace yard::loop
