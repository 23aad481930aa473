// One sample: read, verified, decoded, resized and cut.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "images/picture.h"
#include "loader/data_set_internal.h"
#include "telemetry/counters.h"

namespace yard::loader {

// Resized pictures by sample id, never more bytes than allowed. What came first stays: an epoch
// visits every sample once, so that throwing the oldest out would throw out the next needed.
// Thread-safe.
class PictureCache {
 public:
  struct Entry {
    images::Picture picture;  // its shorter side is the image size
    std::string caption;
  };
  PictureCache(uint64_t sample_count, uint64_t bytes_max);

  std::shared_ptr<const Entry> find(uint64_t sample_id) const;
  void add(uint64_t sample_id, std::shared_ptr<const Entry> entry);
  bool is_enabled() const { return bytes_max_ > 0; }
  uint64_t size_bytes() const;

 private:
  const uint64_t bytes_max_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const Entry>> entries_;
  uint64_t bytes_ = 0;
};

// What is random about a sample in an epoch.
struct Draw {
  double x = 0.5;
  double y = 0.5;
  bool flip = false;
};

// Buffers that one thread reuses from sample to sample.
struct Scratch {
  std::vector<std::byte> encoded;
  std::vector<float> square;
};

// Thread-safe.
class SampleDecoder {
 public:
  // All must outlive the decoder.
  SampleDecoder(const DataSet& set, const LoaderOptions& options, CounterRegistry& counters);

  // Fills `pixels`, 3 x size x size, and `caption`.
  Status load(uint64_t sample_id, const Draw& draw, Scratch& scratch, std::span<float> pixels,
              std::string& caption);
  // Whether load() failed because of the sample, not of the store.
  bool is_bad_sample(const Error& error, uint64_t sample_id) const;

 private:
  Result<images::Picture> read(uint64_t sample_id, Scratch& scratch, std::string& caption);
  images::Picture shrink(const images::Picture& picture, Scratch& scratch) const;

  const DataSet& set_;
  const LoaderOptions& options_;
  PictureCache cache_;
  Counter& read_bytes_;
  Counter& decode_seconds_;
};

}  // namespace yard::loader
