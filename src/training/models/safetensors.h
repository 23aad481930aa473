// Safetensors files: a JSON header, then tensors as they lie in memory (docs/formats/models.md).
//
// Reading maps the file: tensors are views of the mapping, which lives as long as any of them. What
// is written to them stays in memory. The file must not be cut short meanwhile (replacing it by
// rename is fine). Every bound of the header is checked before use; errors name file and tensor.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/module.h"
#include "storage/object_store.h"

namespace yard::models {

inline constexpr uint64_t kSafetensorsHeaderBytesMax = 100'000'000;  // the reference's own limit

struct SafetensorsFile {
  std::vector<NamedTensor> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
};

// kCorrupt: not such a file, truncated, overlapping or misplaced tensors, sizes that do not fit
// their shapes; kInvalidArgument: a dtype that we do not have; kNotFound.
Result<SafetensorsFile> read_safetensors(const std::string& path);

// The file's bytes: tensors in order of descending element size, then name, as the reference
// writes them; metadata {"format": "pt"} and what is given. Equal input gives equal bytes.
// kInvalidArgument: a name given twice, a dtype that cannot be stored.
Result<std::string> safetensors_bytes(const std::vector<NamedTensor>& tensors,
                                      const std::map<std::string, std::string>& metadata = {});
// The same piece by piece, without a second copy in memory. The caller commits the upload.
Status write_safetensors(storage::Upload& upload, const std::vector<NamedTensor>& tensors,
                         const std::map<std::string, std::string>& metadata = {});
// The same to a file, atomically: whole and durable, or the old one stays. Its folder must exist.
Status write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                         const std::map<std::string, std::string>& metadata = {});

}  // namespace yard::models
