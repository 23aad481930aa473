#include "base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

namespace yard {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // 0x1EDC6F41, bits reversed

constexpr std::array<uint32_t, 256> first_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t state = byte;
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) ? kPolynomial : 0);
    table[byte] = state;
  }
  return table;
}

// tables[k][b]: the state after byte b and k zero bytes ("slicing by eight", Kounavis and Berry).
constexpr std::array<std::array<uint32_t, 256>, 8> slicing_tables() {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  tables[0] = first_table();
  for (size_t k = 1; k < 8; ++k)
    for (size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xFF];
  return tables;
}

constexpr auto kTables = slicing_tables();

constexpr uint32_t step(uint32_t state, uint8_t byte) {
  return (state >> 8) ^ kTables[0][(state ^ byte) & 0xFF];
}

// All functions below work on the inverted state; crc32c() inverts at both ends.
uint32_t extend_by_table(uint32_t state, const uint8_t* data, size_t size_bytes) {
  for (; size_bytes >= 8; data += 8, size_bytes -= 8) {
    uint32_t words[2];
    std::memcpy(words, data, 8);  // little-endian, as every platform we build for
    words[0] ^= state;
    state = kTables[7][words[0] & 0xFF] ^ kTables[6][words[0] >> 8 & 0xFF] ^
            kTables[5][words[0] >> 16 & 0xFF] ^ kTables[4][words[0] >> 24] ^
            kTables[3][words[1] & 0xFF] ^ kTables[2][words[1] >> 8 & 0xFF] ^
            kTables[1][words[1] >> 16 & 0xFF] ^ kTables[0][words[1] >> 24];
  }
  for (; size_bytes > 0; ++data, --size_bytes) state = step(state, *data);
  return state;
}

#if defined(__x86_64__)

// The instruction has a latency of three cycles and a throughput of one: three independent runs,
// joined afterwards, keep it busy. Joining costs two table look-ups of four per block.
constexpr size_t kRunBytes = 1024;

// Advances a state over kRunBytes zero bytes; linear in the state, hence a table per byte of it.
class ZeroRun {
 public:
  ZeroRun() {
    for (unsigned bit = 0; bit < 32; ++bit) {
      uint32_t state = uint32_t{1} << bit;
      for (size_t i = 0; i < kRunBytes; ++i) state = step(state, 0);
      auto& table = tables_[bit / 8];
      const uint32_t weight = uint32_t{1} << (bit % 8);
      for (uint32_t byte = 0; byte < 256; ++byte)
        if (byte & weight) table[byte] ^= state;
    }
  }

  uint32_t operator()(uint32_t state) const {
    return tables_[0][state & 0xFF] ^ tables_[1][state >> 8 & 0xFF] ^
           tables_[2][state >> 16 & 0xFF] ^ tables_[3][state >> 24];
  }

 private:
  std::array<std::array<uint32_t, 256>, 4> tables_{};
};

uint64_t load_word(const uint8_t* data) {
  uint64_t word;
  std::memcpy(&word, data, 8);
  return word;
}

__attribute__((target("sse4.2"))) uint32_t extend_by_instruction(uint32_t state,
                                                                 const uint8_t* data,
                                                                 size_t size_bytes) {
  static const ZeroRun zero_run;
  for (; size_bytes >= 3 * kRunBytes; data += 3 * kRunBytes, size_bytes -= 3 * kRunBytes) {
    uint64_t a = state, b = 0, c = 0;
    for (size_t i = 0; i < kRunBytes; i += 8) {
      a = _mm_crc32_u64(a, load_word(data + i));
      b = _mm_crc32_u64(b, load_word(data + kRunBytes + i));
      c = _mm_crc32_u64(c, load_word(data + 2 * kRunBytes + i));
    }
    state = zero_run(zero_run(static_cast<uint32_t>(a)) ^ static_cast<uint32_t>(b)) ^
            static_cast<uint32_t>(c);
  }
  uint64_t wide = state;
  for (; size_bytes >= 8; data += 8, size_bytes -= 8) wide = _mm_crc32_u64(wide, load_word(data));
  state = static_cast<uint32_t>(wide);
  for (; size_bytes > 0; ++data, --size_bytes) state = _mm_crc32_u8(state, *data);
  return state;
}

// Folding (Gopal et al. 2009, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ"):
// modulo the polynomial, a block of 128 bits equals itself times x^d put d bits further on. So 256
// bytes are added to the 256 before them, and what is left in the end has the checksum of all.
// Bits are reflected: bit 0 of a block is its highest power.

// Advances a block by `bits`: its first half by x^(bits + 64), its second by x^bits. The product of
// two reflected numbers is one power short, hence the 1.
struct FoldBy {
  explicit FoldBy(unsigned bits) : first(power(bits + 64 - 1)), second(power(bits - 1)) {}
  uint64_t first, second;

 private:
  static uint64_t power(unsigned exponent) {
    uint32_t value = 0x80000000;  // x^0
    for (; exponent > 0; --exponent) value = (value >> 1) ^ ((value & 1) ? kPolynomial : 0);
    return uint64_t{value} << 32;
  }
};

#define YARD_FOLDING __attribute__((target("sse4.2,pclmul,avx512f,vpclmulqdq")))

YARD_FOLDING __m512i wide_of(const FoldBy& by) {
  const auto first = static_cast<int64_t>(by.first), second = static_cast<int64_t>(by.second);
  return _mm512_set4_epi64(second, first, second, first);
}

YARD_FOLDING __m512i fold(__m512i block, __m512i by, __m512i next) {
  // 0x96: the exclusive or of all three.
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(block, by, 0x00),
                                   _mm512_clmulepi64_epi128(block, by, 0x11), next, 0x96);
}

constexpr size_t kFoldBytesMin = 512;

// At least kFoldBytesMin; what is left over by the instruction.
YARD_FOLDING uint32_t extend_by_folding(uint32_t state, const uint8_t* data, size_t size_bytes) {
  static const FoldBy by_256_bytes(2048), by_64_bytes(512);
  const auto load = [&](size_t at) YARD_FOLDING { return _mm512_loadu_si512(data + 64 * at); };
  __m512i a = _mm512_xor_si512(
      load(0), _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int32_t>(state))));
  __m512i b = load(1), c = load(2), d = load(3);
  data += 256, size_bytes -= 256;
  __m512i by = wide_of(by_256_bytes);
  for (; size_bytes >= 256; data += 256, size_bytes -= 256) {
    a = fold(a, by, load(0));
    b = fold(b, by, load(1));
    c = fold(c, by, load(2));
    d = fold(d, by, load(3));
  }
  by = wide_of(by_64_bytes);
  d = fold(fold(fold(a, by, b), by, c), by, d);
  for (; size_bytes >= 64; data += 64, size_bytes -= 64) d = fold(d, by, load(0));
  alignas(64) std::array<uint8_t, 64> bytes;
  _mm512_store_si512(bytes.data(), d);
  return extend_by_instruction(extend_by_instruction(0, bytes.data(), bytes.size()), data,
                               size_bytes);
}

#undef YARD_FOLDING

uint32_t extend(uint32_t state, const uint8_t* data, size_t size_bytes) {
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  static const bool has_folding =
      has_instruction && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
  if (has_folding && size_bytes >= kFoldBytesMin) return extend_by_folding(state, data, size_bytes);
  return has_instruction ? extend_by_instruction(state, data, size_bytes)
                         : extend_by_table(state, data, size_bytes);
}

#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)

uint32_t extend(uint32_t state, const uint8_t* data, size_t size_bytes) {
  for (; size_bytes >= 8; data += 8, size_bytes -= 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    state = __crc32cd(state, word);
  }
  return extend_by_table(state, data, size_bytes);
}

#else

uint32_t extend(uint32_t state, const uint8_t* data, size_t size_bytes) {
  return extend_by_table(state, data, size_bytes);
}

#endif

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t previous) {
  return ~extend(~previous, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace yard
