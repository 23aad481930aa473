// One sample's bytes: found in its shard, read, verified.
#pragma once

#include <chrono>
#include <span>
#include <vector>

#include "base/stop_token.h"
#include "loader/data_set_internal.h"
#include "loader/sample_memory_internal.h"
#include "storage/store_wait.h"
#include "telemetry/counters.h"

namespace yard::loader {

// What a loader's report is made of. Thread-safe.
struct LoaderMeters {
  Counter decode_seconds;
  Counter read_wait_seconds;
  Counter idle_seconds;
  Counter read_bytes;
};

struct EncodedSample {
  DataSet::Place place;
  std::vector<std::byte> bytes;  // used again from sample to sample
  // Instead of `bytes`: memory of this sample alone, with LoaderOptions::raw, or what several
  // samples were fetched into at once.
  std::shared_ptr<const std::byte[]> own_bytes;
  std::shared_ptr<const std::byte[]> shared_bytes;
  std::span<const std::byte> image;
  std::span<const std::byte> caption;
  std::vector<RawMember> members;  // with LoaderOptions::raw, instead of those two
};

// Where the wanted members of a sample lie in its shard.
struct SampleRange {
  DataSet::Place place;
  std::vector<shards::ShardIndex::Member> wanted;  // by offset
  uint64_t begin() const { return wanted.front().offset; }
  uint64_t end() const { return wanted.back().offset + wanted.back().size_bytes; }
};

// Thread-safe.
class SampleReader {
 public:
  // All must outlive the reader. `stop` ends the waiting for a store that is away.
  SampleReader(DataSet& set, const LoaderOptions& options, StopToken stop,
               CounterRegistry& counters, LoaderMeters& meters);

  // kCorrupt: it lacks a member, or a checksum is wrong; the store's Errors, after
  // LoaderOptions::store_patience.
  Status read(uint64_t sample_id, EncodedSample& out);
  // The same in steps, for several samples at once: find each, read what they lie in (`out` begins
  // at `begin` of the shard), take each out of that. `bytes` begins at the sample's begin().
  Result<SampleRange> find(uint64_t sample_id);
  Status read_range(const SampleRange& of_shard, uint64_t begin, std::span<std::byte> out);
  Status take(const SampleRange& range, std::span<const std::byte> bytes, EncodedSample& out);
  // With LoaderOptions::raw: the sample for a batch, which may live long; so out of a buffer that
  // many samples share it is copied.
  RawSample raw_sample(EncodedSample&& sample);
  // The size that the index or, where that has none, the picture's header says.
  Result<images::Size> read_picture_size(uint64_t sample_id);
  // The member of that lower-case extension, verified. kCorrupt: it has none.
  Result<std::string> read_member(uint64_t sample_id, std::string_view extension);
  // Whether an Error is the sample's, not the store's.
  bool is_bad_sample(const Error& error, uint64_t sample_id);
  const DataSet& set() const { return set_; }

 private:
  Result<SampleRange> find_once(uint64_t sample_id);
  Result<images::Size> read_picture_size_of_whole(const DataSet::Place& place,
                                                  std::vector<std::byte>& bytes);
  // Calls `read` until it ends well, or otherwise than for a store that is away.
  enum class Asks { kStore, kIfUnknown };
  template <typename Read>
  auto patiently(Asks asks, const Read& read) -> decltype(read());

  DataSet& set_;
  const LoaderOptions& options_;
  Counter& read_bytes_;
  LoaderMeters& meters_;
  storage::StoreWait wait_;
  SampleMemory memory_;
};

}  // namespace yard::loader
