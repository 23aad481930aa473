// The index beside a shard, as far as it can be believed.
#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"
#include "shards/shard_index.h"
#include "storage/object_store.h"

namespace yard::shards {

// nullopt: there is none. kCorrupt: it is damaged.
Result<std::optional<ShardIndex>> read_sidecar(storage::ObjectStore& store,
                                               std::string_view shard_key);

// read_sidecar(), where it was made for this shard, so that a content that differs from it is
// damage: the etag is the same, or, of a copied shard, the size and the content of the first, the
// middle or the last sample. nullopt: none, or of another shard.
Result<std::optional<ShardIndex>> sidecar_of(storage::ObjectStore& store,
                                             const storage::ObjectInfo& shard);

// The samples of any shard, compressed ones too: from its index as open_index() has it where
// `options` ask for nothing that an index cannot tell, else by reading it. `options.expected` is
// the index beside it. Errors as open_index() and scan_shard().
Result<ScannedShard> index_of(storage::ObjectStore& store, std::string_view shard_key,
                              ScanOptions options = {});

}  // namespace yard::shards
