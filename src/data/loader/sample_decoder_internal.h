// One sample's pixels: decoded, resized, cut, laid out.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "images/picture_reader.h"
#include "loader/sample_reader_internal.h"
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
    std::string key;
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
  std::optional<uint64_t> resized_seed;  // of random_resized_view()
};

// Where one sample of a batch goes.
struct SampleSlot {
  images::Size size;
  std::span<std::byte> pixels;
  std::string& caption;
  std::string& key;
};

// What one thread uses again from sample to sample.
struct Scratch {
  images::PictureReader pictures;
  EncodedSample sample;
};

// Thread-safe.
class SampleDecoder {
 public:
  // All must outlive the decoder.
  SampleDecoder(const DataSet& set, const LoaderOptions& options, CounterRegistry& counters,
                LoaderMeters& meters);

  bool is_cached(uint64_t sample_id) const { return cache_.find(sample_id) != nullptr; }
  // False: it is not in the cache.
  bool fill_from_cache(uint64_t sample_id, const Draw& draw, const SampleSlot& slot) const;
  Status fill(uint64_t sample_id, const EncodedSample& sample, const Draw& draw,
              images::PictureReader& pictures, const SampleSlot& slot);

 private:
  Status decode(const EncodedSample& sample, const Draw& draw, images::PictureReader& pictures,
                const SampleSlot& slot);
  void cut(const images::Picture& picture, const Draw& draw, const SampleSlot& slot) const;
  Result<images::Picture> shrink(std::span<const std::byte> encoded,
                                 images::PictureReader& pictures) const;

  const DataSet& set_;
  const LoaderOptions& options_;
  PictureCache cache_;
  Counter& decode_seconds_;
  LoaderMeters& meters_;
};

}  // namespace yard::loader
