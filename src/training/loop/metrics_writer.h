// MetricsWriter: what a run measures, as JSON lines and as event files for TensorBoard.
//
// Not thread-safe. A file that cannot be written is told in the log once and then left alone:
// telling must never stop the training.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "loop/event_file.h"

namespace yard::loop {

class MetricsWriter {
 public:
  // Tells nobody.
  MetricsWriter() = default;
  // Appends to output_dir/metrics.jsonl and begins an event file in output_dir/tensorboard, for
  // steps after `first_step`.
  static MetricsWriter open(const std::string& output_dir, Clock& clock, int64_t first_step);

  // One line {"t": now, "event": event, "global_step": step, fields...}, and a point "event/field"
  // for each field that is a number. Numbers that are not finite become null in the line.
  void tell(std::string_view event, int64_t step, Json fields);
  void image(std::string_view tag, int64_t step, int width, int height, std::string_view png);

 private:
  void complain(const Status& status);

  UniqueFd lines_;
  std::optional<EventFile> events_;
  Clock* clock_ = nullptr;
  bool complained_ = false;
};

}  // namespace yard::loop
