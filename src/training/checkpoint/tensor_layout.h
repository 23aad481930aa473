// What tensors look like to this module: bytes, a dtype's name, a shape; and the header of a
// safetensors file, which says where in the file each of them lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/region.h"

namespace yard::checkpoint {

// Bytes of one element of a dtype by safetensors' name ("F32", "BF16", "I64", ...); 0: not known.
uint64_t element_bytes(std::string_view dtype);

struct TensorInfo {
  std::string dtype;
  Shape shape;

  bool operator==(const TensorInfo&) const = default;
};
// kInvalidArgument: a dtype that is not known (the nearest one is named), too many elements.
Status check_tensor(const TensorInfo& info);
// "F32 [3, 4]".
std::string to_string(const TensorInfo& info);
// {"dtype": ..., "shape": ...}, and back. kInvalidArgument as check_tensor().
Json to_json(const TensorInfo& info);
Result<TensorInfo> tensor_info_from_json(const Json& json, std::string_view what);

// One tensor of a safetensors file.
struct FileEntry {
  std::string name;
  TensorInfo info;
  uint64_t offset = 0;  // of its bytes, from the start of the file
  uint64_t size_bytes = 0;
};

inline constexpr uint64_t kHeaderBytesMax = 100'000'000;  // the reference's own limit

struct SafetensorsHeader {
  std::vector<FileEntry> entries;  // in the order of their data
  std::map<std::string, std::string> metadata;
};

// The first bytes of a file whose data follow in the order of `entries`, without gaps; sets their
// `offset`s. Equal input gives equal bytes. kInvalidArgument: a name given twice.
Result<std::string> format_header(std::vector<FileEntry>& entries,
                                  const std::map<std::string, std::string>& metadata);

// How long the header is that a file of `file_bytes` starts with, by its first 8 bytes, these
// included. kCorrupt, naming `what`: more than there are or than kHeaderBytesMax.
Result<uint64_t> header_size_bytes(std::span<const std::byte> first_bytes, uint64_t file_bytes,
                                   std::string_view what);
// All of the header's bytes, as long as header_size_bytes() says. Every bound is checked: kCorrupt
// names `what` and the tensor.
Result<SafetensorsHeader> parse_header(std::span<const std::byte> header, uint64_t file_bytes,
                                       std::string_view what);

}  // namespace yard::checkpoint
