// One 512-byte tar header: POSIX ustar (IEEE Std 1003.1, pax interchange format), with the GNU
// extensions that readers meet. Pure: bytes in, fields out, and back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace yard::shards {

inline constexpr uint64_t kTarBlockBytes = 512;
using TarBlock = std::array<std::byte, kTarBlockBytes>;

constexpr uint64_t padded_to_block(uint64_t size_bytes) {
  return (size_bytes + kTarBlockBytes - 1) / kTarBlockBytes * kTarBlockBytes;
}

struct TarHeader {
  std::string name;
  uint64_t size_bytes = 0;
  char type = '0';
};

// nullopt for a block of zeros, the mark of the archive's end. kCorrupt: wrong checksum or a field
// that is no number; the message names neither shard nor offset.
Result<std::optional<TarHeader>> parse_tar_header(std::span<const std::byte> block);
// Whether the block says it is a tar header, right or wrong.
bool has_tar_magic(std::span<const std::byte> block);

// The records "LENGTH KEY=VALUE\n" of a pax header's content, in order. kCorrupt when malformed.
struct PaxRecord {
  std::string_view key;
  std::string_view value;
};
Result<std::vector<PaxRecord>> parse_pax(std::string_view content);

// What goes before a member's content: its header, with a pax header before it where the name is
// longer than ustar's fields or not ASCII, or the size over 8 GiB. The same bytes for the same
// arguments: mode 0644, owner 0, times 2000-01-01.
std::vector<std::byte> tar_member_header(std::string_view name, uint64_t size_bytes);
// How many bytes that is.
uint64_t tar_header_bytes(std::string_view name, uint64_t size_bytes);

}  // namespace yard::shards
