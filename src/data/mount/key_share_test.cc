#include "mount/key_share.h"

#include <gtest/gtest.h>

#include "storage/memory_store.h"

namespace yard::mount {
namespace {

using storage::MemoryStore;

void put(MemoryStore& store, const std::string& key) {
  ASSERT_TRUE(storage::put_text(store, key, "x"));
}

TEST(KeyShareTest, EveryObjectIsInExactlyOneShareAndSharesDifferByOne) {
  MemoryStore store;
  std::vector<std::string> keys;
  for (int i = 0; i < 103; ++i)
    keys.push_back("p/" + std::to_string(i % 7) + "/" + std::to_string(i));
  for (const auto& key : keys) put(store, key);
  put(store, "other/x");
  std::vector<int> owners(keys.size(), 0);
  for (uint32_t index = 0; index < 4; ++index) {
    const auto share = KeyShare::take(store, "p/", {index, 4}, {});
    ASSERT_TRUE(share);
    EXPECT_NEAR(static_cast<double>(share->object_count()), 103.0 / 4, 1.0);
    for (size_t i = 0; i < keys.size(); ++i) owners[i] += share->has_object(keys[i]) ? 1 : 0;
    EXPECT_FALSE(share->has_object("other/x"));
  }
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(owners[i], 1) << keys[i];
}

TEST(KeyShareTest, AFolderIsThereWhenSomethingUnderItIs) {
  MemoryStore store;
  put(store, "a/b/1");
  put(store, "c/2");
  const auto first = KeyShare::take(store, "", {0, 2}, {});
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->has_folder("a/"));
  EXPECT_TRUE(first->has_folder("a/b/"));
  EXPECT_FALSE(first->has_folder("c/"));
}

TEST(KeyShareTest, AStopEndsTheListing) {
  MemoryStore store;
  put(store, "a");
  StopSource stop;
  stop.request();
  const auto share = KeyShare::take(store, "", {0, 2}, stop.token());
  ASSERT_FALSE(share);
  EXPECT_EQ(share.error().code, Code::kCancelled);
}

TEST(KeyShareTest, SharesAreWrittenAsIndexAndCount) {
  const auto share = parse_share("1/4");
  ASSERT_TRUE(share);
  EXPECT_EQ(share->index, 1U);
  EXPECT_EQ(share->count, 4U);
  for (const char* bad : {"", "1", "4/4", "5/4", "-1/4", "1/0", "a/4", "1/4x", "1//4", "0/9999999"})
    EXPECT_FALSE(parse_share(bad)) << bad;
}

}  // namespace
}  // namespace yard::mount
