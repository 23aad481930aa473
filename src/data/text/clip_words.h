// How CLIP cuts a text into words before byte-pair encoding.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace yard::text {

// The words of `text` in UTF-8: NFC, lower case, then split into English contractions ('s 't 're
// 've 'm 'll 'd), runs of letters, single numerals, and runs of everything else but white space,
// as transformers' CLIPTokenizer does. Pure; any bytes are taken (see from_utf8).
std::vector<std::string> clip_words(std::string_view text);

// The 256 printable characters that stand for the bytes, in byte order, and the order in which
// CLIP numbers them (GPT-2's byte-level alphabet).
struct ByteAlphabet {
  std::vector<std::string> symbols;  // of byte 0, 1, ...
  std::vector<int> bytes_in_order;   // the byte numbered first, second, ...
};
ByteAlphabet make_byte_alphabet();

// What is appended to a word's last symbol.
inline constexpr std::string_view kEndOfWord = "</w>";
inline constexpr std::string_view kStartOfText = "<|startoftext|>";
inline constexpr std::string_view kEndOfText = "<|endoftext|>";

}  // namespace yard::text
