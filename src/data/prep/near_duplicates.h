// NearDuplicates: which known perceptual hashes lie within a Hamming distance of another.
//
// Multi-index hashing (Norouzi, Punjani, Fleet: "Fast Search in Hamming Space with Multi-Index
// Hashing", CVPR 2012): a hash is cut into four pieces of 16 bits. Two hashes that differ in at
// most d bits differ in at most d/4 bits of some piece, so only those are compared that share
// nearly such a piece: about 4 * C(16, d/4) buckets of count/65536 hashes each.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace yard::prep {

// Not thread-safe; const methods may be called at the same time. About 24 bytes a hash, and 6 MiB.
class NearDuplicates {
 public:
  static constexpr int kDistanceMax = 15;  // beyond it a search looks at most of the buckets

  struct Match {
    uint64_t id = 0;
    uint64_t hash = 0;
    int distance = 0;
    bool operator==(const Match&) const = default;
  };

  NearDuplicates();
  // Ids need not be unique.
  void add(uint64_t hash, uint64_t id);
  uint64_t count() const { return hashes_.size(); }

  // distance_max: 0 to kDistanceMax. By distance, then in the order they were added.
  std::vector<Match> find(uint64_t hash, int distance_max) const;
  std::optional<Match> nearest(uint64_t hash, int distance_max) const;

  // A file of 16 bytes a hash with a checksum, replaced atomically; hashes of the same order.
  // kExhausted: disk full.
  Status save(const std::string& path) const;
  // kNotFound; kCorrupt: damaged, truncated or something else.
  static Result<NearDuplicates> load(const std::string& path);

 private:
  static constexpr int kPieceCount = 4;
  static constexpr int kPieceBits = 16;
  using Table = std::vector<std::vector<uint32_t>>;  // by piece: positions in hashes_

  void visit(int piece, uint32_t value, uint64_t hash, int distance_max,
             std::vector<Match>& matches) const;

  std::vector<uint64_t> hashes_;
  std::vector<uint64_t> ids_;
  std::array<Table, kPieceCount> tables_;
};

}  // namespace yard::prep
