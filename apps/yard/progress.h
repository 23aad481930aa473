// A line on the terminal that tells how far a copy is.
#pragma once

#include <chrono>
#include <string>
#include <thread>

#include "base/stop_token.h"
#include "transfer/copier.h"

namespace yard::app {

// "  3.2 GiB of 4.0 GiB  80%  410.0 MiB/s  2s left  12 of 16". `elapsed` since the start. Pure.
std::string progress_text(uint64_t bytes_done, uint64_t bytes_total, uint64_t objects_done,
                          uint64_t objects_total, std::chrono::duration<double> elapsed,
                          size_t width);

// Draws on stderr five times a second from construction to destruction, where `is_shown`.
// `progress` outlives it.
class ProgressLine {
 public:
  ProgressLine(const transfer::CopyProgress& progress, bool is_shown);
  ~ProgressLine();

 private:
  void draw() const;

  const transfer::CopyProgress& progress_;
  const std::chrono::steady_clock::time_point start_;
  StopSource stop_;
  std::thread thread_;
};

}  // namespace yard::app
