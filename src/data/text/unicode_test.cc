#include "text/unicode.h"

#include <gtest/gtest.h>

namespace yard::text {
namespace {

TEST(Utf8, EveryCharacterRoundTrips) {
  for (char32_t c = 0; c <= 0x10ffff; ++c) {
    if (c >= 0xd800 && c < 0xe000) continue;
    std::string bytes;
    append_utf8(c, bytes);
    ASSERT_EQ(from_utf8(bytes), std::u32string(1, c)) << uint32_t(c);
  }
}

TEST(Utf8, BytesThatAreNotUtf8BecomeReplacementCharacters) {
  EXPECT_EQ(from_utf8("a\xff"
                      "b"),
            U"a\ufffdb");
  EXPECT_EQ(from_utf8("\xc0\xaf"), U"\ufffd\ufffd");                 // overlong
  EXPECT_EQ(from_utf8("\xed\xa0\x80"), U"\ufffd\ufffd\ufffd");       // surrogate
  EXPECT_EQ(from_utf8("\xf4\x90\x80\x80").substr(0, 1), U"\ufffd");  // past U+10FFFF
  EXPECT_EQ(from_utf8("\xe2\x82"), U"\ufffd\ufffd");                 // cut short
}

TEST(Category, KnowsLettersNumbersAndSpaces) {
  for (const char32_t c : {U'a', U'Z', U'é', U'ß', U'中', U'ا', U'ª'}) EXPECT_TRUE(is_letter(c));
  for (const char32_t c : {U'0', U'½', U'²', U'Ⅷ', U'٣'}) EXPECT_TRUE(is_number(c));
  for (const char32_t c : {U' ', U'\t', U'\u00a0', U'\u3000', U'\u2028'}) EXPECT_TRUE(is_space(c));
  for (const char32_t c : {U'-', U'\U0001f34e', U'\u200d', U'\u0301', U'\u200b'}) {
    EXPECT_FALSE(is_letter(c) || is_number(c) || is_space(c)) << uint32_t(c);
  }
}

TEST(LowerCase, EachCharacterByItself) {
  EXPECT_EQ(to_lower(U"ÀÉÎ ABC Ω Ж Σ"), U"àéî abc ω ж σ");
  EXPECT_EQ(to_lower(U"ĀāĂă"), U"āāăă");  // neighbours of either case
  EXPECT_EQ(to_lower(U"İ"), U"i\u0307");
  EXPECT_EQ(to_lower(U"ẞ"), U"ß");
}

TEST(Nfc, ComposesReordersAndTakesApart) {
  EXPECT_EQ(to_nfc(U"e\u0301"), U"é");
  EXPECT_EQ(to_nfc(U"a\u0323\u0302"), U"ậ");
  EXPECT_EQ(to_nfc(U"a\u0302\u0323"), U"ậ");              // marks in the other order
  EXPECT_EQ(to_nfc(U"\u212b"), U"Å");                     // the ångström sign
  EXPECT_EQ(to_nfc(U"\u1112\u1161\u11ab"), U"한");        // arithmetic for Korean
  EXPECT_EQ(to_nfc(U"\u0958"), U"\u0915\u093c");          // excluded from composition
  EXPECT_EQ(to_nfc(U"a\u0305\u0301"), U"a\u0305\u0301");  // blocked by a mark of its class
  EXPECT_EQ(to_nfc(U"\u0301e"), U"\u0301e");              // a mark without a base stays
  EXPECT_EQ(to_nfc(U"a\u0315\u0300\u05ae\u0062"), U"\u00e0\u05ae\u0315\u0062");
}

}  // namespace
}  // namespace yard::text
