// SampleStream: the samples of one shard from front to back, plain or compressed as a whole, in the
// memory of one sample.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "shards/bad_sample.h"
#include "shards/shard_index.h"
#include "storage/object_store.h"

namespace yard::shards {

struct StreamedSample {
  struct Member {
    std::string name;       // as in the shard: "a/b.seg.PNG"
    std::string extension;  // "seg.PNG"; WebDataset compares it in lower case
    std::vector<std::byte> content;
  };
  std::string key;      // "a/b"
  uint64_t offset = 0;  // of its first member's content
  std::vector<Member> members;
};

struct SampleStreamOptions {
  // Members of a sample may have others between them; a sample comes when its last member did.
  bool group_by_key = false;
  BadSampleSink on_bad;
  // Of the contents held: of one sample, of all that are not whole yet with group_by_key.
  uint64_t held_bytes_max = uint64_t{1} << 30;
};

// Not thread-safe. A plain shard is read once: a sample out of place or cut short is an Error when
// it is reached. With group_by_key or on_bad it is read twice, so that no part of a bad sample is
// given out. Contents are checked against the index beside the shard, where there is one that
// describes it.
class SampleStream {
 public:
  // Pins the shard's version. `store` must outlive the stream. Errors as scan_shard().
  static Result<SampleStream> open(storage::ObjectStore& store, std::string_view shard_key,
                                   const SampleStreamOptions& options = {});
  // The samples that a scan found, whatever it left out. kCorrupt when the shard changed since.
  static Result<SampleStream> open(storage::ObjectStore& store, ScannedShard scanned,
                                   uint64_t held_bytes_max = uint64_t{1} << 30);
  SampleStream(SampleStream&&) noexcept;
  ~SampleStream();

  // nullopt past the last. kCorrupt as scan_shard(); kExhausted: over held_bytes_max.
  Result<std::optional<StreamedSample>> next();

 private:
  struct Impl;
  explicit SampleStream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace yard::shards
