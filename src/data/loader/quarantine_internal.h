// Quarantine: where the samples that were skipped are written down.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "base/file.h"
#include "base/result.h"

namespace yard::loader {

// Thread-safe.
class Quarantine {
 public:
  // Lines are appended; "" is no file, the log alone. errno_error: it cannot be written.
  static Result<std::unique_ptr<Quarantine>> open(const std::string& path);

  // The error's message names shard, offset and sample.
  void add(uint64_t sample_id, const Error& error);

 private:
  explicit Quarantine(UniqueFd fd) : fd_(std::move(fd)) {}

  const UniqueFd fd_;
  std::atomic<int64_t> log_line_count_ = 0;
};

}  // namespace yard::loader
