// The XML documents of the S3 protocol that a client reads and writes (AWS's "Amazon S3 API
// Reference"). Pure functions.
//
// Readers fail with kCorrupt for what is no such document. They want no name space and ignore
// elements they do not know: servers differ in both.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/object_store.h"
#include "storage/s3_unfinished.h"

namespace yard::storage::s3_xml {

struct ErrorBody {
  std::string code;  // "NoSuchKey"
  std::string message;
  std::string region;
};
// nullopt for anything that is no <Error> document.
std::optional<ErrorBody> parse_error(std::string_view body);

struct ListBody {
  std::vector<ObjectInfo> objects;
  std::vector<std::string> common_prefixes;
  std::string continuation_token;  // empty: the end
};
Result<ListBody> parse_list(std::string_view body);

Result<std::vector<std::string>> parse_buckets(std::string_view body);
Result<std::string> parse_upload_id(std::string_view body);

struct UploadsBody {
  std::vector<UnfinishedUpload> uploads;
  std::string next_key;  // empty: the end
  std::string next_id;
};
Result<UploadsBody> parse_uploads(std::string_view body);

struct WrittenBody {
  std::string etag;  // some servers leave it empty
  std::optional<std::chrono::system_clock::time_point> modified;
};
// CopyObjectResult, CopyPartResult, CompleteMultipartUploadResult.
Result<WrittenBody> parse_written(std::string_view body);

struct DeleteFailure {
  std::string key;
  ErrorBody error;
};
Result<std::vector<DeleteFailure>> parse_delete_result(std::string_view body);

struct UploadedPart {
  int number = 0;
  std::string etag;
  std::string checksum_base64;
};
// checksum_element: "ChecksumCRC32C".
std::string complete_upload(const std::vector<UploadedPart>& parts,
                            std::string_view checksum_element);
std::string delete_keys(std::span<const std::string> keys);
// XML 1.0 cannot write most control characters, not even escaped.
bool can_write(std::string_view text);

// ETags are compared without their quotes, which some servers forget.
std::string without_quotes(std::string_view etag);

// "2009-10-12T17:50:30.000Z".
std::optional<std::chrono::system_clock::time_point> parse_time(std::string_view text);

}  // namespace yard::storage::s3_xml
