#include <algorithm>

#include "checkpoint/read_plan_internal.h"

namespace yard::checkpoint {
namespace {

// What is read for one block, or for a part of it where a gap is not worth reading.
struct BlockRead {
  uint64_t begin = 0;
  uint64_t end = 0;
  std::span<const ReadPiece> pieces;
};

bool same_block(const ReadPiece& a, const ReadPiece& b) {
  return a.chunk_index == b.chunk_index && a.block_index == b.block_index;
}

bool is_direct(const BlockRead& read) {
  return read.pieces.size() == 1 && read.pieces[0].out != nullptr &&
         read.pieces[0].begin == read.begin && read.pieces[0].end == read.end;
}

}  // namespace

Interval ReadPlan::block_of(const ReadPiece& piece) const {
  const PlannedChunk& chunk = chunks_[piece.chunk_index];
  const uint64_t first = piece.block_index * manifest_.block_bytes;
  const uint64_t last = std::min(first + manifest_.block_bytes, chunk.size_bytes);
  return {chunk.record->offset + first, chunk.record->offset + last};
}

void ReadPlan::add(std::string_view name, const TensorRecord& tensor, const Region& wanted,
                   std::span<std::byte> out) {
  const uint64_t width = element_bytes(tensor.info.dtype);
  const Region to = canonical(wanted, tensor.info.shape);
  for (const ChunkRecord& chunk : tensor.chunks) {
    const auto index = static_cast<uint32_t>(chunks_.size());
    bool is_used = false;
    for_each_common_run(chunk.region, to, tensor.info.shape, [&](const CommonRun& run) {
      if (!is_used) chunks_.push_back({name, &chunk, chunk_bytes(tensor.info, chunk.region)});
      is_used = true;
      add_bytes(index, run.position_a * width, run.element_count * width,
                out.data() + run.position_b * width);
    });
  }
}

void ReadPlan::add_check(std::string_view name, const TensorRecord& tensor,
                         const ChunkRecord& chunk) {
  const uint64_t size_bytes = chunk_bytes(tensor.info, chunk.region);
  chunks_.push_back({name, &chunk, size_bytes});
  add_bytes(static_cast<uint32_t>(chunks_.size() - 1), 0, size_bytes, nullptr);
}

void ReadPlan::add_bytes(uint32_t chunk_index, uint64_t offset, uint64_t size_bytes,
                         std::byte* out) {
  const ChunkRecord& record = *chunks_[chunk_index].record;
  pieces_.resize(std::max<size_t>(pieces_.size(), record.file_index + 1));
  for (const uint64_t end = offset + size_bytes; offset < end;) {
    const uint64_t block = offset / manifest_.block_bytes;
    const uint64_t cut = std::min(end, (block + 1) * manifest_.block_bytes);
    pieces_[record.file_index].push_back({chunk_index, static_cast<uint32_t>(block),
                                          record.offset + offset, record.offset + cut, out});
    if (out != nullptr) out += cut - offset;
    offset = cut;
  }
}

std::vector<ReadRequest> ReadPlan::requests(uint64_t gap_bytes_max) const {
  std::vector<ReadRequest> requests;
  for (size_t file = 0; file < pieces_.size(); ++file) {
    std::vector<ReadPiece> pieces = pieces_[file];
    std::ranges::sort(pieces, [](const ReadPiece& a, const ReadPiece& b) {
      return std::tie(a.begin, a.chunk_index) < std::tie(b.begin, b.chunk_index);
    });
    ReadRequest open{.file_index = static_cast<uint32_t>(file)};
    const auto close = [&] {
      if (!open.pieces.empty()) requests.push_back(std::move(open));
      open = {.file_index = static_cast<uint32_t>(file)};
    };
    for (size_t i = 0; i < pieces.size();) {
      // The pieces of one block that are near each other.
      const Interval block = block_of(pieces[i]);
      const bool is_whole = verify_ == VerifyBlocks::kAll;
      BlockRead read{
          is_whole ? block.begin : pieces[i].begin, is_whole ? block.end : pieces[i].end, {}};
      size_t last = i + 1;
      for (; last < pieces.size() && same_block(pieces[last], pieces[i]); ++last) {
        if (!is_whole && pieces[last].begin > read.end + gap_bytes_max) break;
        read.end = std::max(read.end, pieces[last].end);
      }
      read.pieces = std::span(pieces).subspan(i, last - i);
      i = last;

      const bool is_large = is_direct(read) && read.end - read.begin >= kDirectBytesMin;
      const bool fits = !open.pieces.empty() && read.begin <= open.end + gap_bytes_max &&
                        std::max(read.end, open.end) - open.begin <= kRequestBytesMax;
      if (is_large || !fits) close();
      if (open.pieces.empty()) open.begin = read.begin;
      open.end = std::max(open.end, read.end);
      open.pieces.insert(open.pieces.end(), read.pieces.begin(), read.pieces.end());
      if (is_large) close();
    }
    close();
  }
  return requests;
}

}  // namespace yard::checkpoint
