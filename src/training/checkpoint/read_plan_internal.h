// From the parts of chunks that somebody wants to the requests that read them.
//
// A wanted part is cut at the blocks of its chunk. Large parts go straight to where they are
// wanted; small ones, and those with gaps between them, are read together into memory between and
// spread from there: the gap that is worth reading is what the store's latency costs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/stop_token.h"
#include "checkpoint/load.h"
#include "checkpoint/manifest.h"
#include "storage/object_store.h"

namespace yard::checkpoint {

// A part of one block, and where it goes.
struct ReadPiece {
  uint32_t chunk_index = 0;  // in the plan's chunks()
  uint32_t block_index = 0;
  uint64_t begin = 0;  // in the file
  uint64_t end = 0;
  std::byte* out = nullptr;  // nullptr: only read to be checked
};

// One read: bytes [begin, end) of a file.
struct ReadRequest {
  uint32_t file_index = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
  std::vector<ReadPiece> pieces;  // in the order of the file

  // Its one piece is all of it and is read in place.
  bool is_direct() const {
    return pieces.size() == 1 && pieces[0].out != nullptr && pieces[0].begin == begin &&
           pieces[0].end == end;
  }
};

struct PlannedChunk {
  std::string_view tensor_name;  // the manifest's
  const ChunkRecord* record = nullptr;
  uint64_t size_bytes = 0;
};

// Requests that read less than this at once are joined.
inline constexpr uint64_t kDirectBytesMin = uint64_t{1} << 20;
inline constexpr uint64_t kRequestBytesMax = 2 * kBlockBytes;

// Not thread-safe. Refers to the manifest, which must outlive it.
class ReadPlan {
 public:
  ReadPlan(const CheckpointManifest& manifest, VerifyBlocks verify)
      : manifest_(manifest), verify_(verify) {}

  // What `wanted` takes from the tensor, into `out`, which is as large as it.
  void add(std::string_view name, const TensorRecord& tensor, const Region& wanted,
           std::span<std::byte> out);
  // All of a chunk, only to be checked.
  void add_check(std::string_view name, const TensorRecord& tensor, const ChunkRecord& chunk);

  // gap_bytes_max: so much that nobody wants is read rather than asking once more.
  std::vector<ReadRequest> requests(uint64_t gap_bytes_max) const;

  const std::vector<PlannedChunk>& chunks() const { return chunks_; }
  VerifyBlocks verify() const { return verify_; }
  // Where a block lies in its file.
  Interval block_of(const ReadPiece& piece) const;

 private:
  void add_bytes(uint32_t chunk_index, uint64_t offset, uint64_t size_bytes, std::byte* out);

  const CheckpointManifest& manifest_;
  const VerifyBlocks verify_;
  std::vector<PlannedChunk> chunks_;
  std::vector<std::vector<ReadPiece>> pieces_;  // of each file
};

// Reads all of it, checks every block that is read whole. `folder`: key of the checkpoint's, with
// its '/'. kCorrupt names file and tensor.
Status read_planned(storage::ObjectStore& store, const std::string& folder,
                    const CheckpointManifest& manifest, const ReadPlan& plan,
                    const LoadOptions& options);

}  // namespace yard::checkpoint
