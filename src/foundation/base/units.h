// Sizes and durations as people write them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace yard {

// "1GiB", "512MiB", "64k" (KiB, MiB, GiB, TiB powers of 1024; kB, MB, GB, TB powers of 1000; no
// unit: bytes). kInvalidArgument for anything else, negative or over 2^63.
Result<uint64_t> parse_size_bytes(std::string_view text);
// "1.5 GiB".
std::string format_size_bytes(uint64_t size_bytes);
// "90s", "2m", "1h30m", "250ms".
Result<std::chrono::milliseconds> parse_duration(std::string_view text);
// "1h02m", "3m20s", "4.2s".
std::string format_duration(std::chrono::nanoseconds duration);

}  // namespace yard
