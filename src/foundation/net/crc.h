// The cyclic redundancy checks that S3 accepts besides CRC-32C (base/crc32c.h), with the CPU's
// carry-less multiplication where it has one, and the joining of two checks into one. Pure
// functions.
//
// Each is the reflected kind, begun and ended with all bits inverted, hence
//   f(a + b) == f(b, f(a)) == combine(f(a), f(b), size of b).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace yard {

// CRC-32 of zlib and Ethernet (ISO 3309, polynomial 0x04C11DB7): of the bytes behind `previous`
// followed by `bytes`; start with 0.
uint32_t crc32(std::span<const std::byte> bytes, uint32_t previous = 0);
// CRC-64/NVME (NVM Express command set, polynomial 0xAD93D23594C93659).
uint64_t crc64_nvme(std::span<const std::byte> bytes, uint64_t previous = 0);

// The check of two runs of bytes set end to end, of which the second is `second_size_bytes` long.
uint32_t crc32_combine(uint32_t first, uint32_t second, uint64_t second_size_bytes);
uint32_t crc32c_combine(uint32_t first, uint32_t second, uint64_t second_size_bytes);
uint64_t crc64_nvme_combine(uint64_t first, uint64_t second, uint64_t second_size_bytes);

}  // namespace yard
