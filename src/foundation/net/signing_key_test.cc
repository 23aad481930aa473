#include "net/signing_key.h"

#include <gtest/gtest.h>

#include <string>

#include "net/encoding.h"

namespace yard {
namespace {

TEST(HmacSha256, VectorsOfRfc4231) {
  const auto hex = [](std::string_view key, std::string_view text) {
    return hex_encode(hmac_sha256(bytes_of(key), text));
  };
  EXPECT_EQ(hex("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(std::string(131, '\xAA'), "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(SigningKey, TheKeyOfAwssDocumentation) {
  // "Signature Calculations ... Examples": the example account's key signs the text of its first
  // example.
  const SigningKey key =
      SigningKey::derive("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "20130524", "us-east-1", "s3");
  EXPECT_EQ(key.sign("AWS4-HMAC-SHA256\n20130524T000000Z\n20130524/us-east-1/s3/aws4_request\n"
                     "7344ae5b7ee6c3e7e6b0fe0640412a37625d1fbfff95c48bbb2dc43964946972"),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST(SigningKeyCache, HoldsNoMoreKeysThanItMay) {
  SigningKeyCache cache(4);
  const std::string first = cache.get("secret", "20130524", "r0", "s3").sign("text");
  for (int i = 0; i < 100; ++i) {
    cache.get("secret", "20130524", "r" + std::to_string(i), "s3");
    EXPECT_LE(cache.key_count(), 4u);
  }
  EXPECT_EQ(cache.get("secret", "20130524", "r0", "s3").sign("text"), first);
  EXPECT_NE(cache.get("other", "20130524", "r0", "s3").sign("text"), first);
}

}  // namespace
}  // namespace yard
