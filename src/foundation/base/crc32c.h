// CRC-32C (Castagnoli, RFC 3720 appendix B.4), with the CPU's instruction where it has one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace yard {

// The checksum of `previous` bytes followed by `bytes`; start with 0.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t previous = 0);

}  // namespace yard
