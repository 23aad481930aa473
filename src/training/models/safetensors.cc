#include "models/safetensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>

#include "base/file.h"
#include "base/json.h"
#include "models/safetensors_internal.h"
#include "tensor/guard_torch.h"

namespace yard::models {
namespace {

constexpr size_t kRankMax = 64;  // libtorch's own limit

class Mapping {
 public:
  static Result<std::shared_ptr<Mapping>> open(const std::string& path) {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info = {};
    if (!fd.valid() || ::fstat(fd.get(), &info) != 0) return errno_error(path, errno);
    if (!S_ISREG(info.st_mode)) return Error{Code::kInvalidArgument, path + ": not a regular file"};
    const auto size = static_cast<size_t>(info.st_size);
    if (size < 8) return Error{Code::kCorrupt, path + ": too short for a safetensors file"};
    // Private and writable: a tensor may be changed in place, the file is not.
    void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd.get(), 0);
    if (data == MAP_FAILED) return errno_error(path, errno);
    return std::make_shared<Mapping>(static_cast<std::byte*>(data), size);
  }
  Mapping(std::byte* data, size_t size) : data(data), size(size) {}
  ~Mapping() { ::munmap(data, size); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* const data;
  const size_t size;
};

struct Entry {
  std::string name;
  at::ScalarType type;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes, from the start of the data
};

Result<at::ScalarType> dtype_of(const std::string& name, const std::string& what) {
  for (const SafetensorsDType& known : kSafetensorsDTypes) {
    if (known.name == name) return known.type;
  }
  return Error{Code::kInvalidArgument, what + ": dtype '" + name + "' is not supported"};
}

Error corrupt(const std::string& what, std::string_view why) {
  return {Code::kCorrupt, what + ": " + std::string(why)};
}

// The element count, or nothing when it overflows what any file can hold.
bool count_elements(const std::vector<int64_t>& shape, uint64_t& count) {
  count = 1;
  for (const int64_t side : shape) {
    if (side < 0 || __builtin_mul_overflow(count, static_cast<uint64_t>(side), &count))
      return false;
  }
  return count < uint64_t{1} << 60;
}

template <typename T>
Result<T> field(const Json& json, std::string_view key, const std::string& what) {
  Result<T> value = json_field<T>(json, key, what);
  if (!value)
    return Error{Code::kCorrupt, value.error().message};  // a file's fault, not a caller's
  return value;
}

Result<Entry> parse_entry(const std::string& name, const Json& json, uint64_t data_bytes,
                          const std::string& path) {
  const std::string what = path + ": tensor '" + name + "'";
  Entry entry{.name = name, .type = at::kFloat, .shape = {}};
  YARD_ASSIGN(const std::string dtype, field<std::string>(json, "dtype", what));
  YARD_ASSIGN(entry.type, dtype_of(dtype, what));
  YARD_ASSIGN(entry.shape, field<std::vector<int64_t>>(json, "shape", what));
  YARD_ASSIGN(const auto offsets, field<std::vector<uint64_t>>(json, "data_offsets", what));
  if (offsets.size() != 2) return corrupt(what, "'data_offsets' must have two entries");
  entry.begin = offsets[0];
  entry.end = offsets[1];
  if (entry.begin > entry.end || entry.end > data_bytes) {
    return corrupt(what, "its data lie outside the file (truncated?)");
  }
  if (entry.shape.size() > kRankMax) return corrupt(what, "its shape has too many dimensions");
  uint64_t count = 0;
  if (!count_elements(entry.shape, count) ||
      count * c10::elementSize(entry.type) != entry.end - entry.begin) {
    return corrupt(what, "its size does not fit its shape");
  }
  return entry;
}

// Tensors must fill the data without gap or overlap, as the format demands.
Status check_layout(const std::vector<Entry>& entries, uint64_t data_bytes,
                    const std::string& path) {
  uint64_t expected = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != expected) {
      return corrupt(path + ": tensor '" + entry.name + "'", entry.begin < expected
                                                                 ? "overlaps the one before"
                                                                 : "leaves a hole before it");
    }
    expected = entry.end;
  }
  if (expected != data_bytes) return corrupt(path, "data behind the last tensor");
  return Ok{};
}

Result<Json> read_header(const Mapping& file, const std::string& path, uint64_t& data_begin) {
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data, 8);  // little-endian, like every machine we run on
  if (header_bytes > kSafetensorsHeaderBytesMax) return corrupt(path, "header over 100 MB");
  if (header_bytes > file.size - 8)
    return corrupt(path, "header longer than the file (truncated?)");
  const std::string_view text(reinterpret_cast<const char*>(file.data) + 8, header_bytes);
  if (text.empty() || text.front() != '{') return corrupt(path, "not a safetensors file");
  // The JSON library takes a NUL for the end of its input.
  if (text.find('\0') != std::string_view::npos) return corrupt(path, "header is not JSON");
  data_begin = 8 + header_bytes;
  // A key that appears twice would silently replace the other: look while parsing.
  std::vector<std::set<std::string>> seen;
  bool twice = false;
  auto watch = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) seen.emplace_back();
    if (event == Json::parse_event_t::object_end) seen.pop_back();
    if (event == Json::parse_event_t::key) {
      twice = !seen.back().insert(value.get<std::string>()).second || twice;
    }
    return true;
  };
  Json header = Json::parse(text, watch, false);
  if (twice) return corrupt(path, "a name appears twice in the header");
  if (header.is_discarded() || !header.is_object()) return corrupt(path, "header is not JSON");
  return header;
}

Result<std::map<std::string, std::string>> parse_metadata(const Json& json,
                                                          const std::string& path) {
  std::map<std::string, std::string> metadata;
  if (!json.is_object()) return corrupt(path, "'__metadata__' is not an object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) return corrupt(path, "'__metadata__' must map strings to strings");
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

NamedTensor view_of(const Entry& entry, const std::shared_ptr<Mapping>& file, uint64_t data_begin) {
  std::byte* data = file->data + data_begin + entry.begin;
  const auto options = at::TensorOptions().dtype(entry.type);
  if ((data_begin + entry.begin) % c10::elementSize(entry.type) != 0) {
    // Written without the reference's padding: a view would read across alignment.
    at::Tensor copy = at::empty(entry.shape, options);
    std::memcpy(copy.mutable_data_ptr(), data, entry.end - entry.begin);
    return {entry.name, copy};
  }
  auto keep = [file](void*) {};  // the mapping lives as long as the tensor's storage
  return {entry.name, at::from_blob(data, entry.shape, keep, options)};
}

}  // namespace

Result<SafetensorsFile> read_safetensors(const std::string& path) {
  YARD_ASSIGN(const std::shared_ptr<Mapping> file, Mapping::open(path));
  uint64_t data_begin = 0;
  YARD_ASSIGN(const Json header, read_header(*file, path, data_begin));
  SafetensorsFile out;
  std::vector<Entry> entries;
  const uint64_t data_bytes = file->size - data_begin;
  for (const auto& [name, json] : header.items()) {
    if (name == "__metadata__") {
      YARD_ASSIGN(out.metadata, parse_metadata(json, path));
      continue;
    }
    YARD_ASSIGN(Entry entry, parse_entry(name, json, data_bytes, path));
    entries.push_back(std::move(entry));
  }
  std::ranges::sort(entries, {}, [](const Entry& e) { return std::pair(e.begin, e.end); });
  YARD_TRY(check_layout(entries, data_bytes, path));
  return tensor::guard_torch("reading " + path, [&]() -> Result<SafetensorsFile> {
    for (const Entry& entry : entries) out.tensors.push_back(view_of(entry, file, data_begin));
    return std::move(out);
  });
}

}  // namespace yard::models
