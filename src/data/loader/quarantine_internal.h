// Quarantine: where the samples that were skipped are written down.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>

#include "base/file.h"
#include "base/result.h"

namespace yard::loader {

// Thread-safe.
class Quarantine {
 public:
  // Lines are appended; "" is no file, the log alone. errno_error: it cannot be written.
  static Result<std::unique_ptr<Quarantine>> open(const std::string& path);

  // The error's message names shard, offset and sample. A sample is written down once, however
  // often the stream comes by it.
  void add(uint64_t sample_id, const Error& error);

 private:
  Quarantine(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  bool is_new(uint64_t sample_id);

  const std::string path_;
  const UniqueFd fd_;
  std::atomic<int64_t> log_line_count_ = 0;
  std::atomic<bool> has_failed_ = false;
  std::mutex mutex_;
  std::unordered_set<uint64_t> known_;
};

}  // namespace yard::loader
