#include "checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/crc32c.h"

namespace yard::checkpoint {
namespace {

constexpr int kFormat = 2;  // 1: a run's own checkpoints, whole files written by rank 0

Error corrupt(std::string_view what, std::string_view why) {
  return {Code::kCorrupt, fmt::format("{}: {}", what, why)};
}

// Of the manifest without its own checksum; keys are sorted, so the text is one.
uint32_t checksum_of(Json manifest) {
  manifest.erase("crc32c");
  const std::string text = manifest.dump();
  return crc32c(std::as_bytes(std::span(text)));
}

Json to_json(const FileRecord& file) {
  return {{"name", file.name},
          {"size_bytes", file.size_bytes},
          {"header_bytes", file.header_bytes},
          {"header_crc32c", file.header_crc32c}};
}

Json to_json(const TensorRecord& tensor) {
  Json chunks = Json::array();
  for (const ChunkRecord& chunk : tensor.chunks) {
    Json json = to_json(chunk.region);
    json["file"] = chunk.file_index;
    json["offset"] = chunk.offset;
    json["crc32c"] = chunk.block_crc32c;
    chunks.push_back(std::move(json));
  }
  Json json = to_json(tensor.info);
  json["chunks"] = std::move(chunks);
  return json;
}

// A name that a reader appends to its folder must not lead out of it.
bool is_inside(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.back() == '/') return false;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

Result<FileRecord> file_of(const Json& json, std::string_view what) {
  FileRecord file;
  YARD_ASSIGN(file.name, json_field<std::string>(json, "name", what));
  YARD_ASSIGN(file.size_bytes, json_field<uint64_t>(json, "size_bytes", what));
  YARD_ASSIGN(file.header_bytes, json_field<uint64_t>(json, "header_bytes", what));
  YARD_ASSIGN(file.header_crc32c, json_field<uint32_t>(json, "header_crc32c", what));
  if (!is_inside(file.name)) return corrupt(what, fmt::format("'{}' is no name", file.name));
  if (file.header_bytes > file.size_bytes) return corrupt(what, file.name + ": is all header");
  return file;
}

Result<ChunkRecord> chunk_of(const Json& json, const TensorInfo& info,
                             const CheckpointManifest& manifest, std::string_view what) {
  ChunkRecord chunk;
  YARD_ASSIGN(chunk.region, region_from_json(json, what));
  YARD_TRY(check_region(chunk.region, info.shape));
  YARD_ASSIGN(chunk.file_index, json_field<uint32_t>(json, "file", what));
  YARD_ASSIGN(chunk.offset, json_field<uint64_t>(json, "offset", what));
  YARD_ASSIGN(chunk.block_crc32c, json_field<std::vector<uint32_t>>(json, "crc32c", what));
  if (chunk.file_index >= manifest.files.size())
    return corrupt(what, fmt::format("there is no file {}", chunk.file_index));
  const FileRecord& file = manifest.files[chunk.file_index];
  const uint64_t size_bytes = chunk_bytes(info, chunk.region);
  if (chunk.offset < file.header_bytes || chunk.offset > file.size_bytes ||
      size_bytes > file.size_bytes - chunk.offset)
    return corrupt(what, "a chunk lies outside of file " + file.name);
  if (chunk.block_crc32c.size() != block_count(size_bytes, manifest.block_bytes))
    return corrupt(what, "a chunk has more or fewer checksums than blocks");
  return chunk;
}

Result<TensorRecord> tensor_of(const Json& json, const CheckpointManifest& manifest,
                               const std::string& what) {
  TensorRecord tensor;
  YARD_ASSIGN(tensor.info, tensor_info_from_json(json, what));
  YARD_ASSIGN(const Json chunks, json_field<Json>(json, "chunks", what));
  if (!chunks.is_array()) return corrupt(what, "'chunks' is no list");
  std::vector<Region> regions;
  for (const Json& chunk : chunks) {
    YARD_ASSIGN(tensor.chunks.emplace_back(), chunk_of(chunk, tensor.info, manifest, what));
    regions.push_back(tensor.chunks.back().region);
  }
  if (Status covered = check_cover(regions, tensor.info.shape); !covered)
    return std::move(covered).error().while_(what);
  return tensor;
}

Result<CheckpointManifest> manifest_of(const Json& json, std::string_view what) {
  YARD_ASSIGN(const auto checksum, json_field<uint32_t>(json, "crc32c", what));
  if (checksum != checksum_of(json)) return corrupt(what, "its checksum is wrong");
  CheckpointManifest manifest;
  YARD_ASSIGN(manifest.id, json_field<std::string>(json, "id", what));
  YARD_ASSIGN(manifest.step, json_field<int64_t>(json, "step", what));
  YARD_ASSIGN(manifest.world_size, json_field<int>(json, "world_size", what));
  YARD_ASSIGN(manifest.created_unix_ms, json_field<int64_t>(json, "created_unix_ms", what));
  YARD_ASSIGN(manifest.block_bytes, json_field<uint64_t>(json, "block_bytes", what));
  if (manifest.block_bytes == 0) return corrupt(what, "'block_bytes' is 0");
  YARD_ASSIGN(manifest.metadata, json_field<Json>(json, "metadata", what));
  YARD_ASSIGN(manifest.rank_metadata, json_field<std::vector<Json>>(json, "rank_metadata", what));
  YARD_ASSIGN(const auto files, json_field<std::vector<Json>>(json, "files", what));
  for (const Json& file : files) {
    YARD_ASSIGN(manifest.files.emplace_back(), file_of(file, what));
  }
  YARD_ASSIGN(const Json tensors, json_field<Json>(json, "tensors", what));
  if (!tensors.is_object()) return corrupt(what, "'tensors' is not an object");
  for (const auto& [name, tensor] : tensors.items()) {
    YARD_ASSIGN(manifest.tensors[name],
                tensor_of(tensor, manifest, fmt::format("{}: tensor '{}'", what, name)));
  }
  return manifest;
}

}  // namespace

uint64_t chunk_bytes(const TensorInfo& info, const Region& region) {
  return element_count(region, info.shape) * element_bytes(info.dtype);
}

uint64_t block_count(uint64_t size_bytes, uint64_t block_bytes) {
  return size_bytes / block_bytes + (size_bytes % block_bytes == 0 ? 0 : 1);
}

uint64_t CheckpointManifest::size_bytes() const {
  uint64_t sum = 0;
  for (const auto& [name, tensor] : tensors) sum += chunk_bytes(tensor.info, Region::all());
  return sum;
}

int64_t unix_ms(Clock::Wall time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

std::string format_manifest(const CheckpointManifest& manifest) {
  Json files = Json::array();
  for (const FileRecord& file : manifest.files) files.push_back(to_json(file));
  Json tensors = Json::object();
  for (const auto& [name, tensor] : manifest.tensors) tensors[name] = to_json(tensor);
  Json json{{"format", kFormat},
            {"id", manifest.id},
            {"step", manifest.step},
            {"world_size", manifest.world_size},
            {"created_unix_ms", manifest.created_unix_ms},
            {"block_bytes", manifest.block_bytes},
            {"metadata", manifest.metadata},
            {"rank_metadata", manifest.rank_metadata},
            {"files", std::move(files)},
            {"tensors", std::move(tensors)}};
  json["crc32c"] = checksum_of(json);
  return json.dump() + "\n";
}

Result<CheckpointManifest> parse_manifest(std::string_view text, std::string_view what) {
  auto json = parse_json(text, what);
  if (!json) return corrupt(what, "is no JSON: " + json.error().message);
  const auto format = json_field<int>(*json, "format", what);
  if (format && *format != kFormat)
    return Error{Code::kInvalidArgument, fmt::format("{}: format {} is not known", what, *format)};
  auto manifest = manifest_of(*json, what);
  if (!manifest) return corrupt(what, "is no sound manifest: " + manifest.error().message);
  return manifest;
}

}  // namespace yard::checkpoint
