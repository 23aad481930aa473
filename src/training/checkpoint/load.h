// Loading: any part of any tensor of a checkpoint, whatever ranks saved it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/result.h"
#include "base/stop_token.h"
#include "checkpoint/manifest.h"
#include "checkpoint/region.h"

namespace yard::checkpoint {

class CheckpointStore;

// What a rank wants, and where.
struct TensorTarget {
  std::string name;
  TensorInfo info;  // of the whole tensor; must be the checkpoint's
  Region region;
  std::span<std::byte> bytes;  // the region's elements, dense, in their order
};

enum class VerifyBlocks {
  // The checksum of every block that happens to be read whole: nearly all of large chunks, of small
  // ones those that are wanted whole.
  kWhole,
  kAll,  // of every block that anything is wanted of: at the ends more is read than is wanted
};

struct LoadOptions {
  VerifyBlocks verify = VerifyBlocks::kWhole;
  uint64_t memory_bytes_max = uint64_t{256} << 20;  // of buffers between
  StopToken stop;
  std::function<void(uint64_t)> on_bytes;  // hears of what was read, from any thread
};

// Reads just what the targets need, by several requests at once; large parts straight into the
// targets' memory. Each rank calls it for itself; thread-safe.
//
// kNotFound: a tensor that the checkpoint has not (the nearest name is told); kInvalidArgument:
// another dtype or shape, a region that is none, `bytes` of another size; kCorrupt: a file that is
// gone, short or has a wrong checksum, named with the tensor; kCancelled; what the store returns.
// After an error the targets' bytes count for nothing.
Status load(const CheckpointStore& checkpoints, const CheckpointManifest& manifest,
            std::span<const TensorTarget> targets, const LoadOptions& options = {});

}  // namespace yard::checkpoint
