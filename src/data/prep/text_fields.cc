#include "prep/text_fields.h"

#include "text/unicode.h"

namespace yard::prep {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0);
}

// from_utf8() gives U+FFFD for a character that was written as such, too.
bool has_bad_bytes(std::u32string_view text, std::string_view bytes) {
  size_t replaced = 0;
  for (const char32_t c : text) replaced += size_t(c == kReplacement);
  size_t written = 0;
  for (size_t at = bytes.find("\xEF\xBF\xBD"); at != bytes.npos;
       at = bytes.find("\xEF\xBF\xBD", at + 3))
    ++written;
  return replaced > written;
}

}  // namespace

CleanText clean_text(std::string_view bytes, size_t bytes_max) {
  if (bytes.starts_with("\xEF\xBB\xBF")) bytes.remove_prefix(3);
  const std::u32string text = text::from_utf8(bytes);
  CleanText clean;
  clean.is_repaired = bytes.find('\0') != bytes.npos || has_bad_bytes(text, bytes);
  bool wants_space = false;
  for (const char32_t c : text) {
    if (text::is_space(c)) {
      wants_space = !clean.text.empty();
      continue;
    }
    if (is_control(c)) continue;
    std::string next = wants_space ? " " : "";
    wants_space = false;
    text::append_utf8(c, next);
    if (clean.text.size() + next.size() > bytes_max) break;
    clean.text += next;
  }
  return clean;
}

}  // namespace yard::prep
