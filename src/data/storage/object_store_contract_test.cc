// What object_store.h promises, tested on every store that can be made here.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <thread>

#include "storage/directory_store.h"
#include "storage/memory_store.h"
#include "storage/testing/fake_s3.h"
#include "storage/testing/faulty_store.h"

namespace yard::storage {
namespace {

struct MemoryKind {
  MemoryStore store;
};

// A folder in /tmp for the length of a test.
struct DirectoryKind {
  DirectoryKind() : path(::testing::TempDir() + "yard-store-XXXXXX") {
    YARD_CHECK(::mkdtemp(path.data()) != nullptr);
    auto opened = DirectoryStore::open(path);
    YARD_CHECK(opened);
    owner = *std::move(opened);
  }
  ~DirectoryKind() { std::filesystem::remove_all(path); }
  std::string path;
  std::unique_ptr<DirectoryStore> owner;
};

// A faulty store without faults must keep the contract too.
struct FaultlessKind {
  MemoryStore inner;
  testing::FaultyStore store{inner, [](const testing::Call&) -> Status { return Ok{}; }};
};

struct S3Kind {
  testing::FakeS3 server;
  S3Store store = server.store();
};

ObjectStore& store_of(S3Kind& kind) {
  return kind.store;
}
ObjectStore& store_of(MemoryKind& kind) {
  return kind.store;
}
ObjectStore& store_of(DirectoryKind& kind) {
  return *kind.owner;
}
ObjectStore& store_of(FaultlessKind& kind) {
  return kind.store;
}

template <typename Kind>
class ObjectStoreTest : public ::testing::Test {
 protected:
  ObjectStore& store() { return store_of(kind_); }

  void put(std::string_view key, std::string_view content) {
    auto info = put_text(store(), key, content);
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_EQ(info->key, key);
    EXPECT_EQ(info->size_bytes, content.size());
  }
  std::string get(std::string_view key) {
    auto content = get_all(store(), key);
    return content ? *content : "error: " + content.error().message;
  }
  Code get_range_code(std::string_view key, std::string_view etag, uint64_t offset, size_t count) {
    std::vector<std::byte> out(count);
    auto got = store().get_range(key, etag, offset, out);
    EXPECT_FALSE(got);
    if (got) return Code::kInternal;
    EXPECT_NE(got.error().message.find(key), std::string::npos) << got.error().message;
    return got.error().code;
  }
  // All pages, written as "a b c/": objects and common prefixes, each in its order.
  std::pair<std::string, std::string> list_pages(ListRequest request) {
    std::string objects, prefixes;
    for (int page_index = 0; page_index < 100; ++page_index) {
      auto page = store().list(request);
      EXPECT_TRUE(page) << page.error().message;
      if (!page) break;
      EXPECT_LE(page->objects.size() + page->common_prefixes.size(), request.object_count_max);
      for (const auto& object : page->objects) objects += object.key + " ";
      for (const auto& prefix : page->common_prefixes) prefixes += prefix + " ";
      request.start_after = page->next_start_after;
      if (request.start_after.empty()) return {objects, prefixes};
    }
    ADD_FAILURE() << "pages without end";
    return {objects, prefixes};
  }

  Kind kind_;
};

using Kinds = ::testing::Types<MemoryKind, DirectoryKind, FaultlessKind, S3Kind>;
TYPED_TEST_SUITE(ObjectStoreTest, Kinds);

TYPED_TEST(ObjectStoreTest, WhatWasPutIsRead) {
  this->put("a", "");
  this->put("b/c.txt", "hello");
  this->put("ünï/漢字", std::string("\0\xff", 2));
  EXPECT_EQ(this->get("a"), "");
  EXPECT_EQ(this->get("b/c.txt"), "hello");
  EXPECT_EQ(this->get("ünï/漢字"), std::string("\0\xff", 2));
}

TYPED_TEST(ObjectStoreTest, HeadEqualsWhatPutAndListSay) {
  auto put = put_text(this->store(), "x/y", "abc");
  ASSERT_TRUE(put);
  auto head = this->store().head("x/y");
  ASSERT_TRUE(head);
  auto list = list_all(this->store(), "");
  ASSERT_TRUE(list);
  ASSERT_EQ(list->size(), 1U);
  for (const ObjectInfo& info : {*head, list->front()}) {
    EXPECT_EQ(info.key, "x/y");
    EXPECT_EQ(info.size_bytes, 3U);
    EXPECT_EQ(info.etag, put->etag);
  }
}

TYPED_TEST(ObjectStoreTest, ARangeIsTheBytesAsked) {
  this->put("k", "0123456789");
  std::string out(4, '?');
  ASSERT_TRUE(this->store().get_range("k", "", 3, std::as_writable_bytes(std::span(out))));
  EXPECT_EQ(out, "3456");
  std::span<std::byte> nothing;
  EXPECT_TRUE(this->store().get_range("k", "", 10, nothing));
}

TYPED_TEST(ObjectStoreTest, ARangePastTheEndIsRefusedWhole) {
  this->put("k", "0123456789");
  EXPECT_EQ(this->get_range_code("k", "", 8, 3), Code::kInvalidArgument);
  EXPECT_EQ(this->get_range_code("k", "", 11, 0), Code::kInvalidArgument);
  EXPECT_EQ(this->get_range_code("k", "", UINT64_MAX - 1, 4), Code::kInvalidArgument);
}

TYPED_TEST(ObjectStoreTest, AMissingObjectIsNotFound) {
  EXPECT_EQ(this->get_range_code("none", "", 0, 1), Code::kNotFound);
  EXPECT_EQ(this->store().head("none").error().code, Code::kNotFound);
  this->put("file", "x");
  EXPECT_EQ(this->store().head("file/below").error().code, Code::kNotFound);
  this->put("folder/x", "x");
  EXPECT_EQ(this->store().head("folder").error().code, Code::kNotFound);
}

TYPED_TEST(ObjectStoreTest, APinnedVersionThatChangedIsCorrupt) {
  auto first = put_text(this->store(), "k", "aaaa");
  ASSERT_TRUE(first);
  std::string out(4, '?');
  const auto bytes = std::as_writable_bytes(std::span(out));
  EXPECT_TRUE(this->store().get_range("k", first->etag, 0, bytes));
  this->put("k", "bbbb");
  EXPECT_EQ(this->get_range_code("k", first->etag, 0, 4), Code::kCorrupt);
}

TYPED_TEST(ObjectStoreTest, QuickPutsOfOneSizeNeverShareAnEtag) {
  std::set<std::string> etags;
  for (int i = 0; i < 200; ++i) {
    auto info = put_text(this->store(), "k", std::to_string(100 + i));
    ASSERT_TRUE(info);
    EXPECT_TRUE(etags.insert(info->etag).second) << info->etag;
  }
}

TYPED_TEST(ObjectStoreTest, IfAbsentLeavesWhatIsThere) {
  ASSERT_TRUE(put_text(this->store(), "d/k", "first", {.if_absent = true}));
  auto second = put_text(this->store(), "d/k", "second", {.if_absent = true});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kInvalidArgument);
  EXPECT_NE(second.error().message.find("d/k"), std::string::npos);
  EXPECT_NE(second.error().message.find("already exists"), std::string::npos);
  EXPECT_EQ(this->get("d/k"), "first");
}

TYPED_TEST(ObjectStoreTest, OfManyIfAbsentPutsOneWins) {
  std::atomic<int> won = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      if (put_text(this->store(), "lock", std::to_string(i), {.if_absent = true})) ++won;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(won, 1);
}

TYPED_TEST(ObjectStoreTest, AnUploadIsInvisibleUntilCommitted) {
  this->put("d/k", "old");
  auto upload = this->store().upload("d/k");
  ASSERT_TRUE(upload);
  const std::string half = "new ";
  ASSERT_TRUE((*upload)->write(std::as_bytes(std::span(half))));
  EXPECT_EQ(this->get("d/k"), "old");
  ASSERT_TRUE((*upload)->write(std::as_bytes(std::span(half))));
  EXPECT_EQ(this->list_pages({}).first, "d/k ");
  auto info = (*upload)->commit();
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->etag, this->store().head("d/k")->etag);
  EXPECT_EQ(this->get("d/k"), "new new ");
}

TYPED_TEST(ObjectStoreTest, AnUploadThatReadsForItselfHasTheBytesInOrderAndPassesErrorsOn) {
  std::string content(700'000, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = char((i * 2654435761U) >> 13);
  auto upload = this->store().upload("k");
  ASSERT_TRUE(upload);
  const auto all = std::as_bytes(std::span(content));
  const auto read_from = [&](uint64_t start) -> RangeReader {
    return [all, start](uint64_t offset, std::span<std::byte> into) -> Status {
      std::ranges::copy(all.subspan(start + offset, into.size()), into.begin());
      return Ok{};
    };
  };
  std::atomic<uint64_t> written = 0;
  const auto on_written = [&written](uint64_t bytes) { written += bytes; };
  ASSERT_TRUE((*upload)->write_from(300'001, read_from(0), on_written));
  ASSERT_TRUE((*upload)->write(all.subspan(300'001, 99)));
  ASSERT_TRUE((*upload)->write_from(all.size() - 300'100, read_from(300'100), on_written));
  ASSERT_TRUE((*upload)->commit());
  EXPECT_EQ(written, all.size() - 99);
  EXPECT_TRUE(this->get("k") == content);

  auto broken = this->store().upload("broken");
  ASSERT_TRUE(broken);
  const RangeReader fail = [](uint64_t, std::span<std::byte>) -> Status {
    return Error{Code::kCorrupt, "changed"};
  };
  EXPECT_EQ((*broken)->write_from(10, fail, nullptr).error().code, Code::kCorrupt);
}

TYPED_TEST(ObjectStoreTest, ADiscardedUploadLeavesNothing) {
  {
    auto upload = this->store().upload("d/k");
    ASSERT_TRUE(upload);
    const std::string half = "half";
    ASSERT_TRUE((*upload)->write(std::as_bytes(std::span(half))));
  }
  EXPECT_EQ(this->list_pages({}).first, "");
  this->put("d", "the key is free again");
}

TYPED_TEST(ObjectStoreTest, AnUploadOnlyIfAbsentLeavesWhatIsThere) {
  const std::string text = "late";
  auto upload = this->store().upload("k", {.if_absent = true});
  ASSERT_TRUE(upload);
  ASSERT_TRUE((*upload)->write(std::as_bytes(std::span(text))));
  this->put("k", "first");
  EXPECT_EQ((*upload)->commit().error().code, Code::kInvalidArgument);
  EXPECT_EQ(this->get("k"), "first");
}

TYPED_TEST(ObjectStoreTest, ACopyHasTheBytesOfItsSource) {
  this->put("d/source", "bytes");
  this->put("old", "replaced");
  for (const char* key : {"new/deep", "old"}) {
    auto info = this->store().copy("d/source", key, {});
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_EQ(info->key, key);
    EXPECT_EQ(info->size_bytes, 5U);
    EXPECT_EQ(info->etag, this->store().head(key)->etag);
    EXPECT_EQ(this->get(key), "bytes");
  }
  EXPECT_EQ(this->get("d/source"), "bytes");
  EXPECT_EQ(this->store().copy("none", "k", {}).error().code, Code::kNotFound);
  EXPECT_EQ(this->store().copy("old", "../k", {}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(this->store().copy("d/source", "old", {.if_absent = true}).error().code,
            Code::kInvalidArgument);
}

TYPED_TEST(ObjectStoreTest, CopyBetweenStoresKeepsTheBytes) {
  MemoryStore other;
  std::string content(100'000, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = char(i * 31 >> 3);
  this->put("k", content);
  for (const size_t buffer_bytes : {size_t{1000}, size_t{64} << 20}) {
    ASSERT_TRUE(copy_between(this->store(), "k", other, "there", {}, buffer_bytes));
    EXPECT_EQ(*get_all(other, "there"), content);
    ASSERT_TRUE(copy_between(other, "there", this->store(), "back", {}, buffer_bytes));
    EXPECT_EQ(this->get("back"), content);
  }
}

TYPED_TEST(ObjectStoreTest, RemoveAllRemovesThoseAndOnlyThose) {
  for (const char* key : {"a", "b/c", "b/d", "e"}) this->put(key, key);
  const std::vector<std::string> keys = {"a", "none", "b/c"};
  EXPECT_TRUE(this->store().remove_all(keys));
  EXPECT_EQ(this->list_pages({}).first, "b/d e ");
  EXPECT_TRUE(this->store().remove_all({}));
  const std::vector<std::string> bad = {"../x", "e"};
  EXPECT_EQ(this->store().remove_all(bad).error().code, Code::kInvalidArgument);
  EXPECT_EQ(this->list_pages({}).first, "b/d ");
}

TYPED_TEST(ObjectStoreTest, TheTimeOfThePutIsTold) {
  const auto before = std::chrono::system_clock::now() - std::chrono::seconds(2);
  this->put("k", "x");
  const auto head = this->store().head("k");
  ASSERT_TRUE(head);
  EXPECT_GE(head->modified, before);
  EXPECT_LE(head->modified, std::chrono::system_clock::now() + std::chrono::seconds(2));
  using std::chrono::floor, std::chrono::seconds;  // as fine as HTTP tells it
  EXPECT_EQ(floor<seconds>(list_all(this->store(), "")->front().modified),
            floor<seconds>(head->modified));
}

TYPED_TEST(ObjectStoreTest, ReadersSeeOldOrNewButNeverHalf) {
  const std::string a(100'000, 'a'), b(200'000, 'b');
  this->put("k", a);
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(put_text(this->store(), "k", i % 2 == 0 ? b : a));
    done = true;
  });
  while (!done) {
    auto content = get_all(this->store(), "k");
    // Between head and read it may have been replaced: told, not mixed.
    if (content) {
      EXPECT_TRUE(*content == a || *content == b);
    } else {
      EXPECT_EQ(content.error().code, Code::kCorrupt) << content.error().message;
    }
  }
  writer.join();
}

TYPED_TEST(ObjectStoreTest, ARangeComesInPiecesInOrder) {
  std::string content(700'000, '?');
  for (size_t i = 0; i < content.size(); ++i) content[i] = char(i * 7 + i / 256);
  this->put("k", content);
  const std::string etag = this->store().head("k")->etag;
  std::string got;
  const RangeSink append = [&](uint64_t position, std::span<const std::byte> bytes) -> Status {
    EXPECT_EQ(position, got.size());
    got.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return Ok{};
  };
  ASSERT_TRUE(this->store().get_range_to("k", etag, 5, 690'000, append));
  EXPECT_TRUE(got == content.substr(5, 690'000));
  got.clear();
  EXPECT_TRUE(this->store().get_range_to("k", etag, 5, 0, append));
  EXPECT_EQ(got, "");

  EXPECT_EQ(this->store().get_range_to("k", etag, 699'999, 2, append).error().code,
            Code::kInvalidArgument);
  EXPECT_EQ(this->store().get_range_to("none", "", 0, 1, append).error().code, Code::kNotFound);
  const RangeSink full = [](uint64_t, std::span<const std::byte>) -> Status {
    return Error{Code::kExhausted, "full"};
  };
  const auto refused = this->store().get_range_to("k", etag, 0, 10, full);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  EXPECT_EQ(refused.error().message, "full");
}

TYPED_TEST(ObjectStoreTest, RemoveIsOkTwiceAndFreesTheKey) {
  this->put("d/e/k", "x");
  EXPECT_TRUE(this->store().remove("d/e/k"));
  EXPECT_TRUE(this->store().remove("d/e/k"));
  EXPECT_EQ(this->store().head("d/e/k").error().code, Code::kNotFound);
  EXPECT_EQ(this->list_pages({}).first, "");
  this->put("d", "no longer a folder");
}

TYPED_TEST(ObjectStoreTest, RemovingAFolderRemovesNothing) {
  this->put("d/k", "x");
  EXPECT_TRUE(this->store().remove("d"));
  EXPECT_EQ(this->get("d/k"), "x");
}

// "a-" < "a.b" < "a/b" < "a0": a folder sorts by its name with the slash.
TYPED_TEST(ObjectStoreTest, ListIsInByteOrderOfWholeKeysOverAllPages) {
  for (const char* key : {"a0", "a/b", "a.b", "a-", "Z", "a/a/z", "b", "é"}) this->put(key, key);
  const std::string all = "Z a- a.b a/a/z a/b a0 b é ";
  for (uint32_t count : {1U, 2U, 3U, 7U, 8U, 1000U})
    EXPECT_EQ(this->list_pages({.object_count_max = count}).first, all) << count;
  EXPECT_EQ(this->list_pages({.prefix = "a/"}).first, "a/a/z a/b ");
  EXPECT_EQ(this->list_pages({.prefix = "a/b"}).first, "a/b ");
  EXPECT_EQ(this->list_pages({.prefix = "a"}).first, "a- a.b a/a/z a/b a0 ");
  EXPECT_EQ(this->list_pages({.prefix = "c"}).first, "");
  EXPECT_EQ(this->list_pages({.prefix = "a/../"}).first, "");
  EXPECT_EQ(this->list_pages({.prefix = "b/"}).first, "");
  EXPECT_EQ(this->list_pages({.start_after = "a.b"}).first, "a/a/z a/b a0 b é ");
  EXPECT_EQ(this->list_pages({.start_after = "a/a/zz"}).first, "a/b a0 b é ");
  EXPECT_EQ(this->list_pages({.start_after = "a/"}).first, "a/a/z a/b a0 b é ");
}

TYPED_TEST(ObjectStoreTest, ListStopsAtTheDelimiter) {
  for (const char* key : {"a/1", "a/2", "a/b/3", "a0", "b/4", "c"}) this->put(key, key);
  for (uint32_t count : {1U, 2U, 1000U}) {
    const auto [objects, prefixes] =
        this->list_pages({.delimiter = "/", .object_count_max = count});
    EXPECT_EQ(objects, "a0 c ") << count;
    EXPECT_EQ(prefixes, "a/ b/ ") << count;
    const auto below =
        this->list_pages({.prefix = "a/", .delimiter = "/", .object_count_max = count});
    EXPECT_EQ(below.first, "a/1 a/2 ") << count;
    EXPECT_EQ(below.second, "a/b/ ") << count;
  }
  EXPECT_EQ(this->list_pages({.start_after = "a/1", .delimiter = "/"}).second, "a/ b/ ");
  EXPECT_EQ(this->list_pages({.start_after = "a/", .delimiter = "/"}).second, "b/ ");
}

TYPED_TEST(ObjectStoreTest, PageSizesOutsideTheLimitAreRefused) {
  EXPECT_FALSE(this->store().list({.object_count_max = 0}));
  EXPECT_FALSE(this->store().list({.object_count_max = 1001}));
}

TYPED_TEST(ObjectStoreTest, ListAllGoesOverAllPages) {
  // By many writers at once, for each of these puts waits for the disk.
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 15; ++writer)
    writers.emplace_back([this, writer] {
      for (int i = 0; i < 67; ++i) this->put("p/" + std::to_string(10000 + 67 * writer + i), "");
    });
  for (std::thread& writer : writers) writer.join();
  auto all = list_all(this->store(), "p/");
  ASSERT_TRUE(all);
  EXPECT_EQ(all->size(), 1005U);
}

TYPED_TEST(ObjectStoreTest, KeysThatAreNoneAreRefusedByEveryMethod) {
  const std::string nul("a\0b", 3);
  for (const std::string& key :
       {std::string(), std::string("/a"), std::string("a/"), std::string("a//b"), std::string(".."),
        std::string("a/../../b"), std::string("./a"), std::string("a/."), nul, std::string("\xff"),
        std::string("\xc0\xaf"), std::string("\xed\xa0\x80"), std::string(1025, 'k')}) {
    std::vector<std::byte> out(1);
    EXPECT_EQ(this->store().head(key).error().code, Code::kInvalidArgument) << key;
    EXPECT_EQ(this->store().get_range(key, "", 0, out).error().code, Code::kInvalidArgument);
    EXPECT_EQ(put_text(this->store(), key, "x").error().code, Code::kInvalidArgument) << key;
    EXPECT_EQ(this->store().upload(key).error().code, Code::kInvalidArgument) << key;
    EXPECT_EQ(this->store().remove(key).error().code, Code::kInvalidArgument) << key;
  }
  EXPECT_TRUE(put_text(this->store(), "a..b/...", "x"));
}

TYPED_TEST(ObjectStoreTest, GetAllKeepsItsLimit) {
  this->put("k", "12345");
  EXPECT_EQ(*get_all(this->store(), "k", 5), "12345");
  EXPECT_EQ(get_all(this->store(), "k", 4).error().code, Code::kExhausted);
}

}  // namespace
}  // namespace yard::storage
