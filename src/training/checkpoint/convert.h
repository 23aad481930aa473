// Between checkpoints and plain safetensors: one file, or several with the index by which Hugging
// Face's libraries find them (model.safetensors.index.json).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/stop_token.h"
#include "checkpoint/checkpoint_store.h"
#include "storage/object_store.h"

namespace yard::checkpoint {

struct ExportOptions {
  std::string stem = "model";  // "model.safetensors", "model-00001-of-00003.safetensors"
  // Where all do not fit into one file: Hugging Face's own limit. A larger tensor has one alone.
  uint64_t file_bytes_max = 5'000'000'000;
  std::string name_prefix;  // only tensors whose names start so, and it is cut off
  StopToken stop;
};

// Writes the tensors, whole whatever ranks saved them, under `prefix` of `target`; the index last.
// Memory: 64 MiB. Every byte is verified. Returns the keys of the files. kNotFound: no tensor has
// such a name; kInvalidArgument: cutting the prefix off leaves no name; else as load().
Result<std::vector<std::string>> export_safetensors(const CheckpointStore& checkpoints,
                                                    const CheckpointManifest& manifest,
                                                    storage::ObjectStore& target,
                                                    std::string_view prefix,
                                                    const ExportOptions& options = {});

struct ImportOptions {
  int64_t step = 0;
  Json metadata = Json::object();
  StopToken stop;
};

// Makes a checkpoint out of `key` of `source`: a .safetensors file, an .index.json, or a folder
// with one index or else with such files. The files are copied as they are, so memory is bounded.
// An older checkpoint of that step is replaced at once. kNotFound: there is none; kCorrupt, naming
// file and tensor; kInvalidArgument: a tensor that two files have, or that the index misplaces.
Result<CheckpointManifest> import_safetensors(storage::ObjectStore& source, std::string_view key,
                                              const CheckpointStore& checkpoints,
                                              const ImportOptions& options);

}  // namespace yard::checkpoint
