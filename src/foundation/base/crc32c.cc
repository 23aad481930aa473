#include "base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

namespace yard {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // reflected

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    table[i] = value;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = make_table();

[[maybe_unused]] uint32_t update_by_table(uint32_t crc, const std::byte* data, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint32_t>(data[i])) & 0xFF];
  }
  return crc;
}

#if defined(__x86_64__)
// Multiplying a CRC by x^(8 * kLane) modulo the polynomial, a byte of the CRC at a time: what
// appending kLane zero bytes does to it. Lets three independent streams hide the latency of crc32.
constexpr size_t kLane = 1024;

std::array<std::array<uint32_t, 256>, 4> make_shift_tables() {
  std::array<uint32_t, 32> column{};  // the image of each bit
  for (uint32_t bit = 0; bit < 32; ++bit) {
    uint32_t crc = uint32_t{1} << bit;
    for (size_t i = 0; i < kLane; ++i) crc = (crc >> 8) ^ kTable[crc & 0xFF];
    column[bit] = crc;
  }
  std::array<std::array<uint32_t, 256>, 4> tables{};
  for (uint32_t byte = 0; byte < 4; ++byte) {
    for (uint32_t value = 0; value < 256; ++value) {
      for (uint32_t bit = 0; bit < 8; ++bit) {
        if ((value >> bit & 1) != 0) tables[byte][value] ^= column[byte * 8 + bit];
      }
    }
  }
  return tables;
}

uint32_t shifted(const std::array<std::array<uint32_t, 256>, 4>& t, uint32_t crc) {
  return t[0][crc & 0xFF] ^ t[1][crc >> 8 & 0xFF] ^ t[2][crc >> 16 & 0xFF] ^ t[3][crc >> 24];
}

uint64_t load_u64(const std::byte* data) {
  uint64_t value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

__attribute__((target("sse4.2"))) uint32_t update_by_instruction(uint32_t crc32,
                                                                 const std::byte* data,
                                                                 size_t size) {
  static const auto kShift = make_shift_tables();
  while (size >= 3 * kLane) {
    uint64_t a = crc32, b = 0, c = 0;
    for (size_t i = 0; i < kLane; i += 8) {
      a = _mm_crc32_u64(a, load_u64(data + i));
      b = _mm_crc32_u64(b, load_u64(data + kLane + i));
      c = _mm_crc32_u64(c, load_u64(data + 2 * kLane + i));
    }
    const uint32_t ab = shifted(kShift, static_cast<uint32_t>(a)) ^ static_cast<uint32_t>(b);
    crc32 = shifted(kShift, ab) ^ static_cast<uint32_t>(c);
    data += 3 * kLane;
    size -= 3 * kLane;
  }
  uint64_t crc = crc32;
  for (; size >= 8; data += 8, size -= 8) crc = _mm_crc32_u64(crc, load_u64(data));
  for (; size > 0; ++data, --size) {
    crc = _mm_crc32_u8(static_cast<uint32_t>(crc), static_cast<uint8_t>(*data));
  }
  return static_cast<uint32_t>(crc);
}
#endif

uint32_t update(uint32_t crc, const std::byte* data, size_t size) {
#if defined(__x86_64__)
  static const bool kHasInstruction = __builtin_cpu_supports("sse4.2") != 0;
  return kHasInstruction ? update_by_instruction(crc, data, size)
                         : update_by_table(crc, data, size);
#elif defined(__ARM_FEATURE_CRC32)
  for (; size >= 8; data += 8, size -= 8) {
    uint64_t word;
    std::memcpy(&word, data, sizeof word);
    crc = __crc32cd(crc, word);
  }
  return update_by_table(crc, data, size);
#else
  return update_by_table(crc, data, size);
#endif
}

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t previous) {
  return ~update(~previous, bytes.data(), bytes.size());
}

}  // namespace yard
