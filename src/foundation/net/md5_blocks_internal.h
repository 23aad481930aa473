// MD5's compression function (RFC 1321) over several streams at once, each in a lane of the CPU's
// vectors. One stream is a single chain of dependent steps that leaves most of a core idle: several
// cost hardly more than one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace yard::net_internal {

inline constexpr size_t kMd5BlockBytes = 64;
inline constexpr size_t kMd5LanesMax = 16;

using Md5State = std::array<uint32_t, 4>;
inline constexpr Md5State kMd5StateFirst = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};

// Whole blocks that follow those already in `state`, one at least. Both moved on by md5_blocks().
struct Md5Lane {
  Md5State* state = nullptr;
  const std::byte* data = nullptr;
  size_t block_count = 0;
};

// How many lanes cost as much as one.
size_t md5_lane_count();

// All blocks of all lanes; the lanes are left in any order. Contract: 1..kMd5LanesMax of them, of
// different states.
void md5_blocks(std::span<Md5Lane> lanes);

}  // namespace yard::net_internal
