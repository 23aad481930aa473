#include "prep/near_duplicates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <span>

#include "base/crc32c.h"
#include "base/file.h"
#include "prep/phash.h"

namespace yard::prep {
namespace {

constexpr std::string_view kMagic = "YPHASH01";
constexpr size_t kHeadBytes = 20;  // magic, count, checksum
constexpr size_t kEntryBytes = 16;

void append_u64(uint64_t value, std::string& out) {
  for (int i = 0; i < 8; ++i) out += char(value >> (8 * i));
}

uint64_t read_u64(std::string_view bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | uint8_t(bytes[i]);
  return value;
}

uint32_t checksum_of(std::string_view bytes) {
  return crc32c(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

// Every value that differs from `value` in exactly `flips` bits, all above `lowest`.
void for_each_flipped(uint32_t value, int bits, int lowest, int flips,
                      const std::function<void(uint32_t)>& visit) {
  if (flips == 0) return visit(value);
  for (int bit = lowest; bit < bits; ++bit)
    for_each_flipped(value ^ (1U << bit), bits, bit + 1, flips - 1, visit);
}

}  // namespace

NearDuplicates::NearDuplicates() {
  for (Table& table : tables_) table.resize(size_t{1} << kPieceBits);
}

void NearDuplicates::add(uint64_t hash, uint64_t id) {
  YARD_CHECK(hashes_.size() < std::numeric_limits<uint32_t>::max());
  const auto position = static_cast<uint32_t>(hashes_.size());
  hashes_.push_back(hash);
  ids_.push_back(id);
  for (int piece = 0; piece < kPieceCount; ++piece)
    tables_[piece][hash >> (piece * kPieceBits) & 0xFFFF].push_back(position);
}

void NearDuplicates::visit(int piece, uint32_t value, uint64_t hash, int distance_max,
                           std::vector<Match>& matches) const {
  for (const uint32_t position : tables_[piece][value]) {
    const uint64_t found = hashes_[position];
    const int distance = phash_distance(found, hash);
    if (distance > distance_max) continue;
    // Of the pieces that lead to it the first counts, so that it is found once.
    const int reach = distance_max / kPieceCount;
    const uint64_t differing = found ^ hash;
    bool is_known = false;
    for (int before = 0; before < piece && !is_known; ++before)
      is_known = std::popcount(differing >> (before * kPieceBits) & 0xFFFF) <= reach;
    if (!is_known) matches.push_back({position, found, distance});
  }
}

std::vector<NearDuplicates::Match> NearDuplicates::find(uint64_t hash, int distance_max) const {
  YARD_CHECK(distance_max >= 0 && distance_max <= kDistanceMax);
  std::vector<Match> matches;
  for (int piece = 0; piece < kPieceCount; ++piece) {
    const auto value = uint32_t(hash >> (piece * kPieceBits) & 0xFFFF);
    for (int flips = 0; flips <= distance_max / kPieceCount; ++flips)
      for_each_flipped(value, kPieceBits, 0, flips,
                       [&](uint32_t near) { visit(piece, near, hash, distance_max, matches); });
  }
  std::ranges::sort(matches, [](const Match& a, const Match& b) {
    return std::pair(a.distance, a.id) < std::pair(b.distance, b.id);
  });
  for (Match& match : matches) match.id = ids_[match.id];
  return matches;
}

std::optional<NearDuplicates::Match> NearDuplicates::nearest(uint64_t hash,
                                                             int distance_max) const {
  const std::vector<Match> matches = find(hash, distance_max);
  if (matches.empty()) return std::nullopt;
  return matches.front();
}

Status NearDuplicates::save(const std::string& path) const {
  std::string body;
  body.reserve(hashes_.size() * kEntryBytes);
  for (size_t i = 0; i < hashes_.size(); ++i) {
    append_u64(hashes_[i], body);
    append_u64(ids_[i], body);
  }
  std::string file(kMagic);
  append_u64(hashes_.size(), file);
  const uint32_t checksum = checksum_of(body);
  for (int i = 0; i < 4; ++i) file += char(checksum >> (8 * i));
  return write_file_atomic(path, file + body);
}

Result<NearDuplicates> NearDuplicates::load(const std::string& path) {
  YARD_ASSIGN(const std::string file, read_file(path, uint64_t{1} << 36));
  const std::string_view bytes = file;
  const auto corrupt = [&](std::string_view what) {
    return Error{Code::kCorrupt, fmt::format("{}: {}", path, what)};
  };
  if (bytes.size() < kHeadBytes || !bytes.starts_with(kMagic))
    return corrupt("no index of perceptual hashes");
  const uint64_t count = read_u64(bytes.substr(8));
  const std::string_view body = bytes.substr(kHeadBytes);
  if (body.size() % kEntryBytes != 0 || count != body.size() / kEntryBytes)
    return corrupt(fmt::format("{} bytes do not hold {} hashes", bytes.size(), count));
  uint32_t checksum = 0;
  for (int i = 3; i >= 0; --i) checksum = checksum << 8 | uint8_t(bytes[16 + i]);
  if (checksum != checksum_of(body)) return corrupt("the checksum is wrong");
  NearDuplicates made;
  for (uint64_t i = 0; i < count; ++i)
    made.add(read_u64(body.substr(i * kEntryBytes)), read_u64(body.substr(i * kEntryBytes + 8)));
  return made;
}

}  // namespace yard::prep
