#include "gateway/lister.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/random.h"
#include "base/testing/fake_clock.h"
#include "gateway/testing/temp_root.h"

namespace yard::gateway {
namespace {

// What S3 says of a set of keys, all at once.
std::vector<std::string> expected(const std::set<std::string>& keys, const std::string& prefix,
                                  const std::string& delimiter, const std::string& after) {
  std::set<std::string> entries;
  for (const std::string& key : keys) {
    if (!key.starts_with(prefix) || key <= after) continue;
    const size_t at = delimiter.empty() ? key.npos : key.find(delimiter, prefix.size());
    const std::string entry = at == key.npos ? key : key.substr(0, at + delimiter.size()) + "|";
    if (entry != after + "|") entries.insert(entry);
  }
  return {entries.begin(), entries.end()};
}

std::vector<std::string> listed(Lister& lister, const Bucket& bucket, ListQuery query) {
  std::vector<std::string> entries;
  for (;;) {
    const auto page = lister.list(bucket, query);
    EXPECT_TRUE(page);
    EXPECT_LE(page->objects.size() + page->common_prefixes.size(), query.entry_count_max);
    std::vector<std::string> here;
    for (const auto& object : page->objects) here.push_back(object.key);
    for (const auto& prefix : page->common_prefixes) here.push_back(prefix + "|");
    std::ranges::sort(here);
    entries.insert(entries.end(), here.begin(), here.end());
    if (!page->is_truncated) return entries;
    EXPECT_EQ(here.size(), query.entry_count_max);
    query.after = page->last;
  }
}

std::set<std::string> random_keys(uint64_t seed, size_t count) {
  constexpr std::string_view kPieces[] = {"a",  "b",  "/",   "/",        "-", ".",
                                          "ab", "//", "a/b", "\xC3\xBC", " "};
  std::set<std::string> keys;
  for (uint64_t i = 0; keys.size() < count; ++i) {
    std::string key;
    const uint64_t length = 1 + random_below(6, seed, i, 0);
    for (uint64_t j = 1; j <= length; ++j)
      key += kPieces[random_below(std::size(kPieces), seed, i, j)];
    keys.insert(key);
  }
  return keys;
}

TEST(ListerTest, PagesOfAnySizeAreTheKeysInByteOrderGroupedByTheRule) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    TempRoot folder;
    const auto keys = random_keys(seed, 60);
    for (const std::string& key : keys) ASSERT_TRUE(folder.put(key, "x")) << key;
    Lister lister(Clock::real());
    Lister forgetful(Clock::real(), 0);
    for (const char* prefix : {"", "a", "a/", "/", "b-", "zz", "a/b/"})
      for (const char* delimiter : {"", "/", "-", "b", "//"})
        for (const char* after : {"", "a", "a/", "a/b", "~"})
          for (const uint32_t size : {1u, 3u, 1000u}) {
            const ListQuery query{prefix, delimiter, after, size};
            const auto wanted = expected(keys, prefix, delimiter, after);
            ASSERT_EQ(listed(lister, folder.bucket(), query), wanted)
                << prefix << " " << delimiter << " " << after << " " << size;
            ASSERT_EQ(listed(forgetful, folder.bucket(), query), wanted);
          }
  }
}

TEST(ListerTest, AnEntryTellsSizeEtagAndTime) {
  TempRoot folder;
  ASSERT_TRUE(folder.put("k", "12345", {.etag = "tag"}));
  folder.write_by_hand("hand", "1");
  Lister lister(Clock::real());
  const auto page = lister.list(folder.bucket(), {});
  ASSERT_EQ(page->objects.size(), 2u);
  EXPECT_EQ(page->objects[1].size_bytes, 5u);
  EXPECT_EQ(page->objects[1].etag, "tag");
  EXPECT_GT(page->objects[1].modified.time_since_epoch().count(), 0);
  EXPECT_TRUE(page->objects[0].etag.ends_with("-0"));
}

TEST(ListerTest, EmptyFoldersLinksOutAndFilesThatCannotBeKeysAreNotListed) {
  TempRoot folder;
  std::filesystem::create_directories(folder.path() / "b/empty/deeper");
  std::filesystem::create_symlink("/etc/passwd", folder.path() / "b/link");
  folder.write_by_hand("bad\xff", "");
  folder.write_by_hand(".yard-staging/being written", "");
  folder.write_by_hand("good/one", "");
  Lister lister(Clock::real());
  EXPECT_EQ(listed(lister, folder.bucket(), {}), std::vector<std::string>{"good/one"});
  EXPECT_EQ(listed(lister, folder.bucket(), {.delimiter = "/"}),
            std::vector<std::string>{"good/|"});
}

TEST(ListerTest, AFolderIsReadOnceNotForEachPageUnlessItChanged) {
  TempRoot folder;
  for (int i = 0; i < 30; ++i) folder.write_by_hand(std::to_string(100 + i), "");
  FakeClock clock;
  // Long after the files were made, so that the folder's time can be trusted.
  clock.advance(Clock::real().wall_now() - clock.wall_now() + std::chrono::hours(1));
  Lister lister(clock);
  const ListQuery query{.entry_count_max = 3};
  EXPECT_EQ(listed(lister, folder.bucket(), query).size(), 30u);
  EXPECT_EQ(lister.begun_count(), 1u);
  EXPECT_EQ(lister.kept_count(), 0u);
  const auto first = lister.list(folder.bucket(), query);
  folder.write_by_hand("1025", "");
  EXPECT_EQ(
      lister.list(folder.bucket(), {.after = first->last, .entry_count_max = 3})->objects[0].key,
      "1025");
  EXPECT_EQ(lister.begun_count(), 3u);
}

TEST(ListerTest, AFolderThatChangedJustNowIsNotTrusted) {
  TempRoot folder;
  FakeClock clock;
  clock.advance(Clock::real().wall_now() - clock.wall_now());
  for (int i = 0; i < 30; ++i) folder.write_by_hand(std::to_string(100 + i), "");
  Lister lister(clock);
  EXPECT_EQ(listed(lister, folder.bucket(), {.entry_count_max = 10}).size(), 30u);
  EXPECT_EQ(lister.begun_count(), 3u);
}

TEST(ListerTest, WhatHappensBetweenTwoPagesIsSeenOnTheSecond) {
  TempRoot folder;
  for (const char* key : {"a", "b", "d/1", "d/2", "d/3", "e"}) ASSERT_TRUE(folder.put(key, ""));
  Lister lister(Clock::real());
  ListQuery query{.entry_count_max = 3};
  const auto first = lister.list(folder.bucket(), query);
  EXPECT_EQ(first->last, "d/1");
  EXPECT_EQ(lister.kept_count(), 1u);
  ASSERT_TRUE(folder.put("d/15", ""));
  ASSERT_TRUE(folder.put("d0", ""));
  ASSERT_TRUE(folder.put("d/3/", ""));
  ASSERT_TRUE(folder.remove("d/2"));
  ASSERT_TRUE(folder.put("a0", ""));
  query.after = first->last;
  query.entry_count_max = 1000;
  EXPECT_EQ(listed(lister, folder.bucket(), query),
            (std::vector<std::string>{"d/15", "d/3", "d/3/", "d0", "e"}));
}

TEST(ListerTest, ABucketReplacedBetweenTwoPagesIsListedAsItIsNow) {
  TempRoot folder;
  for (const char* key : {"a", "b", "c"}) ASSERT_TRUE(folder.put(key, ""));
  Lister lister(Clock::real());
  const auto first = lister.list(folder.bucket(), {.entry_count_max = 1});
  std::filesystem::remove_all(folder.path() / "b");
  folder.write_by_hand("z", "");
  EXPECT_EQ(listed(lister, folder.bucket(), {.after = first->last}), std::vector<std::string>{"z"});
}

TEST(ListerTest, KeptListingsAreBoundedInMemory) {
  TempRoot folder;
  for (int i = 0; i < 50; ++i) folder.write_by_hand(std::to_string(i) + std::string(100, 'x'), "");
  Lister lister(Clock::real(), 20'000);
  for (int i = 0; i < 40; ++i) {
    const auto page =
        lister.list(folder.bucket(), {.after = std::to_string(i), .entry_count_max = 1});
    ASSERT_TRUE(page);
    EXPECT_LE(lister.kept_bytes(), 20'000u);
  }
  EXPECT_GT(lister.kept_count(), 0u);
  EXPECT_LT(lister.kept_count(), 40u);
}

TEST(ListerTest, AListingOfNoEntriesIsEmptyAndWhole) {
  TempRoot folder;
  ASSERT_TRUE(folder.put("a", ""));
  Lister lister(Clock::real());
  const auto page = lister.list(folder.bucket(), {.entry_count_max = 0});
  EXPECT_TRUE(page->objects.empty());
  EXPECT_FALSE(page->is_truncated);
}

}  // namespace
}  // namespace yard::gateway
