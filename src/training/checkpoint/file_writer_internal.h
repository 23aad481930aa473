// Writes the chunks of one rank, out of a copy of them, as safetensors files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint_store.h"
#include "checkpoint/save_plan.h"

namespace yard::checkpoint {

// A chunk that is in a file now.
struct WrittenChunk {
  size_t index = 0;  // in the layout
  ChunkRecord record;
};
struct WrittenFiles {
  std::vector<FileRecord> files;
  std::vector<WrittenChunk> chunks;  // their file_index counts from this rank's first file
};

struct FileWriterOptions {
  FileSizeRule files;
  int writer_count = 4;
  bool read_back = false;
};

struct RankFiles {
  int64_t step = 0;
  std::string id;
  int rank = 0;
  int world_size = 1;
};

// `bytes[i]`: of chunk i of `layout`; only those of `owned` are looked at. Each file is durable and
// verified to be there. On failure those that are there are removed again, as far as the store
// lets us.
Result<WrittenFiles> write_rank_files(const CheckpointStore& checkpoints, const RankFiles& where,
                                      const Layout& layout, const std::vector<bool>& owned,
                                      std::span<const std::span<const std::byte>> bytes,
                                      const FileWriterOptions& options);

void remove_rank_files(const CheckpointStore& checkpoints, int64_t step,
                       const std::vector<FileRecord>& files);

}  // namespace yard::checkpoint
