#include "net/uri.h"

#include <gtest/gtest.h>

namespace yard {
namespace {

TEST(PercentEncode, KeepsTheUnreservedSetOnly) {
  EXPECT_EQ(percent_encode("AZaz09-._~"), "AZaz09-._~");
  EXPECT_EQ(percent_encode(" +/*%=&?#\"'()!$,:;@[]"),
            "%20%2B%2F%2A%25%3D%26%3F%23%22%27%28%29%21%24%2C%3A%3B%40%5B%5D");
  EXPECT_EQ(percent_encode("ü漢"), "%C3%BC%E6%BC%A2");
  EXPECT_EQ(percent_encode(std::string("\0\x7F\xFF", 3)), "%00%7F%FF");
  EXPECT_EQ(percent_encode_path("a/b c//+"), "a/b%20c//%2B");
}

TEST(PercentDecode, GivesBackEveryByte) {
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  EXPECT_EQ(*percent_decode(percent_encode(all)), all);
  EXPECT_EQ(*percent_decode(percent_encode_path(all)), all);
  EXPECT_EQ(*percent_decode("a+b%2b%2B"), "a+b++");
}

TEST(PercentDecode, RefusesHalfASequence) {
  for (const std::string text : {"%", "%4", "a%", "%zz", "%4g", "%%41", "% 1", "%-1"}) {
    const auto decoded = percent_decode(text);
    ASSERT_FALSE(decoded) << text;
    EXPECT_EQ(decoded.error().code, Code::kInvalidArgument);
  }
}

TEST(ParseQuery, KeepsOrderDuplicatesAndEmptyValues) {
  const std::vector<QueryPair> wanted = {{"b", "2"}, {"a", "1"}, {"b", ""}, {"b", "2"}, {"", "x"}};
  EXPECT_EQ(*parse_query("b=2&a=1&b&&b=2&=x"), wanted);
  EXPECT_EQ(parse_query("")->size(), 0u);
  EXPECT_EQ(parse_query("&&")->size(), 0u);
}

TEST(ParseQuery, OnlyTheFirstEqualsSignSeparatesAndPlusIsPlus) {
  const std::vector<QueryPair> wanted = {{"a", "b=c+d"}, {"k=&", "v "}};
  EXPECT_EQ(*parse_query("a=b=c+d&k%3D%26=v%20"), wanted);
}

TEST(ParseQuery, RefusesWhatCannotBeDecoded) {
  EXPECT_FALSE(parse_query("a=%"));
  EXPECT_FALSE(parse_query("%f=1"));
  EXPECT_FALSE(parse_query("a=%2&b=2"));
}

TEST(FormatQuery, IsReadBackAsItWas) {
  const std::vector<QueryPair> query = {{"a b", "c&d=e+f"}, {"acl", ""}, {"ü", "%"}};
  EXPECT_EQ(format_query(query), "a%20b=c%26d%3De%2Bf&acl=&%C3%BC=%25");
  EXPECT_EQ(*parse_query(format_query(query)), query);
}

TEST(SplitTarget, Forms) {
  const auto origin = split_target("/a%20b//c?x=1?2&y");
  ASSERT_TRUE(origin);
  EXPECT_EQ(origin->raw_path, "/a%20b//c");
  EXPECT_EQ(origin->raw_query, "x=1?2&y");
  EXPECT_EQ(origin->authority, "");

  const auto absolute = split_target("http://host:80/p?q");
  ASSERT_TRUE(absolute);
  EXPECT_EQ(absolute->raw_path, "/p");
  EXPECT_EQ(absolute->raw_query, "q");
  EXPECT_EQ(absolute->authority, "host:80");

  EXPECT_EQ(split_target("https://host")->raw_path, "/");
  EXPECT_EQ(split_target("http://host?q")->raw_path, "/");
  EXPECT_EQ(split_target("http://host?q")->raw_query, "q");
  EXPECT_EQ(split_target("*")->raw_path, "*");
  EXPECT_EQ(split_target("/?")->raw_query, "");
  EXPECT_EQ(split_target("/\xC3\xBC")->raw_path, "/\xC3\xBC");
}

TEST(SplitTarget, RefusesOthers) {
  for (const std::string text : {"", "a", "?a", "**", "/a b", "/a\tb", "/a\r\n", "/a#b", "ftp://h/",
                                 "http://", "http:///a", "http:/a", "host:443"})
    EXPECT_FALSE(split_target(text)) << text;
  EXPECT_FALSE(split_target(std::string("/a\0b", 4)));
  EXPECT_FALSE(split_target("/a\x7F"));
}

TEST(NormalizePath, LeavesNoDotsAndNoEmptyParts) {
  const std::pair<std::string, std::string> cases[] = {{"/", "/"},
                                                       {"", "/"},
                                                       {"/a", "/a"},
                                                       {"/a/", "/a/"},
                                                       {"//a//b//", "/a/b/"},
                                                       {"/./a/./", "/a/"},
                                                       {"/a/../b", "/b"},
                                                       {"/../../a", "/a"},
                                                       {"/a/..", "/"},
                                                       {"/a/../", "/"},
                                                       {"/..", "/"},
                                                       {"/a/...", "/a/..."},
                                                       {"/%2E%2E/a", "/%2E%2E/a"}};
  for (const auto& [path, normal] : cases) EXPECT_EQ(normalize_path(path), normal) << path;
}

}  // namespace
}  // namespace yard
