// Unfinished multipart uploads of a bucket: what killed clients leave. They take room that no
// listing of objects shows, until somebody aborts them.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "storage/s3_store.h"

namespace yard::storage {

struct UnfinishedUpload {
  std::string key;
  std::string id;
  std::chrono::system_clock::time_point begun{};  // the epoch when the server does not say
};

// Those of keys that begin with `prefix`, by key. Thread-safe. kNotFound: no such bucket;
// kInvalidArgument: a server that has no such list.
Result<std::vector<UnfinishedUpload>> list_unfinished(S3Service& service, std::string_view bucket,
                                                      std::string_view prefix);
// Removes it with its parts. Ok also when it was finished or aborted meanwhile.
Status abort_unfinished(S3Service& service, std::string_view bucket,
                        const UnfinishedUpload& upload);

}  // namespace yard::storage
