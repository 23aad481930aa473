#include "mount/key_share.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

namespace yard::mount {
namespace {

constexpr uint32_t kShareCountMax = 1'000'000;

std::optional<uint32_t> number_of(std::string_view text) {
  uint32_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != text.data() + text.size())
    return std::nullopt;
  return value;
}

}  // namespace

Result<ShareOptions> parse_share(std::string_view text) {
  const size_t slash = text.find('/');
  const auto index = number_of(text.substr(0, slash));
  const auto count = slash == text.npos ? std::nullopt : number_of(text.substr(slash + 1));
  if (index && count && *index < *count && *count <= kShareCountMax)
    return ShareOptions{*index, *count};
  return Error{Code::kInvalidArgument,
               fmt::format("share '{}': not INDEX/COUNT with an index from 0, as 0/4", text)};
}

uint64_t key_hash(std::string_view key) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  // FNV's upper bits know little of the last bytes (finaliser of MurmurHash3).
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccd;
  hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53;
  return hash ^ (hash >> 33);
}

Result<KeyShare> KeyShare::take(storage::ObjectStore& store, std::string_view prefix,
                                const ShareOptions& options, const StopToken& stop) {
  YARD_CHECK(options.index < options.count);
  KeyShare share;
  uint64_t number = 0;
  storage::ListRequest request{.prefix = std::string(prefix)};
  do {
    if (stop.stopped()) return Error{Code::kCancelled, "stopped"};
    YARD_ASSIGN(storage::ListPage page, store.list(request));
    for (const storage::ObjectInfo& info : page.objects) {
      if (info.key.ends_with('/')) continue;  // a folder's marker is no file
      if (number++ % options.count != options.index) continue;
      share.objects_.insert(key_hash(info.key));
      for (size_t slash = info.key.find('/', prefix.size()); slash != info.key.npos;
           slash = info.key.find('/', slash + 1))
        share.folders_.insert(key_hash(std::string_view(info.key).substr(0, slash + 1)));
    }
    request.start_after = std::move(page.next_start_after);
  } while (!request.start_after.empty());
  return share;
}

bool KeyShare::has_object(std::string_view key) const {
  return objects_.contains(key_hash(key));
}

bool KeyShare::has_folder(std::string_view key) const {
  return folders_.contains(key_hash(key));
}

}  // namespace yard::mount
