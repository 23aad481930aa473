#include "gateway/key_path.h"

#include "net/uri.h"
#include "storage/directory_store.h"
#include "storage/keys.h"

namespace yard::gateway {
namespace {

constexpr size_t kChunkBytes = 240;

// `part` escaped, cut into chunks of at most kChunkBytes, each but the last followed by "~/".
std::string escape_part(std::string_view part) {
  std::string path;
  size_t chunk_bytes = 0;
  for (const char byte : part) {
    const std::string escaped = byte == '~' ? "%7E" : percent_encode({&byte, 1});
    if (chunk_bytes + escaped.size() > kChunkBytes) {
      path += "~/";
      chunk_bytes = 0;
    }
    path += escaped;
    chunk_bytes += escaped.size();
  }
  return path;
}

}  // namespace

bool is_plain_path(std::string_view key) {
  if (!storage::check_key(key)) return false;
  if (key.substr(0, key.find('/')) == storage::kStagingFolder) return false;
  for (std::string_view rest = key;;) {
    const size_t slash = rest.find('/');
    if (rest.substr(0, slash).size() > kFileNameBytesMax) return false;
    if (slash == rest.npos) return true;
    rest.remove_prefix(slash + 1);
  }
}

std::string odd_folder_path(std::string_view folder) {
  std::string path;
  while (!folder.empty()) {
    const size_t slash = folder.find('/');
    if (!path.empty()) path += '/';
    path += escape_part(folder.substr(0, slash)) + "+";
    folder.remove_prefix(slash + 1);
  }
  return path;
}

std::string odd_path(std::string_view key) {
  const size_t slash = key.rfind('/');
  const std::string_view folder = slash == key.npos ? "" : key.substr(0, slash + 1);
  std::string path = odd_folder_path(folder);
  if (!path.empty()) path += '/';
  return path + escape_part(key.substr(folder.size())) + "=";
}

std::optional<OddName> parse_odd_name(std::string_view name) {
  if (name.empty()) return std::nullopt;
  const std::string_view escaped = name.substr(0, name.size() - 1);
  auto text = percent_decode(escaped);
  if (!text || escaped.find_first_of("+=~") != escaped.npos) return std::nullopt;
  switch (name.back()) {
    case '=':
      return OddName{OddName::Kind::kLastPart, *std::move(text)};
    case '+':
      return OddName{OddName::Kind::kFolder, *std::move(text)};
    case '~':
      return OddName{OddName::Kind::kGoesOn, *std::move(text)};
    default:
      return std::nullopt;
  }
}

}  // namespace yard::gateway
