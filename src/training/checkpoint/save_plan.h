// Who writes which chunk into which file: pure functions of what every rank has.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/tensor_layout.h"

namespace yard::checkpoint {

// A chunk that a rank has.
struct ChunkInfo {
  std::string name;  // of its tensor
  TensorInfo info;
  Region region;

  bool operator==(const ChunkInfo&) const = default;
};
using Layout = std::vector<ChunkInfo>;

// What a save may say of itself besides its tensors; JSON of any shape.
struct SaveNotes {
  Json metadata = Json::object();       // rank 0's counts
  Json rank_metadata = Json::object();  // of each rank: random states, data positions
};

inline constexpr size_t kTensorNameBytesMax = 4096;

// kInvalidArgument, naming the tensor: a name that is empty, too long, not UTF-8 or "__metadata__",
// a dtype that is not known, a region that is none, the same chunk twice.
Status check_layout(const Layout& layout);

Json to_json(const Layout& layout);
Result<Layout> layout_from_json(const Json& json, std::string_view what);

// owns[r][i]: rank r writes the i-th chunk of its layout. A chunk that several ranks have is
// written by that of them with the fewest bytes so far, so that replicas share the work; equal
// layouts give equal plans. `has_bytes[r][i]`: only ranks that can write a chunk own it.
// kInvalidArgument names tensor and ranks: dtypes or shapes that differ, chunks that overlap, that
// are missing, or that nobody can write.
using Flags = std::vector<std::vector<bool>>;
Result<Flags> plan_owners(const std::vector<Layout>& layouts, const Flags& has_bytes);

// The order in which chunks lie in a file: wide elements first, so that all are aligned, then by
// name and region. Indices into `layout` of those that `owned` has.
std::vector<size_t> file_order(const Layout& layout, const std::vector<bool>& owned);

// Cuts `order` into at most `file_count_max` runs of about the same size, none cut where all are
// less than `file_bytes_min`. Runs of more than file_bytes_max are cut further.
struct FileSizeRule {
  size_t file_count_max = 4;
  uint64_t file_bytes_min = uint64_t{64} << 20;
  uint64_t file_bytes_max = uint64_t{4} << 30;  // a chunk larger than that has a file of its own
};
std::vector<std::vector<size_t>> cut_into_files(const Layout& layout,
                                                const std::vector<size_t>& order,
                                                const FileSizeRule& rule);

// The chunk's name in its file: "NAME", "NAME[flat 10:20]", "NAME[0:4,8:16]".
std::string entry_name(const ChunkInfo& chunk);

}  // namespace yard::checkpoint
