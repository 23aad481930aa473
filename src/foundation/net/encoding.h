// Hexadecimal and base64 (RFC 4648): how headers carry digests. Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace yard {

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string hex_encode(std::span<const std::byte> bytes);  // lower case
// Nothing for an odd length or another character; both cases are read.
std::optional<std::string> hex_decode(std::string_view text);

std::string base64_encode(std::span<const std::byte> bytes);  // padded
// Nothing for a wrong length, padding or character, or bits after the last byte that are not zero:
// each string of bytes has one text only.
std::optional<std::string> base64_decode(std::string_view text);

}  // namespace yard
