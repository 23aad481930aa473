// assemble_shards(): shards out of content that lies in stores already, files or members of other
// shards. The layout is planned before a byte is read, so contents are read by many requests at
// once, straight to where they go, and the bytes written are the same on every run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/stop_token.h"
#include "shards/shard_writer.h"
#include "storage/object_store.h"

namespace yard::shards {

// One version of an object.
struct SourceObject {
  std::shared_ptr<storage::ObjectStore> store;
  std::string key;
  std::string etag;
  std::string url() const { return store->url() + "/" + key; }
};

struct MemberSource {
  std::string extension;                       // as it is to be written
  std::shared_ptr<const SourceObject> object;  // of which it is a part; none: it is `text`
  uint64_t offset = 0;
  uint64_t size_bytes = 0;         // of the content, of `text` too
  std::optional<uint32_t> crc32c;  // that the content must have
  std::string text;
};

struct SampleSource {
  std::string key;
  std::vector<MemberSource> members;
};

struct PlannedShard {
  uint64_t first_sample = 0;
  uint64_t sample_count = 0;
  uint64_t size_bytes = 0;
  bool operator==(const PlannedShard&) const = default;
};
// Pure: the samples in order, as ShardWriter would cut them. kInvalidArgument as
// ShardWriter::add(), naming the member.
Result<std::vector<PlannedShard>> plan_shards(std::span<const SampleSource> samples,
                                              uint64_t size_bytes_max);

struct AssemblyOptions {
  std::string prefix = "shard";
  uint64_t first_shard = 0;                     // of the plan; those before are there already
  uint64_t memory_bytes = uint64_t{256} << 20;  // of contents that are not written yet
  StopToken stop;
};

struct AssemblyEvents {
  // It and its index are there. On any thread, in order, one after the other.
  std::function<Status(uint64_t shard, const ShardSummary&)> on_shard;
  std::function<void(uint64_t samples_done)> on_samples;  // on the calling thread
};

// Blocking. A shard becomes visible whole, its index right after it; one that is broken off leaves
// nothing. kCorrupt, naming object and member: it changed since it was listed, or has another
// checksum; kCancelled. The first bad member of the order decides the error.
Status assemble_shards(storage::ObjectStore& target, std::span<const SampleSource> samples,
                       std::span<const PlannedShard> shards, const AssemblyOptions& options,
                       const AssemblyEvents& events);

}  // namespace yard::shards
