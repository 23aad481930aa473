#include "net/encoding.h"

#include <gtest/gtest.h>

#include <utility>

namespace yard {
namespace {

TEST(Base64, VectorsOfRfc4648BothWays) {
  const std::pair<std::string, std::string> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"},
                                                         {"\xFB\xFF", "+/8="}};
  for (const auto& [bytes, text] : vectors) {
    EXPECT_EQ(base64_encode(bytes_of(bytes)), text);
    EXPECT_EQ(base64_decode(text), bytes);
  }
}

TEST(Base64, OtherTextIsRefused) {
  for (const std::string text :
       {"Zg", "Zg=", "Zg===", "=", "====", "Z===", "Zm9v\n", "Zm-v", "Zm 9", "Zg==Zg==", "Z=g="})
    EXPECT_FALSE(base64_decode(text)) << text;
}

TEST(Base64, BitsAfterTheLastByteAreRefused) {
  EXPECT_TRUE(base64_decode("Zg=="));
  EXPECT_FALSE(base64_decode("Zh=="));
  EXPECT_FALSE(base64_decode("Zm9="));
}

TEST(Hex, BothWays) {
  EXPECT_EQ(hex_encode(bytes_of(std::string("\x00\x0F\xA5\xFF", 4))), "000fa5ff");
  EXPECT_EQ(hex_decode("000fA5fF"), std::string("\x00\x0F\xA5\xFF", 4));
  EXPECT_EQ(hex_decode(""), "");
}

TEST(Hex, OtherTextIsRefused) {
  for (const std::string text : {"0", "0g", "g0", " 0", "+1", "0x12"})
    EXPECT_FALSE(hex_decode(text)) << text;
}

}  // namespace
}  // namespace yard
