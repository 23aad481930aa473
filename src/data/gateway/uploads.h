// Uploads: multipart uploads in progress. Each is a folder .yard/uploads/ID: the file "upload" says
// of what, the files "00001" ... are its parts. Of a part that has a place in the staged file
// (staging.h) that file is empty, and its metadata says how many bytes lie there.
//
// Parts are not synced one by one: the object is, when it is completed. So that a power cut between
// the two cannot put half a part into an object, parts of an earlier boot count as not uploaded.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/body.h"
#include "gateway/bucket.h"
#include "gateway/root.h"
#include "gateway/s3_error.h"
#include "gateway/staging.h"
#include "gateway/xml.h"

namespace yard::gateway {

inline constexpr uint32_t kPartCountMax = 10'000;

struct UploadInfo {
  std::string id;
  std::string bucket;
  std::string key;
  std::chrono::system_clock::time_point begun;
  ObjectMeta meta;  // of the object to be: headers and user metadata
  ChecksumAlgorithm algorithm = ChecksumAlgorithm::kCrc64Nvme;
  ChecksumType checksum_type = ChecksumType::kFullObject;
  bool names_algorithm = false;  // the client did; else the algorithm is our choice
};

struct PartInfo {
  uint32_t number = 0;
  uint64_t size_bytes = 0;
  std::string etag;    // the MD5 in hexadecimal
  std::string digest;  // of the upload's algorithm, not encoded
  bool is_staged = false;
  std::chrono::system_clock::time_point modified;
};

// What a completed upload's object is made of and called. `uploaded` is in the order of numbers.
// Pure, and the errors of a wrong list:
// InvalidPart, InvalidPartOrder, EntityTooSmall, EntityTooLarge.
struct Assembly {
  std::vector<PartInfo> parts;
  uint64_t size_bytes = 0;
  std::string etag;  // MD5 of the parts' MD5s, "-N"
  ObjectChecksum checksum;
};
S3Result<Assembly> plan_assembly(const UploadInfo& upload, const std::vector<PartInfo>& uploaded,
                                 const std::vector<CompletedPart>& wanted);

// What a request to complete the upload with this very list has made, when `object` is that.
// Nothing when it is not. Its parts are not told.
std::optional<Assembly> find_assembly(const ObjectFile& object, std::string_view upload_id,
                                      const std::vector<CompletedPart>& wanted);

// Thread-safe. `root` outlives it.
class Uploads {
 public:
  explicit Uploads(Root& root);

  // Stores it under a new id.
  S3Result<UploadInfo> begin(UploadInfo upload);
  S3Result<UploadInfo> find(std::string_view bucket, std::string_view key,
                            std::string_view id) const;
  S3Result<std::vector<UploadInfo>> list(std::string_view bucket) const;  // by key, then by age

  // What a part of `size_bytes` is to be written to.
  S3Result<PartFile> open_part(const UploadInfo& upload, uint32_t number, uint64_t size_bytes);
  // In the place of an earlier one of that number. digests.wanted is of the upload's algorithm.
  S3Status put_part(const UploadInfo& upload, uint32_t number, PartFile file,
                    const BodyDigests& digests);
  S3Result<std::vector<PartInfo>> parts(const UploadInfo& upload) const;  // by number

  // Makes the object; then the upload is no more. `progress` is called while the bytes are brought
  // together and to the disk.
  // OperationAborted while another request completes or aborts the same upload.
  S3Status complete(const UploadInfo& upload, const Assembly& assembly, Bucket& bucket,
                    const Precondition& precondition, const std::function<void()>& progress);
  S3Status abort(const UploadInfo& upload);
  void abort_all(std::string_view bucket);

 private:
  // A part and its file, which is empty when it is staged.
  struct OpenPart {
    PartInfo info;
    UniqueFd file;
  };
  S3Result<UniqueFd> open_folder(std::string_view id) const;
  S3Result<UploadInfo> read_upload(const std::string& id) const;
  bool is_half_removed(const UploadInfo& upload) const;
  S3Status record_part(const UploadInfo& upload, uint32_t number, TempFile file,
                       const ObjectMeta& meta, const UniqueFd& folder);
  S3Result<std::optional<OpenPart>> open_part_file(const UploadInfo& upload, int folder_fd,
                                                   const std::string& name) const;
  S3Result<OpenPart> open_planned(const UploadInfo& upload, const PartInfo& planned,
                                  int folder_fd) const;
  S3Result<TempFile> assemble_in_place(const UploadInfo& upload, const Assembly& assembly,
                                       int folder_fd, uint64_t part_bytes,
                                       const std::function<void()>& progress);
  S3Result<TempFile> assemble_copy(const UploadInfo& upload, const Assembly& assembly,
                                   int folder_fd, std::optional<uint64_t> part_bytes,
                                   const std::function<void()>& progress);
  void remove(const std::string& id);

  Root& root_;
  const std::string boot_id_;
  Staging staging_;
};

}  // namespace yard::gateway
