#include "net/crc.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace yard {
namespace {

// Polynomials with their bits reversed and the leading term left out: bit 0 stands for the highest
// remaining power of x.
constexpr uint32_t kCrc32Polynomial = 0xEDB88320;
constexpr uint32_t kCrc32cPolynomial = 0x82F63B78;
constexpr uint64_t kCrc64NvmePolynomial = 0x9A6C9329AC4BC9B5;

// value * x modulo the polynomial, both reversed.
template <typename Word>
constexpr Word times_x(Word value, Word polynomial) {
  return (value >> 1) ^ ((value & 1) != 0 ? polynomial : 0);
}

template <typename Word>
constexpr Word kOne = Word{1} << (8 * sizeof(Word) - 1);  // the polynomial 1, reversed

template <typename Word>
constexpr Word multiply(Word a, Word b, Word polynomial) {
  Word product = 0;
  for (Word bit = kOne<Word>; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = times_x(b, polynomial);
  }
  return product;
}

// x^exponent modulo the polynomial.
template <typename Word>
constexpr Word power_of_x(uint64_t exponent, Word polynomial) {
  Word result = kOne<Word>, square = kOne<Word> >> 1;
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = multiply(result, square, polynomial);
    square = multiply(square, square, polynomial);
  }
  return result;
}

// The inversions at both ends cancel out: appending n bytes multiplies the first check by x^(8n).
// x^8 is squared instead of x, for 8n may not fit in 64 bits.
template <typename Word>
Word combine(Word first, Word second, uint64_t second_size_bytes, Word polynomial) {
  Word shift = kOne<Word>, square = power_of_x<Word>(8, polynomial);
  for (uint64_t n = second_size_bytes; n != 0; n >>= 1) {
    if ((n & 1) != 0) shift = multiply(shift, square, polynomial);
    square = multiply(square, square, polynomial);
  }
  return multiply(first, shift, polynomial) ^ second;
}

template <typename Word>
using SlicingTables = std::array<std::array<Word, 256>, 8>;

// tables[k][b]: the state after byte b and k zero bytes ("slicing by eight", Kounavis and Berry).
template <typename Word>
constexpr SlicingTables<Word> slicing_tables(Word polynomial) {
  SlicingTables<Word> tables{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    Word state = byte;
    for (int bit = 0; bit < 8; ++bit) state = times_x(state, polynomial);
    tables[0][byte] = state;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xFF];
  return tables;
}

template <typename Word, Word polynomial>
Word extend_by_table(Word state, const uint8_t* data, size_t size_bytes) {
  static constexpr SlicingTables<Word> kTables = slicing_tables(polynomial);
  for (; size_bytes >= 8; data += 8, size_bytes -= 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);  // little-endian, as every platform we build for
    word ^= state;
    state = 0;
    for (size_t i = 0; i < 8; ++i) state ^= kTables[7 - i][word >> (8 * i) & 0xFF];
  }
  for (; size_bytes > 0; ++data, --size_bytes)
    state = (state >> 8) ^ kTables[0][(state ^ *data) & 0xFF];
  return state;
}

#if defined(__x86_64__)

// Folding by carry-less multiplication (Gopal et al., "Fast CRC computation for generic polynomials
// using PCLMULQDQ", Intel 2009), for reflected bits: bit i of a 128-bit register stands for
// x^(127-i), so its low half holds the higher powers, and a product of two halves comes out
// multiplied by x. To move a register on by D bits, its halves are therefore multiplied by
// x^(D+63) and x^(D-1) modulo the polynomial, as 64-bit reversed words.
template <typename Word, Word polynomial>
constexpr uint64_t fold_factor(uint64_t exponent) {
  return uint64_t{power_of_x<Word>(exponent, polynomial)} << (64 - 8 * sizeof(Word));
}

__attribute__((target("pclmul,sse4.1"))) inline __m128i fold(__m128i folded, __m128i factors,
                                                             __m128i next) {
  const __m128i high = _mm_clmulepi64_si128(folded, factors, 0x00);
  const __m128i low = _mm_clmulepi64_si128(folded, factors, 0x11);
  return _mm_xor_si128(_mm_xor_si128(high, low), next);
}

__attribute__((target("pclmul,sse4.1"))) inline __m128i load(const uint8_t* data) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
}

constexpr size_t kLanes = 8;  // independent registers: the multiplier's latency over its throughput
constexpr size_t kStrideBytes = 16 * kLanes;

template <typename Word, Word polynomial>
__attribute__((target("pclmul,sse4.1"))) Word extend_by_folding(Word state, const uint8_t* data,
                                                                size_t size_bytes) {
  static constexpr uint64_t kStride[2] = {fold_factor<Word, polynomial>(8 * kStrideBytes + 63),
                                          fold_factor<Word, polynomial>(8 * kStrideBytes - 1)};
  static constexpr uint64_t kOneLane[2] = {fold_factor<Word, polynomial>(128 + 63),
                                           fold_factor<Word, polynomial>(128 - 1)};
  const __m128i stride = load(reinterpret_cast<const uint8_t*>(kStride));
  const __m128i one_lane = load(reinterpret_cast<const uint8_t*>(kOneLane));

  __m128i lanes[kLanes];
  for (size_t i = 0; i < kLanes; ++i) lanes[i] = load(data + 16 * i);
  lanes[0] = _mm_xor_si128(lanes[0], _mm_set_epi64x(0, static_cast<int64_t>(uint64_t{state})));
  data += kStrideBytes, size_bytes -= kStrideBytes;
  for (; size_bytes >= kStrideBytes; data += kStrideBytes, size_bytes -= kStrideBytes)
    for (size_t i = 0; i < kLanes; ++i) lanes[i] = fold(lanes[i], stride, load(data + 16 * i));

  __m128i folded = lanes[0];
  for (size_t i = 1; i < kLanes; ++i) folded = fold(folded, one_lane, lanes[i]);
  for (; size_bytes >= 16; data += 16, size_bytes -= 16)
    folded = fold(folded, one_lane, load(data));
  // The register is now a message of 16 bytes with the same remainder as all that went before.
  uint8_t rest[16];
  std::memcpy(rest, &folded, 16);
  return extend_by_table<Word, polynomial>(extend_by_table<Word, polynomial>(0, rest, 16), data,
                                           size_bytes);
}

template <typename Word, Word polynomial>
Word extend(Word state, const uint8_t* data, size_t size_bytes) {
  static const bool has_multiplication = __builtin_cpu_supports("pclmul");
  return has_multiplication && size_bytes >= 2 * kStrideBytes
             ? extend_by_folding<Word, polynomial>(state, data, size_bytes)
             : extend_by_table<Word, polynomial>(state, data, size_bytes);
}

#else

template <typename Word, Word polynomial>
Word extend(Word state, const uint8_t* data, size_t size_bytes) {
  return extend_by_table<Word, polynomial>(state, data, size_bytes);
}

#endif

template <typename Word, Word polynomial>
Word checked(std::span<const std::byte> bytes, Word previous) {
  return ~extend<Word, polynomial>(~previous, reinterpret_cast<const uint8_t*>(bytes.data()),
                                   bytes.size());
}

}  // namespace

uint32_t crc32(std::span<const std::byte> bytes, uint32_t previous) {
  return checked<uint32_t, kCrc32Polynomial>(bytes, previous);
}

uint64_t crc64_nvme(std::span<const std::byte> bytes, uint64_t previous) {
  return checked<uint64_t, kCrc64NvmePolynomial>(bytes, previous);
}

uint32_t crc32_combine(uint32_t first, uint32_t second, uint64_t second_size_bytes) {
  return combine(first, second, second_size_bytes, kCrc32Polynomial);
}

uint32_t crc32c_combine(uint32_t first, uint32_t second, uint64_t second_size_bytes) {
  return combine(first, second, second_size_bytes, kCrc32cPolynomial);
}

uint64_t crc64_nvme_combine(uint64_t first, uint64_t second, uint64_t second_size_bytes) {
  return combine(first, second, second_size_bytes, kCrc64NvmePolynomial);
}

}  // namespace yard
