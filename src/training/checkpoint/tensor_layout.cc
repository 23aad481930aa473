#include "checkpoint/tensor_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "base/nearest_name.h"

namespace yard::checkpoint {
namespace {

struct KnownDType {
  std::string_view name;
  uint64_t size_bytes;
};

constexpr std::array<KnownDType, 17> kDTypes = {{
    {"F64", 8},
    {"C64", 8},
    {"I64", 8},
    {"U64", 8},
    {"F32", 4},
    {"I32", 4},
    {"U32", 4},
    {"F16", 2},
    {"BF16", 2},
    {"I16", 2},
    {"U16", 2},
    {"F8_E4M3", 1},
    {"F8_E5M2", 1},
    {"F8_E8M0", 1},
    {"I8", 1},
    {"U8", 1},
    {"BOOL", 1},
}};

Error corrupt(std::string_view what, std::string_view why) {
  return {Code::kCorrupt, fmt::format("{}: {}", what, why)};
}

// A file's fault, not a caller's.
template <typename T>
Result<T> as_corrupt(Result<T> result) {
  if (result) return result;
  return Error{Code::kCorrupt, std::move(result).error().message};
}

Result<FileEntry> parse_entry(const std::string& name, const Json& json, uint64_t data_begin,
                              uint64_t file_bytes, const std::string& what) {
  YARD_ASSIGN(TensorInfo info, as_corrupt(tensor_info_from_json(json, what)));
  YARD_ASSIGN(const auto offsets,
              as_corrupt(json_field<std::vector<uint64_t>>(json, "data_offsets", what)));
  if (offsets.size() != 2) return corrupt(what, "'data_offsets' must have two entries");
  if (offsets[0] > offsets[1] || offsets[1] > file_bytes - data_begin)
    return corrupt(what, "its data lie outside the file (truncated?)");
  YARD_ASSIGN(const uint64_t count, count_elements(info.shape));
  const uint64_t size_bytes = offsets[1] - offsets[0];
  if (count * element_bytes(info.dtype) != size_bytes)
    return corrupt(what, "its size does not fit its shape");
  return FileEntry{name, std::move(info), data_begin + offsets[0], size_bytes};
}

Result<std::map<std::string, std::string>> parse_metadata(const Json& json, std::string_view what) {
  if (!json.is_object()) return corrupt(what, "'__metadata__' is not an object");
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) return corrupt(what, "'__metadata__' must map strings to strings");
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// The parser takes the last of two equal keys; a header with two is no header.
Result<Json> parse_unique(std::string_view text, std::string_view what) {
  // The JSON library takes a NUL for the end of its input.
  if (text.empty() || text.front() != '{' || text.find('\0') != std::string_view::npos)
    return corrupt(what, "not a safetensors file");
  std::vector<std::set<std::string>> seen;
  bool twice = false;
  const auto watch = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) seen.emplace_back();
    if (event == Json::parse_event_t::object_end) seen.pop_back();
    if (event == Json::parse_event_t::key)
      twice = !seen.back().insert(value.get<std::string>()).second || twice;
    return true;
  };
  Json header = Json::parse(text, watch, false);
  if (twice) return corrupt(what, "a name appears twice in the header");
  if (header.is_discarded() || !header.is_object()) return corrupt(what, "header is not JSON");
  return header;
}

// Tensors must fill the data without gap or overlap, as the format demands.
Status check_layout(const std::vector<FileEntry>& entries, uint64_t data_begin, uint64_t file_bytes,
                    std::string_view what) {
  uint64_t expected = data_begin;
  for (const FileEntry& entry : entries) {
    if (entry.offset != expected)
      return corrupt(fmt::format("{}: tensor '{}'", what, entry.name),
                     entry.offset < expected ? "overlaps the one before" : "a hole lies before it");
    expected += entry.size_bytes;
  }
  if (expected != file_bytes) return corrupt(what, "data behind the last tensor");
  return Ok{};
}

}  // namespace

uint64_t element_bytes(std::string_view dtype) {
  const auto found = std::ranges::find(kDTypes, dtype, &KnownDType::name);
  return found == kDTypes.end() ? 0 : found->size_bytes;
}

Status check_tensor(const TensorInfo& info) {
  YARD_TRY(count_elements(info.shape));
  if (element_bytes(info.dtype) > 0) return Ok{};
  std::vector<std::string_view> names;
  for (const KnownDType& known : kDTypes) names.push_back(known.name);
  return Error{Code::kInvalidArgument,
               fmt::format("dtype '{}' is not known{}", info.dtype, suggestion(info.dtype, names))};
}

std::string to_string(const TensorInfo& info) {
  return fmt::format("{} [{}]", info.dtype, fmt::join(info.shape, ", "));
}

Json to_json(const TensorInfo& info) {
  return {{"dtype", info.dtype}, {"shape", info.shape}};
}

Result<TensorInfo> tensor_info_from_json(const Json& json, std::string_view what) {
  TensorInfo info;
  YARD_ASSIGN(info.dtype, json_field<std::string>(json, "dtype", what));
  YARD_ASSIGN(info.shape, json_field<Shape>(json, "shape", what));
  if (Status known = check_tensor(info); !known) return std::move(known).error().while_(what);
  return info;
}

Result<std::string> format_header(std::vector<FileEntry>& entries,
                                  const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t end = 0;
  for (FileEntry& entry : entries) {
    if (header.contains(entry.name))
      return Error{
          Code::kInvalidArgument,
          fmt::format("tensor '{}': the name is given twice, or kept for other use", entry.name)};
    Json& json = header[entry.name] = to_json(entry.info);
    json["data_offsets"] = {end, end + entry.size_bytes};
    entry.offset = end;
    end += entry.size_bytes;
  }
  const std::string text = header.dump();
  const uint64_t text_bytes = (text.size() + 7) / 8 * 8;  // the data start on 8 bytes
  std::string bytes(sizeof text_bytes, '\0');
  std::memcpy(bytes.data(), &text_bytes, sizeof text_bytes);  // little-endian, as where we run
  bytes += text;
  bytes.resize(sizeof text_bytes + text_bytes, ' ');
  for (FileEntry& entry : entries) entry.offset += bytes.size();
  return bytes;
}

Result<uint64_t> header_size_bytes(std::span<const std::byte> first_bytes, uint64_t file_bytes,
                                   std::string_view what) {
  uint64_t text_bytes = 0;
  if (first_bytes.size() < sizeof text_bytes || file_bytes < sizeof text_bytes)
    return corrupt(what, "too short for a safetensors file");
  std::memcpy(&text_bytes, first_bytes.data(), sizeof text_bytes);
  if (text_bytes > kHeaderBytesMax) return corrupt(what, "header over 100 MB");
  if (text_bytes > file_bytes - sizeof text_bytes)
    return corrupt(what, "header longer than the file (truncated?)");
  return sizeof text_bytes + text_bytes;
}

Result<SafetensorsHeader> parse_header(std::span<const std::byte> header, uint64_t file_bytes,
                                       std::string_view what) {
  YARD_CHECK(header.size() >= sizeof(uint64_t) && header.size() <= file_bytes);
  const std::string_view text(reinterpret_cast<const char*>(header.data()), header.size());
  YARD_ASSIGN(const Json json, parse_unique(text.substr(sizeof(uint64_t)), what));
  SafetensorsHeader parsed;
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") {
      YARD_ASSIGN(parsed.metadata, parse_metadata(value, what));
      continue;
    }
    YARD_ASSIGN(parsed.entries.emplace_back(),
                parse_entry(name, value, header.size(), file_bytes,
                            fmt::format("{}: tensor '{}'", what, name)));
  }
  std::ranges::sort(parsed.entries, [](const FileEntry& a, const FileEntry& b) {
    return std::pair(a.offset, a.size_bytes) < std::pair(b.offset, b.size_bytes);
  });
  YARD_TRY(check_layout(parsed.entries, header.size(), file_bytes, what));
  return parsed;
}

}  // namespace yard::checkpoint
