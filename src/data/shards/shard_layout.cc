#include <fmt/format.h>

#include "shards/sample_name.h"
#include "shards/shard_layout_internal.h"
#include "storage/keys.h"

namespace yard::shards {
namespace {

// Far over what a file system holds; a reader's limit for one header is 1 MiB.
constexpr size_t kNameBytesMax = size_t{64} << 10;

bool is_plain_path(std::string_view path) {
  if (path.find('\0') != path.npos || !storage::is_utf8(path)) return false;
  for (;;) {
    const size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == path.npos) return true;
    path.remove_prefix(slash + 1);
  }
}

}  // namespace

Status check_member(std::string_view key, std::string_view extension) {
  const std::string name = member_name(key, extension);
  const auto bad = [&](std::string_view why) {
    return Error{Code::kInvalidArgument, fmt::format("member '{}': {}", name.substr(0, 200), why)};
  };
  if (name.size() > kNameBytesMax) return bad("longer than 64 KiB");
  if (!is_plain_path(key) || !is_plain_path(name)) return bad("not a path of plain parts in UTF-8");
  if (name.find('\n') != name.npos) return bad("a line break in its name");
  const auto split = split_member_name(name);
  if (!split || split->key != key || split->extension != extension)
    return bad("the key has a dot in its last part, or is a reserved '__name__'");
  return Ok{};
}

uint64_t frame_bytes(std::string_view name, uint64_t content_bytes) {
  return tar_header_bytes(name, content_bytes) + padded_to_block(content_bytes);
}

std::string shard_key(std::string_view prefix, uint64_t number) {
  return fmt::format("{}-{:06}.tar", prefix, number);
}

}  // namespace yard::shards
