// EventFile: an event file that TensorBoard reads.
//
// TFRecord framing (tensorflow/core/lib/io/record_writer.h: length, masked CRC-32C of the length,
// bytes, masked CRC-32C of the bytes) around Event messages
// (tensorflow/core/util/event.proto), written by hand.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/result.h"

namespace yard::loop {

// Not thread-safe. Every event is one write(2), so that a reader never waits for one.
class EventFile {
 public:
  using Scalars = std::vector<std::pair<std::string, double>>;  // tag, value

  // Makes events.out.tfevents.SECONDS.PID in `folder` (made where it is missing), for steps after
  // `first_step`: TensorBoard drops what older files say of them. kExhausted: disk full.
  static Result<EventFile> create(const std::string& folder, Clock& clock, int64_t first_step);

  Status add_scalars(int64_t step, const Scalars& scalars);
  // `png`: an RGB picture.
  Status add_image(int64_t step, std::string_view tag, int width, int height, std::string_view png);

 private:
  EventFile(std::string path, UniqueFd file, Clock& clock)
      : path_(std::move(path)), file_(std::move(file)), clock_(&clock) {}
  Status write_event(std::string_view event);
  std::string event_head(int64_t step) const;

  std::string path_;
  UniqueFd file_;
  Clock* clock_;
};

}  // namespace yard::loop
