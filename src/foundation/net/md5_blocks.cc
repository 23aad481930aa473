#include "net/md5_blocks_internal.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/result.h"

// Highway compiles this file once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "net/md5_blocks.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef YARD_MD5_BLOCKS_SHARED
#define YARD_MD5_BLOCKS_SHARED
namespace yard::net_internal {

// The integer parts of 2^32 |sin(i)|, i from 1 (RFC 1321, section 3.4).
inline constexpr std::array<uint32_t, 64> kMd5Sines = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};

// Which word of the block step i takes.
constexpr size_t md5_word_index(size_t i) {
  constexpr std::array<size_t, 4> kStrides = {1, 5, 3, 7}, kStarts = {0, 1, 5, 0};
  return (kStarts[i / 16] + kStrides[i / 16] * (i % 16)) % 16;
}

}  // namespace yard::net_internal
#endif

HWY_BEFORE_NAMESPACE();
namespace yard::net_internal::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The bits of `yes` where `mask` has ones, else those of `no`: one instruction of AVX-512.
// Elsewhere Highway's looks at one bit of each byte only.
template <class V>
HWY_INLINE V chosen(V mask, V yes, V no) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  return hn::IfVecThenElse(mask, yes, no);
#else
  return hn::Xor(no, hn::And(mask, hn::Xor(yes, no)));
#endif
}

// The four functions of the rounds.
template <int round, class V>
HWY_INLINE V mixed(V b, V c, V d) {
  if constexpr (round == 0) return chosen(b, c, d);
  if constexpr (round == 1) return chosen(d, b, c);
  if constexpr (round == 2) return hn::Xor(b, hn::Xor(c, d));
  return hn::Xor(c, hn::Or(b, hn::Not(d)));
}

template <int round, int rotation, class D, class V>
HWY_INLINE void step(D lanes, const uint32_t* words, size_t i, V& a, V b, V c, V d) {
  // What does not depend on the step before is added first.
  const V word = hn::Load(lanes, words + md5_word_index(i) * kMd5LanesMax);
  const V addend = hn::Add(a, hn::Add(word, hn::Set(lanes, kMd5Sines[i])));
  a = hn::Add(b, hn::RotateRight<32 - rotation>(hn::Add(addend, mixed<round>(b, c, d))));
}

template <int round, int r0, int r1, int r2, int r3, class D, class V>
HWY_INLINE void steps_of_round(D lanes, const uint32_t* words, V& a, V& b, V& c, V& d) {
  for (size_t i = round * 16; i < round * 16 + 16; i += 4) {
    step<round, r0>(lanes, words, i, a, b, c, d);
    step<round, r1>(lanes, words, i + 1, d, a, b, c);
    step<round, r2>(lanes, words, i + 2, c, d, a, b);
    step<round, r3>(lanes, words, i + 3, b, c, d, a);
  }
}

#if HWY_TARGET == HWY_SCALAR
constexpr size_t kWidth = 1;
#else
constexpr size_t kWidth = HWY_MIN(HWY_MAX_BYTES / 4, kMd5LanesMax);
#endif

// words[w * kMd5LanesMax + lane]: word w of each lane's next block.
HWY_INLINE void gather_words(std::span<const Md5Lane> lanes, uint32_t* words) {
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<uint32_t, 4> four;
  const hn::Repartition<uint64_t, decltype(four)> two;
  for (size_t lane = 0; lane < lanes.size(); lane += 4) {
    const std::byte* data[4];
    // Missing lanes repeat the first; nobody looks at what they give.
    for (size_t i = 0; i < 4; ++i) data[i] = lanes[lane + i < lanes.size() ? lane + i : 0].data;
    for (size_t w = 0; w < 16; w += 4) {
      const auto row = [&](size_t i) {
        return hn::LoadU(four, reinterpret_cast<const uint32_t*>(data[i] + w * 4));
      };
      const auto r0 = row(0), r1 = row(1), r2 = row(2), r3 = row(3);
      const auto a = hn::BitCast(two, hn::InterleaveLower(four, r0, r1));
      const auto b = hn::BitCast(two, hn::InterleaveLower(four, r2, r3));
      const auto c = hn::BitCast(two, hn::InterleaveUpper(four, r0, r1));
      const auto d = hn::BitCast(two, hn::InterleaveUpper(four, r2, r3));
      uint32_t* const out = words + w * kMd5LanesMax + lane;
      hn::Store(hn::BitCast(four, hn::InterleaveLower(two, a, b)), four, out);
      hn::Store(hn::BitCast(four, hn::InterleaveUpper(two, a, b)), four, out + kMd5LanesMax);
      hn::Store(hn::BitCast(four, hn::InterleaveLower(two, c, d)), four, out + 2 * kMd5LanesMax);
      hn::Store(hn::BitCast(four, hn::InterleaveUpper(two, c, d)), four, out + 3 * kMd5LanesMax);
    }
  }
#else
  for (size_t w = 0; w < 16; ++w)
    std::memcpy(words + w * kMd5LanesMax, lanes[0].data + w * 4, sizeof(uint32_t));
#endif
}

// `block_count` blocks of each of up to `width` lanes.
template <size_t width>
void blocks_of(std::span<Md5Lane> lanes, size_t block_count) {
  const hn::CappedTag<uint32_t, width> tag;
  alignas(64) uint32_t words[16 * kMd5LanesMax] = {};
  alignas(64) uint32_t states[4][kMd5LanesMax] = {};
  for (size_t lane = 0; lane < lanes.size(); ++lane)
    for (size_t i = 0; i < 4; ++i) states[i][lane] = (*lanes[lane].state)[i];
  auto a = hn::Load(tag, states[0]), b = hn::Load(tag, states[1]);
  auto c = hn::Load(tag, states[2]), d = hn::Load(tag, states[3]);
  for (size_t block = 0; block < block_count; ++block) {
    gather_words(lanes, words);
    const auto a0 = a, b0 = b, c0 = c, d0 = d;
    steps_of_round<0, 7, 12, 17, 22>(tag, words, a, b, c, d);
    steps_of_round<1, 5, 9, 14, 20>(tag, words, a, b, c, d);
    steps_of_round<2, 4, 11, 16, 23>(tag, words, a, b, c, d);
    steps_of_round<3, 6, 10, 15, 21>(tag, words, a, b, c, d);
    a = hn::Add(a, a0);
    b = hn::Add(b, b0);
    c = hn::Add(c, c0);
    d = hn::Add(d, d0);
    for (Md5Lane& lane : lanes) lane.data += kMd5BlockBytes;
  }
  hn::Store(a, tag, states[0]);
  hn::Store(b, tag, states[1]);
  hn::Store(c, tag, states[2]);
  hn::Store(d, tag, states[3]);
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    for (size_t i = 0; i < 4; ++i) (*lanes[lane].state)[i] = states[i][lane];
    lanes[lane].block_count -= block_count;
  }
}

size_t lane_count() {
  return kWidth;
}

void vector_blocks(std::span<Md5Lane> lanes, size_t block_count) {
  while (lanes.size() > kWidth) {
    blocks_of<kWidth>(lanes.first(kWidth), block_count);
    lanes = lanes.subspan(kWidth);
  }
  // Wide vectors take longer to fill.
  if (kWidth > 4 && lanes.size() <= 4) return blocks_of<HWY_MIN(kWidth, 4)>(lanes, block_count);
  blocks_of<kWidth>(lanes, block_count);
}

}  // namespace yard::net_internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace yard::net_internal {
namespace {

HWY_EXPORT(lane_count);
HWY_EXPORT(vector_blocks);

// One stream by itself is quicker in the CPU's plain registers.
void one_lane_blocks(Md5Lane& lane) {
  constexpr std::array<std::array<int, 4>, 4> kRotations = {
      {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}}};
  auto [a, b, c, d] = *lane.state;
  for (; lane.block_count > 0; --lane.block_count, lane.data += kMd5BlockBytes) {
    std::array<uint32_t, 16> words;
    std::memcpy(words.data(), lane.data, kMd5BlockBytes);  // little-endian, as all we build for
    const Md5State before = {a, b, c, d};
#pragma GCC unroll 64
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t mixed = i < 16   ? d ^ (b & (c ^ d))
                             : i < 32 ? (d & b) + (~d & c)
                             : i < 48 ? b ^ (c ^ d)
                                      : c ^ (b | ~d);
      const uint32_t sum = a + words[md5_word_index(i)] + kMd5Sines[i] + mixed;
      a = std::exchange(
          d, std::exchange(c, std::exchange(b, b + std::rotl(sum, kRotations[i / 16][i % 4]))));
    }
    a += before[0];
    b += before[1];
    c += before[2];
    d += before[3];
  }
  *lane.state = {a, b, c, d};
}

}  // namespace

size_t md5_lane_count() {
  return HWY_DYNAMIC_DISPATCH(lane_count)();
}

void md5_blocks(std::span<Md5Lane> lanes) {
  YARD_CHECK(!lanes.empty() && lanes.size() <= kMd5LanesMax);
  while (lanes.size() > 1) {
    size_t block_count = SIZE_MAX;
    for (const Md5Lane& lane : lanes) block_count = std::min(block_count, lane.block_count);
    HWY_DYNAMIC_DISPATCH(vector_blocks)(lanes, block_count);
    const auto ended =
        std::ranges::partition(lanes, [](const Md5Lane& lane) { return lane.block_count > 0; });
    lanes = lanes.first(lanes.size() - ended.size());
  }
  if (!lanes.empty()) one_lane_blocks(lanes.front());
}

}  // namespace yard::net_internal
#endif
