// Manifest: what a checkpoint holds and where. docs/formats/checkpoint.md describes its JSON.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"
#include "checkpoint/tensor_layout.h"

namespace yard::checkpoint {

// A chunk is checksummed in blocks of so many bytes, counted from its start.
inline constexpr uint64_t kBlockBytes = uint64_t{4} << 20;

struct ChunkRecord {
  Region region;
  uint32_t file_index = 0;
  uint64_t offset = 0;                 // of its bytes in the file
  std::vector<uint32_t> block_crc32c;  // of each block
};

struct TensorRecord {
  TensorInfo info;
  std::vector<ChunkRecord> chunks;  // disjoint; together the tensor
};

struct FileRecord {
  std::string name;  // its key, from the checkpoint's folder
  uint64_t size_bytes = 0;
  uint64_t header_bytes = 0;
  uint32_t header_crc32c = 0;
};

struct CheckpointManifest {
  std::string id;  // of the save: no two have the same
  int64_t step = 0;
  int world_size = 1;  // of the ranks that saved it
  int64_t created_unix_ms = 0;
  uint64_t block_bytes = kBlockBytes;
  Json metadata = Json::object();   // the caller's own
  std::vector<Json> rank_metadata;  // what each rank said of itself, in rank order
  std::vector<FileRecord> files;
  std::map<std::string, TensorRecord> tensors;

  // Of all tensors.
  uint64_t size_bytes() const;
};

// Bytes of a chunk, and how many blocks these are.
uint64_t chunk_bytes(const TensorInfo& info, const Region& region);
uint64_t block_count(uint64_t size_bytes, uint64_t block_bytes);

int64_t unix_ms(Clock::Wall time);

std::string format_manifest(const CheckpointManifest& manifest);
// Everything is checked: the text's own checksum, that every chunk lies in its file, that chunks
// are disjoint and complete. kCorrupt names `what`; kInvalidArgument: a format that is not known.
Result<CheckpointManifest> parse_manifest(std::string_view text, std::string_view what);

}  // namespace yard::checkpoint
