#include "mount/listing.h"

#include <gtest/gtest.h>

#include "base/testing/fake_clock.h"
#include "storage/memory_store.h"
#include "storage/testing/faulty_store.h"

namespace yard::mount {
namespace {

using storage::testing::Call;
using storage::testing::FaultyStore;

class ListingTest : public testing::Test {
 protected:
  void put(const std::string& key, const std::string& content = "x") {
    ASSERT_TRUE(storage::put_text(memory, key, content));
  }
  // All names of a directory, "name/" for a directory.
  std::vector<std::string> names(const std::string& directory) {
    std::vector<std::string> all;
    Listing::PagePointer page;
    do {
      auto next = listing.page(directory, page);
      EXPECT_TRUE(next);
      page = *next;
      for (const Entry& entry : page->entries)
        all.push_back(entry.name + (entry.is_directory ? "/" : ""));
    } while (!page->next_start_after.empty());
    return all;
  }
  std::optional<Entry> find(const std::string& directory, const std::string& name) {
    auto found = listing.find(directory, name);
    EXPECT_TRUE(found);
    return found->entry;
  }

  storage::MemoryStore memory;
  std::optional<Error> failure;
  FaultyStore store{memory, [this](const Call&) -> Status {
                      if (failure) return *failure;
                      return Ok{};
                    }};
  FakeClock clock;
  CounterRegistry counters;
  Listing listing{store, nullptr, nullptr, {.ttl = std::chrono::seconds(60)}, counters, clock};
};

using Names = std::vector<std::string>;

TEST_F(ListingTest, FilesAndDirectoriesComeInByteOrder) {
  for (const char* key : {"d/b", "d/a/1", "d/a/2", "d/a-b", "d/c", "e"}) put(key);
  EXPECT_EQ(names("d/"), (Names{"a-b", "a/", "b", "c"}));
  EXPECT_EQ(names(""), (Names{"d/", "e"}));
}

TEST_F(ListingTest, ManyPagesAreEachNameOnce) {
  Names expected;
  for (int i = 0; i < 2500; ++i) {
    const std::string name = std::to_string(100'000 + i);
    put("d/" + name);
    expected.push_back(name);
  }
  EXPECT_EQ(names("d/"), expected);
}

TEST_F(ListingTest, AFileHidesADirectoryOfItsNameInListingsAndLookups) {
  for (const char* key : {"a", "a!b", "a-b", "a/hidden"}) put(key);
  EXPECT_EQ(names(""), (Names{"a", "a!b", "a-b"}));
  ASSERT_TRUE(find("", "a"));
  EXPECT_FALSE(find("", "a")->is_directory);
}

TEST_F(ListingTest, LookupsFindFilesDirectoriesAndNothing) {
  for (const char* key :
       {"d/name", "d/name-1", "d/sub/x", "d/sub-1", "d/sub-2", "d/sub-3", "d/sub-4"})
    put(key);
  ASSERT_TRUE(find("d/", "name"));
  EXPECT_FALSE(find("d/", "name")->is_directory);
  ASSERT_TRUE(find("d/", "sub"));  // four names lie between "sub" and "sub/"
  EXPECT_TRUE(find("d/", "sub")->is_directory);
  EXPECT_FALSE(find("d/", "nam"));
  EXPECT_FALSE(find("d/", "sub-"));
  EXPECT_FALSE(find("d/", ".."));
}

TEST_F(ListingTest, AFreshListingAnswersWithoutAskingTheStore) {
  for (const char* key : {"d/a", "d/c", "d/s/x"}) put(key);
  names("d/");
  const uint64_t calls = store.call_count();
  EXPECT_TRUE(find("d/", "a"));
  EXPECT_FALSE(find("d/", "b"));
  EXPECT_TRUE(find("d/", "s")->is_directory);
  EXPECT_EQ(names("d/").size(), 3U);
  EXPECT_EQ(store.call_count(), calls);
  EXPECT_TRUE(listing.cached("d/", "a"));
}

TEST_F(ListingTest, AListingIsBelievedForItsTimeAndNoLonger) {
  put("d/a", "1");
  names("d/");
  put("d/a", "twelve");
  clock.advance(std::chrono::seconds(59));
  EXPECT_EQ(find("d/", "a")->size_bytes, 1U);
  clock.advance(std::chrono::seconds(2));
  EXPECT_EQ(find("d/", "a")->size_bytes, 6U);
}

TEST_F(ListingTest, WhatIsForgottenIsAskedForAgain) {
  put("d/a", "1");
  names("d/");
  put("d/a", "twelve");
  listing.forget("d/", "a");
  EXPECT_EQ(find("d/", "a")->size_bytes, 6U);
}

TEST_F(ListingTest, ManyLookupsInADirectoryTurnIntoPages) {
  for (int i = 0; i < 500; ++i) put("d/" + std::to_string(1000 + i));
  for (int i = 0; i < 500; ++i) EXPECT_TRUE(find("d/", std::to_string(1000 + i))) << i;
  EXPECT_LT(store.call_count(), 20U);
}

TEST_F(ListingTest, OnlySoManyEntriesAreKept) {
  Listing small(store, nullptr, nullptr, {.entry_count_max = 2500}, counters, clock);
  for (int i = 0; i < 5000; ++i) put("d/" + std::to_string(10'000 + i));
  Listing::PagePointer page;
  int kept = 0;
  std::vector<std::string> starts;
  do {
    page = *small.page("d/", page);
    starts.push_back(page->start_after);
  } while (!page->next_start_after.empty());
  for (const auto& start : starts) kept += small.cached_page("d/", start) ? 1 : 0;
  EXPECT_EQ(kept, 2);
  EXPECT_TRUE(small.cached_page("d/", starts.back()));
}

TEST_F(ListingTest, AFailureIsToldAndNotRemembered) {
  put("d/a");
  failure = Error{Code::kUnavailable, "away"};
  const auto failed = listing.find("d/", "a");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kUnavailable);
  EXPECT_FALSE(listing.page("d/", nullptr));
  failure.reset();
  EXPECT_TRUE(find("d/", "a"));
}

TEST_F(ListingTest, WhoAsksWaitsForAStoreThatIsAwayAndGoesOn) {
  put("d/a");
  storage::StoreWait wait(std::chrono::seconds(60), counters.counter("store_retries"), {}, clock);
  int failures_left = 10;
  FaultyStore away(memory, [&](const Call&) -> Status {
    if (failures_left-- > 0) return Error{Code::kUnavailable, "away"};
    return Ok{};
  });
  Listing waiting(away, &wait, nullptr, {}, counters, clock);
  const auto found = waiting.find("d/", "a");
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->entry);
  EXPECT_GE(clock.elapsed(), std::chrono::seconds(10));
  failures_left = 1'000;
  EXPECT_EQ(waiting.find("e/", "a").error().code, Code::kUnavailable);
  EXPECT_LT(clock.elapsed(), std::chrono::seconds(120));
}

TEST_F(ListingTest, PlacesOfFilesAreCountedOverPages) {
  for (int i = 0; i < 2500; ++i) put("d/" + std::to_string(10'000 + i));
  names("d/");
  EXPECT_EQ(listing.position("d/", "10000")->number, 0U);
  EXPECT_EQ(listing.position("d/", "11500")->number, 1500U);
  EXPECT_FALSE(listing.position("d/", "nothing"));
}

TEST_F(ListingTest, AShareShowsItsOwnObjectsAndTheirDirectories) {
  for (const char* key : {"a/1", "a/2", "b/3", "c"}) put(key);
  const auto share = KeyShare::take(memory, "", {0, 2}, {});
  ASSERT_TRUE(share);
  Listing shared(store, nullptr, &*share, {}, counters, clock);
  const auto page = shared.page("", nullptr);
  ASSERT_TRUE(page);
  Names shown;
  for (const Entry& entry : (*page)->entries) shown.push_back(entry.name);
  EXPECT_EQ(shown, (Names{"a", "b"}));
  EXPECT_FALSE(shared.find("", "c")->entry);
  EXPECT_TRUE(shared.find("a/", "1")->entry);
  EXPECT_FALSE(shared.find("a/", "2")->entry);
}

}  // namespace
}  // namespace yard::mount
