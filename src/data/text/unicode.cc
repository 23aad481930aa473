#include "text/unicode.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <span>

#include "text/unicode_tables_internal.h"

namespace yard::text {
namespace {

constexpr char32_t kReplacement = 0xfffd;

// The range that holds `codepoint`, or null.
template <typename R>
const R* find_range(std::span<const R> ranges, char32_t codepoint) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), codepoint,
                                      [](char32_t c, const R& range) { return c < range.first; });
  if (after == ranges.begin()) return nullptr;
  const R& range = *std::prev(after);
  return codepoint <= range.last ? &range : nullptr;
}

uint8_t combining_class(char32_t codepoint) {
  const auto* range =
      find_range(std::span(tables::kCombiningClasses, tables::kCombiningClassesCount), codepoint);
  return range == nullptr ? 0 : range->combining_class;
}

// Korean syllables are composed by arithmetic (Unicode Standard, section 3.12).
constexpr char32_t kSyllableBase = 0xac00;
constexpr char32_t kLeadBase = 0x1100;
constexpr char32_t kVowelBase = 0x1161;
constexpr char32_t kTrailBase = 0x11a7;
constexpr char32_t kLeadCount = 19;
constexpr char32_t kVowelCount = 21;
constexpr char32_t kTrailCount = 28;
constexpr char32_t kSyllableCount = kLeadCount * kVowelCount * kTrailCount;

bool within(char32_t codepoint, char32_t base, char32_t count) {
  return codepoint >= base && codepoint - base < count;
}

void append_decomposed(char32_t codepoint, std::u32string& out) {
  if (within(codepoint, kSyllableBase, kSyllableCount)) {
    const char32_t index = codepoint - kSyllableBase;
    out += kLeadBase + index / (kVowelCount * kTrailCount);
    out += kVowelBase + index / kTrailCount % kVowelCount;
    if (index % kTrailCount != 0) out += kTrailBase + index % kTrailCount;
    return;
  }
  const std::span table(tables::kDecompositions, tables::kDecompositionsCount);
  const auto entry =
      std::lower_bound(table.begin(), table.end(), codepoint,
                       [](const tables::Decomposition& d, char32_t c) { return d.composed < c; });
  if (entry == table.end() || entry->composed != codepoint) {
    out += codepoint;
    return;
  }
  append_decomposed(entry->first, out);  // parts may have parts; Unicode bounds the depth by four
  if (entry->second != 0) append_decomposed(entry->second, out);
}

// Marks of a base character are sorted by their class; equal classes keep their order.
void sort_marks(std::u32string& text) {
  auto begin = text.begin();
  while (begin != text.end()) {
    if (combining_class(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end =
        std::find_if(begin, text.end(), [](char32_t c) { return combining_class(c) == 0; });
    std::stable_sort(
        begin, end, [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

using Compositions = std::map<std::pair<char32_t, char32_t>, char32_t>;

Compositions make_compositions() {
  const std::span excluded(tables::kNotComposed, tables::kNotComposedCount);
  Compositions compositions;
  for (const auto& entry : std::span(tables::kDecompositions, tables::kDecompositionsCount)) {
    if (entry.second == 0) continue;
    if (std::binary_search(excluded.begin(), excluded.end(), entry.composed)) continue;
    compositions[{entry.first, entry.second}] = entry.composed;
  }
  return compositions;
}

// The character that the two make, or 0.
char32_t composed(char32_t first, char32_t second) {
  if (within(first, kLeadBase, kLeadCount) && within(second, kVowelBase, kVowelCount)) {
    return kSyllableBase +
           ((first - kLeadBase) * kVowelCount + (second - kVowelBase)) * kTrailCount;
  }
  const bool syllable_without_trail =
      within(first, kSyllableBase, kSyllableCount) && (first - kSyllableBase) % kTrailCount == 0;
  if (syllable_without_trail && within(second, kTrailBase + 1, kTrailCount - 1))
    return first + (second - kTrailBase);
  static const Compositions compositions = make_compositions();
  const auto entry = compositions.find({first, second});
  return entry == compositions.end() ? 0 : entry->second;
}

// Joins each mark with the last starter unless a mark of the same or a higher class, or another
// starter, lies between (Unicode Standard, D117).
std::u32string compose(std::u32string_view text) {
  constexpr size_t kNone = SIZE_MAX;
  std::u32string out;
  size_t starter = kNone;
  int last_class = -1;  // of the characters kept since the starter; -1: none
  for (const char32_t c : text) {
    const int own_class = combining_class(c);
    if (starter != kNone && last_class < own_class) {
      if (const char32_t whole = composed(out[starter], c); whole != 0) {
        out[starter] = whole;
        continue;
      }
    }
    if (own_class == 0) starter = out.size();
    last_class = own_class == 0 ? -1 : own_class;
    out += c;
  }
  return out;
}

char32_t lower(char32_t codepoint) {
  if (codepoint < 0x80)
    return codepoint >= 'A' && codepoint <= 'Z' ? codepoint + ('a' - 'A') : codepoint;
  const auto* range = find_range(std::span(tables::kLowerCase, tables::kLowerCaseCount), codepoint);
  if (range == nullptr || (codepoint - range->first) % range->stride != 0) return codepoint;
  return char32_t(int32_t(codepoint) + range->delta);
}

// The length in bytes of a sequence that starts with `lead`; 0 when none does.
size_t sequence_size(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead < 0xe0) return 2;
  if (lead >= 0xe0 && lead < 0xf0) return 3;
  if (lead >= 0xf0 && lead < 0xf5) return 4;
  return 0;
}

// The character at the start of `bytes` and its size, or U+FFFD and 1.
std::pair<char32_t, size_t> decode_one(std::string_view bytes) {
  const uint8_t lead = uint8_t(bytes[0]);
  const size_t size = sequence_size(lead);
  if (size == 1) return {lead, 1};
  if (size == 0 || size > bytes.size()) return {kReplacement, 1};
  char32_t codepoint = lead & (0x7f >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((uint8_t(bytes[i]) & 0xc0) != 0x80) return {kReplacement, 1};
    codepoint = codepoint << 6 | (uint8_t(bytes[i]) & 0x3f);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = codepoint >= 0xd800 && codepoint < 0xe000;
  if (codepoint < kSmallest[size] || codepoint > 0x10ffff || surrogate) return {kReplacement, 1};
  return {codepoint, size};
}

}  // namespace

std::u32string from_utf8(std::string_view bytes) {
  std::u32string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const auto [codepoint, size] = decode_one(bytes);
    text += codepoint;
    bytes.remove_prefix(size);
  }
  return text;
}

void append_utf8(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += char(c);
  } else if (c < 0x800) {
    out += char(0xc0 | c >> 6);
    out += char(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    out += char(0xe0 | c >> 12);
    out += char(0x80 | (c >> 6 & 0x3f));
    out += char(0x80 | (c & 0x3f));
  } else {
    out += char(0xf0 | c >> 18);
    out += char(0x80 | (c >> 12 & 0x3f));
    out += char(0x80 | (c >> 6 & 0x3f));
    out += char(0x80 | (c & 0x3f));
  }
}

std::string to_utf8(std::u32string_view text) {
  std::string out;
  for (const char32_t c : text) append_utf8(c, out);
  return out;
}

bool is_letter(char32_t codepoint) {
  return find_range(std::span(tables::kLetters, tables::kLettersCount), codepoint) != nullptr;
}

bool is_number(char32_t codepoint) {
  return find_range(std::span(tables::kNumbers, tables::kNumbersCount), codepoint) != nullptr;
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

std::u32string to_lower(std::u32string_view text) {
  constexpr char32_t kDottedCapitalI = 0x130;  // the one character whose lower case is two
  std::u32string out;
  for (const char32_t c : text) {
    if (c == kDottedCapitalI) {
      out += U"i\u0307";
    } else {
      out += lower(c);
    }
  }
  return out;
}

std::u32string to_nfc(std::u32string_view text) {
  constexpr char32_t kFirstThatMayChange = 0x300;  // below it every character is its own NFC
  if (std::all_of(text.begin(), text.end(), [](char32_t c) { return c < kFirstThatMayChange; }))
    return std::u32string(text);
  std::u32string decomposed;
  for (const char32_t c : text) append_decomposed(c, decomposed);
  sort_marks(decomposed);
  return compose(decomposed);
}

}  // namespace yard::text
