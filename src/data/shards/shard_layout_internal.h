// What ShardWriter and assemble_shards() lay down alike, so that both give the same bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "shards/tar_header.h"

namespace yard::shards {

inline constexpr uint64_t kEndMarkBytes = 2 * kTarBlockBytes;

inline std::string member_name(std::string_view key, std::string_view extension) {
  std::string name(key);
  name += '.';
  return name += extension;
}

// kInvalidArgument: a name that would be read back as another key and extension, or that is not
// safe to unpack.
Status check_member(std::string_view key, std::string_view extension);

// Of one member: headers, content and padding.
uint64_t frame_bytes(std::string_view name, uint64_t content_bytes);

// "<prefix>-000007.tar"
std::string shard_key(std::string_view prefix, uint64_t number);

}  // namespace yard::shards
