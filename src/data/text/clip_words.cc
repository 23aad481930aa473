#include "text/clip_words.h"

#include <array>

#include "text/unicode.h"

namespace yard::text {
namespace {

constexpr std::array<std::u32string_view, 7> kContractions = {U"'s", U"'t",  U"'re", U"'ve",
                                                              U"'m", U"'ll", U"'d"};
// Lower case of a special token's text, written otherwise in the caption: "<|ENDOFTEXT|>".
constexpr std::array<std::u32string_view, 2> kLookAlikes = {U"<|startoftext|>", U"<|endoftext|>"};

bool is_other(char32_t c) {
  return !is_letter(c) && !is_number(c) && !is_space(c);
}

template <typename Predicate>
size_t run_size(std::u32string_view text, Predicate predicate) {
  size_t size = 0;
  while (size < text.size() && predicate(text[size])) ++size;
  return size;
}

// The size of the word at the start of `text`, which does not begin with white space.
size_t word_size(std::u32string_view text) {
  for (const std::u32string_view contraction : kContractions) {
    if (text.starts_with(contraction)) return contraction.size();
  }
  if (is_letter(text[0])) return run_size(text, is_letter);
  if (is_number(text[0])) return 1;
  return run_size(text, is_other);
}

void append_look_alike(std::u32string_view token, std::vector<std::string>& words) {
  words.emplace_back("<|");
  words.push_back(to_utf8(token.substr(2, token.size() - 4)));
  words.emplace_back("|>");
}

}  // namespace

std::vector<std::string> clip_words(std::string_view bytes) {
  const std::u32string text = to_lower(to_nfc(from_utf8(bytes)));
  std::vector<std::string> words;
  std::u32string_view rest = text;
  while (!rest.empty()) {
    if (is_space(rest[0])) {
      rest.remove_prefix(1);
      continue;
    }
    size_t size = 0;
    for (const std::u32string_view token : kLookAlikes) {
      if (!rest.starts_with(token)) continue;
      append_look_alike(token, words);
      size = token.size();
    }
    if (size == 0) {
      size = word_size(rest);
      words.push_back(to_utf8(rest.substr(0, size)));
    }
    rest.remove_prefix(size);
  }
  return words;
}

ByteAlphabet make_byte_alphabet() {
  const auto printable = [](int byte) {
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  };
  ByteAlphabet alphabet;
  std::vector<int> unprintable;
  for (int byte = 0; byte < 256; ++byte) {
    const bool own_symbol = printable(byte);
    std::string symbol;
    append_utf8(own_symbol ? char32_t(byte) : char32_t(256 + unprintable.size()), symbol);
    alphabet.symbols.push_back(std::move(symbol));
    (own_symbol ? alphabet.bytes_in_order : unprintable).push_back(byte);
  }
  alphabet.bytes_in_order.insert(alphabet.bytes_in_order.end(), unprintable.begin(),
                                 unprintable.end());
  return alphabet;
}

}  // namespace yard::text
