// The captions of a data set, alone: what a tokenizer is trained on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/stop_token.h"
#include "storage/object_store.h"

namespace yard::prep {

// Every object under `prefix` with the extension `member` ("txt"), and every such member of the
// shards (.tar) there, in byte order of the keys and in the shards' own order; trailing white space
// is cut off. Names are split as WebDataset does (shards/sample_name.h). Thread-safe as the store
// is. kNotFound: no captions; kCorrupt, kInvalidArgument: a shard that is damaged or no tar;
// kExhausted: a caption above 1 MiB; kCancelled.
Result<std::vector<std::string>> read_captions(storage::ObjectStore& store, std::string_view prefix,
                                               std::string_view member, const StopToken& stop);

}  // namespace yard::prep
