// The little of Unicode that a tokenizer needs: UTF-8, categories, lower case, NFC.
//
// Pure functions, callable from any thread. Data: Unicode 14 (see unicode_tables.cc); characters
// assigned later count as neither letter nor number.
#pragma once

#include <string>
#include <string_view>

namespace yard::text {

// Bytes that are not UTF-8 become U+FFFD, one per byte.
std::u32string from_utf8(std::string_view bytes);
std::string to_utf8(std::u32string_view text);
void append_utf8(char32_t codepoint, std::string& out);

bool is_letter(char32_t codepoint);  // general category L*
bool is_number(char32_t codepoint);  // general category N*
bool is_space(char32_t codepoint);   // property White_Space

// Each character by itself, without regard to its neighbours (a final sigma stays a sigma).
std::u32string to_lower(std::u32string_view text);
// Normalization Form C (Unicode Standard Annex #15).
std::u32string to_nfc(std::u32string_view text);

}  // namespace yard::text
