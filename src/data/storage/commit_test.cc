#include "storage/commit.h"

#include <gtest/gtest.h>

#include "base/testing/fake_clock.h"
#include "storage/memory_store.h"
#include "storage/testing/faulty_store.h"

namespace yard::storage {
namespace {

using testing::Call;
using testing::FaultyStore;
using testing::Method;

constexpr std::string_view kKey = "run/step";

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// A set of three parts, all of them saying `what`.
Status write_set(ObjectStore& store, const std::string& what, const CommitOptions& options = {}) {
  YARD_ASSIGN(Commit commit, Commit::begin(store, kKey, options));
  YARD_TRY(commit.put("a", bytes_of(what + " a")));
  YARD_ASSIGN(auto upload, commit.upload("b/c"));
  YARD_TRY(upload->write(bytes_of(what)));
  YARD_TRY(upload->write(bytes_of(" b")));
  YARD_TRY(upload->commit());
  YARD_TRY(commit.put("empty", {}));
  return commit.publish({{"what", what}});
}

// What a reader sees: "" for nothing, the set's word where it is whole, else why it is not.
std::string seen(ObjectStore& store) {
  const auto manifest = read_manifest(store, kKey);
  if (!manifest && manifest.error().code == Code::kNotFound) return "";
  if (!manifest) return manifest.error().message;
  const std::string what = manifest->note["what"];
  const std::pair<const char*, std::string> expected[] = {
      {"a", what + " a"}, {"b/c", what + " b"}, {"empty", ""}};
  if (manifest->parts.size() != std::size(expected)) return "not three parts";
  for (const auto& [name, content] : expected) {
    const auto* part = manifest->find(name);
    if (part == nullptr) return std::string("no ") + name;
    const auto read = read_part(store, *part);
    if (!read) return read.error().message;
    if (*read != content) return *read;
  }
  return what;
}

size_t object_count(ObjectStore& store) {
  return list_all(store, "")->size();
}

TEST(CommitTest, AReaderSeesThePartsOfOnePublishedSet) {
  MemoryStore store;
  EXPECT_EQ(seen(store), "");
  ASSERT_TRUE(write_set(store, "one"));
  EXPECT_EQ(seen(store), "one");
  ASSERT_TRUE(write_set(store, "two"));
  EXPECT_EQ(seen(store), "two");
}

TEST(CommitTest, NothingIsSeenBeforeItIsPublishedNorLeftWhenItIsNot) {
  MemoryStore store;
  {
    auto commit = Commit::begin(store, kKey);
    ASSERT_TRUE(commit);
    ASSERT_TRUE(commit->put("a", bytes_of("x")));
    EXPECT_EQ(seen(store), "");
    EXPECT_EQ(object_count(store), 1U);
  }
  EXPECT_EQ(object_count(store), 0U);
}

// The promise of the whole file: whichever call fails, and from whichever on.
TEST(CommitTest, WhicheverCallFailsAReaderSeesOneWholeSet) {
  for (const bool from_then_on : {false, true}) {
    for (const Code code : {Code::kUnavailable, Code::kExhausted}) {
      uint64_t failing = 0;
      for (bool failed = true; failed; ++failing) {
        MemoryStore store;
        ASSERT_TRUE(write_set(store, "old"));
        failed = false;
        FaultyStore faulty(store, [&](const Call& call) -> Status {
          if (call.number != failing && !(from_then_on && call.number > failing)) return Ok{};
          failed = true;
          return Error{code, "injected"};
        });
        const Status written = write_set(faulty, "new");
        EXPECT_EQ(seen(store), written ? "new" : "old") << "call " << failing;
        // No set of parts stays for good.
        FakeClock clock;
        clock.advance(std::chrono::hours(24) * 365 * 100);
        ASSERT_TRUE(sweep_parts(store, kKey, std::chrono::seconds(60), clock));
        EXPECT_EQ(object_count(store), 4U) << "call " << failing;
        EXPECT_EQ(seen(store), written ? "new" : "old") << "call " << failing;
      }
      EXPECT_GT(failing, 9U);  // three parts, three heads, one manifest
    }
  }
}

// Does what it is asked, then says it did not.
class LostAnswers final : public ObjectStore {
 public:
  explicit LostAnswers(MemoryStore& inner) : inner_(inner) {}
  Status get_range(std::string_view key, std::string_view etag, uint64_t offset,
                   std::span<std::byte> out) override {
    return inner_.get_range(key, etag, offset, out);
  }
  Result<ObjectInfo> head(std::string_view key) override { return inner_.head(key); }
  Result<ListPage> list(const ListRequest& request) override { return inner_.list(request); }
  Result<ObjectInfo> put(std::string_view key, std::span<const std::byte> content,
                         const PutOptions& options) override {
    auto put = inner_.put(key, content, options);
    if (key == kKey) return Error{Code::kUnavailable, "the answer was lost"};
    return put;
  }
  Result<std::unique_ptr<Upload>> upload(std::string_view key, const PutOptions& o) override {
    return inner_.upload(key, o);
  }
  Result<ObjectInfo> copy(std::string_view source, std::string_view key,
                          const PutOptions& options) override {
    return inner_.copy(source, key, options);
  }
  Status remove(std::string_view key) override { return inner_.remove(key); }
  std::string url() const override { return inner_.url(); }

 private:
  MemoryStore& inner_;
};

TEST(CommitTest, ALostAnswerToThePublishingIsLookedUp) {
  MemoryStore memory;
  LostAnswers store(memory);
  EXPECT_TRUE(write_set(store, "one"));
  EXPECT_EQ(seen(memory), "one");
}

TEST(CommitTest, WhereAskedTheFirstManifestIsKept) {
  MemoryStore store;
  ASSERT_TRUE(write_set(store, "first", {.if_absent = true}));
  const auto second = write_set(store, "second", {.if_absent = true});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kInvalidArgument);
  EXPECT_EQ(seen(store), "first");
  EXPECT_EQ(object_count(store), 4U);  // the loser left nothing
}

TEST(CommitTest, APartThatIsNotAsWrittenIsNotPublished) {
  for (const bool read_back : {false, true}) {
    MemoryStore store;
    auto commit = Commit::begin(store, kKey, {.read_back = read_back});
    ASSERT_TRUE(commit->put("a", bytes_of("right")));
    const auto objects = list_all(store, "");
    ASSERT_TRUE(put_text(store, objects->front().key, "wrong"));
    const auto published = commit->publish();
    ASSERT_FALSE(published);
    EXPECT_EQ(published.error().code, Code::kCorrupt);
    EXPECT_EQ(seen(store), "");
  }
}

TEST(CommitTest, PartsTwiceAndNamesThatAreNoneAreRefused) {
  MemoryStore store;
  auto commit = Commit::begin(store, kKey);
  ASSERT_TRUE(commit->put("a", bytes_of("x")));
  for (const char* name : {"a", "", "../a", "/a"}) {
    const auto put = commit->put(name, bytes_of("x"));
    ASSERT_FALSE(put) << name;
    EXPECT_EQ(put.error().code, Code::kInvalidArgument) << name;
  }
  EXPECT_FALSE(Commit::begin(store, "../x"));
}

TEST(CommitTest, EveryDamagedByteOfAManifestIsNoticed) {
  MemoryStore store;
  ASSERT_TRUE(write_set(store, "one"));
  const std::string good = *get_all(store, kKey);
  for (size_t i = 0; i + 1 < good.size(); ++i) {
    std::string bad = good;
    bad[i] = char(bad[i] ^ 1);
    ASSERT_TRUE(put_text(store, kKey, bad));
    const auto manifest = read_manifest(store, kKey);
    ASSERT_FALSE(manifest) << i;
    EXPECT_EQ(manifest.error().code, Code::kCorrupt);
  }
}

TEST(CommitTest, APartThatIsGoneOrAnotherIsCorrupt) {
  MemoryStore store;
  ASSERT_TRUE(write_set(store, "one"));
  const ManifestPart part = *read_manifest(store, kKey)->find("a");
  ASSERT_TRUE(put_text(store, part.key, "one b"));
  EXPECT_EQ(read_part(store, part).error().code, Code::kCorrupt);
  ASSERT_TRUE(store.remove(part.key));
  EXPECT_EQ(read_part(store, part).error().code, Code::kCorrupt);
}

TEST(CommitTest, AnotherCommitThatIsUnderWayKeepsItsParts) {
  MemoryStore store;
  ASSERT_TRUE(write_set(store, "one"));
  auto commit = Commit::begin(store, kKey);
  ASSERT_TRUE(commit->put("a", bytes_of("two a")));
  EXPECT_EQ(*sweep_parts(store, kKey, std::chrono::hours(1)), 0U);
  // Long after, nobody is writing it any more.
  FakeClock later;
  later.advance(std::chrono::hours(24) * 365 * 100);
  EXPECT_EQ(*sweep_parts(store, kKey, std::chrono::hours(1), later), 1U);
  EXPECT_EQ(seen(store), "one");
}

}  // namespace
}  // namespace yard::storage
