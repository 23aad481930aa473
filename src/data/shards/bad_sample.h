// Samples of a shard that cannot be used, and what becomes of them: they end the work, are left out
// and counted, or are noted in a file besides, so that somebody can look at their bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace yard::shards {

struct BadSample {
  // Where bytes of it lie, in the archive (unpacked, where that is compressed) or file.
  struct Bytes {
    std::string member;  // empty: not known
    uint64_t offset = 0;
    uint64_t size_bytes = 0;
  };
  std::string shard;    // URL; of the manifest, when packing
  std::string key;      // empty: not known
  uint64_t offset = 0;  // where it begins; the line, of a manifest
  std::string reason;   // as an Error would say it
  std::vector<Bytes> bytes;
};

// Told of each bad sample; an Error ends the work with it. Where there is none, the first bad
// sample ends it with kCorrupt.
using BadSampleSink = std::function<Status(const BadSample&)>;

// One line of a quarantine file, with its line break: docs/formats/shard-index.md.
std::string quarantine_line(const BadSample& sample);

}  // namespace yard::shards
