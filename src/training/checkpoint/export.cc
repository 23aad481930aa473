#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/convert.h"
#include "checkpoint/load.h"

namespace yard::checkpoint {
namespace {

constexpr uint64_t kStepBytes = uint64_t{64} << 20;

struct ExportFile {
  std::string key;
  std::vector<std::string> names;  // in the checkpoint
};

class Exporter {
 public:
  Exporter(const CheckpointStore& checkpoints, const CheckpointManifest& manifest,
           storage::ObjectStore& target, std::string_view prefix, const ExportOptions& options)
      : checkpoints_(checkpoints),
        manifest_(manifest),
        target_(target),
        folder_(prefix),
        options_(options) {
    while (folder_.ends_with('/')) folder_.pop_back();
    if (!folder_.empty()) folder_ += '/';
  }

  Result<std::vector<std::string>> run() {
    YARD_ASSIGN(const std::vector<std::string> names, wanted());
    const std::vector<ExportFile> files = cut(names);
    std::vector<std::string> keys;
    for (const ExportFile& file : files) {
      YARD_TRY(write(file));
      keys.push_back(file.key);
    }
    if (files.size() > 1) {
      keys.push_back(fmt::format("{}{}.safetensors.index.json", folder_, options_.stem));
      YARD_TRY(storage::put_text(target_, keys.back(), index_of(files)));
    }
    return keys;
  }

 private:
  std::string exported_name(const std::string& name) const {
    return name.substr(options_.name_prefix.size());
  }
  const TensorInfo& info_of(const std::string& name) const {
    return manifest_.tensors.at(name).info;
  }
  uint64_t bytes_of(const std::string& name) const {
    return chunk_bytes(info_of(name), Region::all());
  }

  // In the order of a file: wide elements first, so that all are aligned.
  Result<std::vector<std::string>> wanted() const {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : manifest_.tensors)
      if (name.starts_with(options_.name_prefix)) names.push_back(name);
    const std::string url = checkpoints_.url_of(checkpoints_.folder_of(manifest_.step));
    if (names.empty())
      return Error{Code::kNotFound,
                   fmt::format("{}: no tensor's name starts with '{}'", url, options_.name_prefix)};
    if (std::ranges::find(names, options_.name_prefix) != names.end() &&
        !options_.name_prefix.empty())
      return Error{Code::kInvalidArgument, fmt::format("{}: tensor '{}' would have no name left",
                                                       url, options_.name_prefix)};
    std::ranges::stable_sort(names, std::greater(), [this](const std::string& name) {
      return element_bytes(info_of(name).dtype);
    });
    return names;
  }

  std::vector<ExportFile> cut(const std::vector<std::string>& names) const {
    std::vector<ExportFile> files;
    uint64_t filled = 0;
    for (const std::string& name : names) {
      if (files.empty() || filled + bytes_of(name) > options_.file_bytes_max) {
        if (files.empty() || !files.back().names.empty()) files.emplace_back();
        filled = 0;
      }
      files.back().names.push_back(name);
      filled += bytes_of(name);
    }
    for (size_t i = 0; i < files.size(); ++i)
      files[i].key = files.size() == 1 ? fmt::format("{}{}.safetensors", folder_, options_.stem)
                                       : fmt::format("{}{}-{:05}-of-{:05}.safetensors", folder_,
                                                     options_.stem, i + 1, files.size());
    return files;
  }

  Status write(const ExportFile& file) {
    std::vector<FileEntry> entries;
    uint64_t size_bytes = 0;
    for (const std::string& name : file.names) {
      entries.push_back({exported_name(name), info_of(name), 0, bytes_of(name)});
      size_bytes += bytes_of(name);
    }
    YARD_ASSIGN(const std::string header, format_header(entries, {{"format", "pt"}}));
    YARD_ASSIGN(const auto upload,
                target_.upload(file.key, {.size_bytes_hint = header.size() + size_bytes}));
    YARD_TRY(upload->write(std::as_bytes(std::span(header))));
    for (const std::string& name : file.names) YARD_TRY(write_tensor(*upload, name));
    YARD_TRY(upload->commit());
    return Ok{};
  }

  Status write_tensor(storage::Upload& upload, const std::string& name) {
    const TensorInfo& info = info_of(name);
    const uint64_t width = element_bytes(info.dtype);
    const uint64_t count = bytes_of(name) / width;
    for (uint64_t begin = 0; begin < count;) {
      const uint64_t end = std::min(count, begin + kStepBytes / width);
      buffer_.resize((end - begin) * width);
      const TensorTarget target{name, info, Region::flat(begin, end), buffer_};
      YARD_TRY(load(checkpoints_, manifest_, std::span(&target, 1),
                    {.verify = VerifyBlocks::kAll, .stop = options_.stop}));
      YARD_TRY(upload.write(buffer_));
      begin = end;
    }
    return Ok{};
  }

  std::string index_of(const std::vector<ExportFile>& files) const {
    uint64_t total_bytes = 0;
    Json weight_map = Json::object();
    for (const ExportFile& file : files) {
      for (const std::string& name : file.names) {
        weight_map[exported_name(name)] = file.key.substr(folder_.size());
        total_bytes += bytes_of(name);
      }
    }
    return Json{{"metadata", {{"total_size", total_bytes}}}, {"weight_map", weight_map}}.dump(2) +
           "\n";
  }

  const CheckpointStore& checkpoints_;
  const CheckpointManifest& manifest_;
  storage::ObjectStore& target_;
  std::string folder_;
  const ExportOptions& options_;
  std::vector<std::byte> buffer_;
};

}  // namespace

Result<std::vector<std::string>> export_safetensors(const CheckpointStore& checkpoints,
                                                    const CheckpointManifest& manifest,
                                                    storage::ObjectStore& target,
                                                    std::string_view prefix,
                                                    const ExportOptions& options) {
  return Exporter(checkpoints, manifest, target, prefix, options).run();
}

}  // namespace yard::checkpoint
