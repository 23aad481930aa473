#include "gateway/key_path.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "base/random.h"

namespace yard::gateway {
namespace {

// The key that an escaped path stands for.
std::string key_of(std::string_view path) {
  std::string key;
  for (;;) {
    const size_t slash = path.find('/');
    const auto name = parse_odd_name(path.substr(0, slash));
    if (!name) return "not an escaped path";
    key += name->text;
    if (name->kind == OddName::Kind::kFolder) key += '/';
    const bool is_last = name->kind == OddName::Kind::kLastPart;
    if (is_last != (slash == path.npos)) return "ends too early or too late";
    if (is_last) return key;
    path.remove_prefix(slash + 1);
  }
}

std::string random_key(uint64_t seed) {
  constexpr std::string_view kAlphabet("/a.~+=%\0\xc3\xff-", 11);
  const size_t size = 1 + random_below(seed % 3 == 0 ? kKeyBytesMax : 12, seed, 0, 0);
  std::string key;
  for (size_t i = 0; i < size; ++i) key += kAlphabet[random_below(kAlphabet.size(), seed, 1, i)];
  return key;
}

TEST(KeyPathTest, KeysThatAreOrdinaryPathsAreStoredAsThey) {
  for (const char* key :
       {"a", "a/b.txt", ".hidden", "a b", "\xC3\xBC/\xE6\x97\xA5", ".yard", "..a"})
    EXPECT_TRUE(is_plain_path(key)) << key;
  EXPECT_TRUE(is_plain_path(std::string(255, 'x') + "/" + std::string(255, 'y')));
}

TEST(KeyPathTest, KeysThatWouldLeaveTheFolderOrDoNotFitAreNoPaths) {
  for (const char* key : {"", "/", "a/", "/a", "a//b", ".", "..", "../a", "a/../b", "a/.", "\xff",
                          ".yard-staging", ".yard-staging/x"})
    EXPECT_FALSE(is_plain_path(key)) << key;
  EXPECT_FALSE(is_plain_path(std::string("a\0b", 3)));
  EXPECT_FALSE(is_plain_path(std::string(256, 'x')));
  EXPECT_FALSE(is_plain_path(std::string(1025, 'x')));
}

TEST(KeyPathTest, AnEscapedPathStandsForOneKeyAndFitsEveryFileSystem) {
  std::set<std::string> keys;
  std::set<std::string> paths;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const std::string key = random_key(seed);
    const std::string path = odd_path(key);
    ASSERT_EQ(key_of(path), key);
    ASSERT_LT(path.size(), 4096u);
    for (std::string_view rest = path; !rest.empty();) {
      const std::string_view name = rest.substr(0, rest.find('/'));
      ASSERT_TRUE(!name.empty() && name.size() <= kFileNameBytesMax && name != "." && name != "..");
      rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    }
    keys.insert(key);
    paths.insert(path);
  }
  EXPECT_EQ(keys.size(), paths.size());
}

TEST(KeyPathTest, NoEscapedPathIsTheFolderOfAnother) {
  const std::vector<std::string> keys = {"a",
                                         "a/",
                                         "a//",
                                         "a/b",
                                         "a+",
                                         "a+/=",
                                         std::string(240, 'a'),
                                         std::string(241, 'a'),
                                         std::string(480, 'a'),
                                         "/",
                                         "//"};
  for (const std::string& one : keys)
    for (const std::string& other : keys)
      EXPECT_FALSE(odd_path(other).starts_with(odd_path(one) + "/")) << one << " " << other;
}

TEST(KeyPathTest, TheFolderOfKeysIsThatOfTheirEscapedPaths) {
  for (const char* folder : {"a/", "a//", "/", "../", "a b/c/"}) {
    const std::string path = odd_folder_path(folder);
    EXPECT_EQ(odd_path(std::string(folder) + "x"), path + "/x=");
  }
  EXPECT_EQ(odd_folder_path(""), "");
}

TEST(KeyPathTest, ForeignNamesAmongTheEscapedOnesAreNone) {
  for (const char* name : {"", "a", "a.txt", "%zz=", "a+b=", "a=b="})
    EXPECT_FALSE(parse_odd_name(name)) << name;
}

}  // namespace
}  // namespace yard::gateway
