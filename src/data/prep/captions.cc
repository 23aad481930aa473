#include "prep/captions.h"

#include <fmt/format.h>

#include "shards/sample_name.h"
#include "shards/tar_scanner.h"

namespace yard::prep {
namespace {

constexpr uint64_t kCaptionBytesMax = 1 << 20;

bool has_extension(std::string_view name, std::string_view extension) {
  const auto sample = shards::split_member_name(name);
  return sample && shards::to_lower(sample->extension) == extension;
}

void cut_trailing_space(std::string& text) {
  while (!text.empty() && std::string_view(" \t\r\n").find(text.back()) != std::string_view::npos)
    text.pop_back();
}

Status read_shard(storage::ObjectStore& store, const std::string& key, std::string_view member,
                  const StopToken& stop, std::vector<std::string>& captions) {
  YARD_ASSIGN(shards::TarScanner scanner, shards::TarScanner::open(store, key));
  while (true) {
    if (stop.stopped()) return Error{Code::kCancelled, "stopped on request"};
    YARD_ASSIGN(const std::optional<shards::TarMember> found, scanner.next());
    if (!found) return Ok{};
    if (!has_extension(found->name, member)) continue;
    if (found->size_bytes > kCaptionBytesMax) {
      return Error{Code::kExhausted, fmt::format("{}: {}: a caption of {} bytes, more than {}", key,
                                                 found->name, found->size_bytes, kCaptionBytesMax)};
    }
    std::string caption;
    YARD_TRY(scanner.read_content([&](std::span<const std::byte> bytes) -> Status {
      caption.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      return Ok{};
    }));
    cut_trailing_space(caption);
    captions.push_back(std::move(caption));
  }
}

}  // namespace

Result<std::vector<std::string>> read_captions(storage::ObjectStore& store, std::string_view prefix,
                                               std::string_view member, const StopToken& stop) {
  YARD_ASSIGN(const std::vector<storage::ObjectInfo> objects, storage::list_all(store, prefix));
  std::vector<std::string> captions;
  for (const storage::ObjectInfo& object : objects) {
    if (stop.stopped()) return Error{Code::kCancelled, "stopped on request"};
    if (object.key.ends_with(".tar")) {
      YARD_TRY(read_shard(store, object.key, member, stop, captions));
    } else if (has_extension(object.key, member)) {
      YARD_ASSIGN(std::string caption, storage::get_all(store, object.key, kCaptionBytesMax));
      cut_trailing_space(caption);
      captions.push_back(std::move(caption));
    }
  }
  if (captions.empty()) {
    return Error{Code::kNotFound,
                 fmt::format("{}/{}: no captions: neither .{} files nor shards with .{} members",
                             store.url(), prefix, member, member)};
  }
  return captions;
}

}  // namespace yard::prep
