#include "prep/ledger.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "prep/object_events.h"
#include "prep/prep_messages.h"
#include "prep/spec.h"
#include "storage/memory_store.h"

namespace yard::prep {
namespace {

class LedgerTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = testing::TempDir() + "/ledger-" + std::to_string(getpid());
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  static PackedSample sample(const std::string& name, const std::string& contributor = "ada") {
    return {{name + ".png", "v1"}, name, "sha-" + name, 5, contributor, "CC0"};
  }
  std::string path() const { return dir_ + "/ledger.db"; }

  std::string dir_;
};

TEST_F(LedgerTest, AShardThatIsForgottenWasNeverThere) {
  auto ledger = Ledger::open(path());
  ASSERT_TRUE(ledger) << ledger.error().message;
  ASSERT_TRUE(ledger->begin_shard({.number = 0, .key = "s-0.tar", .sample_count = 1}, {sample("a")},
                                  {{{"b.png", "v1"}, "too_small: 1 x 1"}}));
  EXPECT_EQ((*ledger->pending())->key, "s-0.tar");
  EXPECT_EQ((*ledger->pending_shard_of({"b.png", "v1"}))->number, 0);
  EXPECT_TRUE(*ledger->knows({"a.png", "v1"}));
  EXPECT_TRUE(*ledger->forget_shard(0));
  EXPECT_FALSE(*ledger->forget_shard(0));
  EXPECT_FALSE(*ledger->confirm_shard({0, "s-0.tar", "etag", 77, 1}));
  EXPECT_FALSE(ledger->pending()->has_value());
  EXPECT_FALSE(*ledger->knows({"a.png", "v1"}));
  EXPECT_FALSE(*ledger->knows({"b.png", "v1"}));
  EXPECT_EQ(*ledger->next_shard_number(), 0);
  EXPECT_EQ(*ledger->manifest_due(), 0);
}

TEST_F(LedgerTest, WhatIsConfirmedStaysAndCannotComeTwice) {
  {
    auto ledger = Ledger::open(path());
    ASSERT_TRUE(ledger->begin_shard({.number = 0, .key = "s-0.tar", .sample_count = 2},
                                    {sample("a"), sample("c", "bob")},
                                    {{{"b.png", "v1"}, "too_small: 1 x 1"}}));
    ASSERT_TRUE(ledger->confirm_shard({0, "s-0.tar", "etag", 77, 2}));
  }
  auto ledger = Ledger::open(path());
  EXPECT_FALSE(ledger->pending()->has_value());
  EXPECT_EQ(*ledger->next_shard_number(), 1);
  EXPECT_TRUE(*ledger->has_other_version({"a.png", "v2"}));
  EXPECT_FALSE(*ledger->has_other_version({"b.png", "v2"}));  // it was dropped
  EXPECT_EQ(*ledger->object_of_sha256("sha-a"), "a.png");
  EXPECT_EQ(*ledger->object_of_sha256(""), "");
  EXPECT_EQ(ledger->hashes()->size(), 2U);
  EXPECT_FALSE(
      ledger->begin_shard({.number = 1, .key = "s-1.tar", .sample_count = 1}, {sample("a")}, {}));
  EXPECT_FALSE(ledger->pending()->has_value());  // none of it
  const auto counts = ledger->counts();
  EXPECT_EQ(counts->packed, 2);
  EXPECT_EQ(counts->dropped, (std::map<std::string, int64_t>{{"too_small", 1}}));
  EXPECT_EQ(counts->shard_bytes, 77);
  EXPECT_EQ(*ledger->manifest_due(), 1);
  ASSERT_TRUE(ledger->manifest_published(1));
  EXPECT_EQ(*ledger->manifest_due(), 0);
}

TEST_F(LedgerTest, AWithdrawalIsUnfinishedUntilItsShardsAreRewritten) {
  auto ledger = Ledger::open(path());
  ASSERT_TRUE(ledger->begin_shard({.number = 0, .key = "s-0.tar", .sample_count = 2},
                                  {sample("a"), sample("c", "bob")}, {}));
  ASSERT_TRUE(ledger->confirm_shard({0, "s-0.tar", "etag", 77, 2}));
  EXPECT_EQ(ledger->withdraw("nobody")->size(), 0U);
  EXPECT_EQ(ledger->withdraw("ada")->size(), 1U);
  EXPECT_EQ(ledger->withdraw("ada")->size(), 1U);  // the shard still holds theirs
  EXPECT_EQ(*ledger->sample_keys(0), std::vector<std::string>{"c"});
  ASSERT_TRUE(ledger->rewritten({0, "s-0.tar", "etag2", 40, 1}));
  EXPECT_EQ(ledger->withdraw("ada")->size(), 0U);
  EXPECT_TRUE(*ledger->is_withdrawn("ada"));
  EXPECT_FALSE(*ledger->is_withdrawn("bob"));
  EXPECT_EQ(ledger->counts()->removed, 1);
  EXPECT_EQ(ledger->hashes()->size(), 1U);
}

TEST_F(LedgerTest, EachWriterHasShardsOfItsOwnAndOthersMayLook) {
  auto first = Ledger::open(path());
  ASSERT_TRUE(first);
  EXPECT_EQ(Ledger::open_as({.path = path(), .writer = 0}).error().code, Code::kUnavailable);
  auto second = Ledger::open(path());
  ASSERT_TRUE(second);
  EXPECT_EQ(second->writer(), 1);
  const int64_t number = *second->next_shard_number();
  EXPECT_EQ(Ledger::shard_key("p", number), "p-w1-000000.tar");
  EXPECT_EQ(Ledger::shard_key("p", *first->next_shard_number()), "p-000000.tar");
  ASSERT_TRUE(second->begin_shard({.number = number, .key = "k"}, {sample("a")}, {}));
  EXPECT_FALSE(first->pending()->has_value());
  EXPECT_EQ(*second->next_shard_number(), number + 1);
  auto other = Ledger::open_read_only(path());
  ASSERT_TRUE(other);
  EXPECT_TRUE(*other->knows({"a.png", "v1"}));
  EXPECT_FALSE(other->add_dropped({{{"a", "1"}, "gone"}}));
  EXPECT_EQ(Ledger::open_read_only(dir_ + "/none").error().code, Code::kNotFound);
}

class LedgerJournalTest : public LedgerTest {
 protected:
  Result<Ledger> open(const std::string& host, int writer) {
    return Ledger::open_as({.path = dir_ + "/" + host + ".db",
                            .writer = writer,
                            .journal = store_,
                            .journal_prefix = "ledger/"});
  }
  std::shared_ptr<storage::MemoryStore> store_ = std::make_shared<storage::MemoryStore>();
};

TEST_F(LedgerJournalTest, WhatOneHostWritesAllOthersKnow) {
  auto first = open("a", 0), second = open("b", 1);
  ASSERT_TRUE(first && second);
  EXPECT_TRUE(*first->begin_shard({.number = 0, .key = "s-0.tar"}, {sample("a")},
                                  {{{"b.png", "v1"}, "flat"}}));
  EXPECT_FALSE(*second->knows({"a.png", "v1"}));
  int asked = 0;
  // It is asked with all that others did before, and its No changes nothing.
  EXPECT_FALSE(*second->begin_shard(
      {.number = 1'000'000'000, .key = "s-w1-0.tar"}, {sample("a")}, {}, [&]() -> Result<bool> {
        ++asked;
        YARD_ASSIGN(const bool is_known, second->knows({"a.png", "v1"}));
        return !is_known;
      }));
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(*second->confirm_shard({0, "s-0.tar", "etag", 77, 1}));
  ASSERT_TRUE(second->add_rejected({{"bad.png", "v1"}}));
  auto third = open("c", 2);
  ASSERT_TRUE(third) << third.error().message;
  EXPECT_EQ(third->counts()->packed, 1);
  EXPECT_EQ(third->counts()->shard_bytes, 77);
  EXPECT_TRUE(*third->is_rejected({"bad.png", "v1"}));
  EXPECT_EQ(third->hashes_of_others(0)->size(), 1U);
}

TEST_F(LedgerJournalTest, ThoseWhoPublishAtTheSameTimeLearnWhoWasLater) {
  auto first = open("a", 0), second = open("b", 1);
  ASSERT_TRUE(first->begin_shard({.number = 0, .key = "s-0.tar"}, {sample("a")}, {}));
  ASSERT_TRUE(first->confirm_shard({0, "s-0.tar", "etag", 77, 1}));
  ASSERT_TRUE(second->refresh());
  EXPECT_EQ(*first->manifest_due(), 1);
  EXPECT_EQ(*second->manifest_due(), 1);
  EXPECT_TRUE(*second->manifest_published(1));
  EXPECT_FALSE(*first->manifest_published(1));
  EXPECT_EQ(*first->manifest_due(), 0);
}

TEST_F(LedgerJournalTest, TwoOfOneNumberAreTold) {
  auto first = open("a", 0), again = open("b", 0);
  ASSERT_TRUE(first->add_dropped({{{"x", "1"}, "gone"}}));
  EXPECT_EQ(again->add_dropped({{{"y", "1"}, "gone"}}).error().code, Code::kUnavailable);
}

TEST_F(LedgerJournalTest, ADamagedJournalIsCorrupt) {
  for (const char* entry : {"{", "{}", R"({"op":"fly"})", R"({"op":"begin","number":1})",
                            R"({"op":"drop","dropped":[["a"]]})", R"({"op":"confirm"})"}) {
    ASSERT_TRUE(storage::put_text(*store_, "ledger/00000001.json", entry));
    EXPECT_EQ(open("a", 0).error().code, Code::kCorrupt) << entry;
  }
  ASSERT_TRUE(store_->remove("ledger/00000001.json"));
  ASSERT_TRUE(storage::put_text(*store_, "ledger/00000002.json", "{}"));
  EXPECT_TRUE(open("a", 0)) << "what lies behind a gap was never written by us";
}

TEST(QueueNotification, IsAddedBesideThoseThatAreThere) {
  const std::string arn = "arn:aws:sqs:us-east-1:1:q";
  const std::string rule =
      "<QueueConfiguration><Queue>" + arn + "</Queue><Event>s3:ObjectCreated:*</Event>";
  for (const char* none : {"", "<NotificationConfiguration xmlns=\"http://s3\"/>"}) {
    const auto made = with_queue_notification(none, arn, "in/a&b");
    ASSERT_TRUE(made);
    EXPECT_TRUE(made->starts_with("<NotificationConfiguration>" + rule)) << *made;
    EXPECT_NE(made->find("<Value>in/a&amp;b</Value>"), std::string::npos);
    EXPECT_NE(made->find("<Value>.png</Value>"), std::string::npos);
    EXPECT_EQ(*with_queue_notification(*made, arn, "in/a&b"), *made);
    const auto both = with_queue_notification(*made, arn + "2", "");
    EXPECT_NE(both->find(arn + "</Queue>"), std::string::npos);
    EXPECT_NE(both->find(arn + "2</Queue>"), std::string::npos);
  }
  EXPECT_EQ(with_queue_notification("<Error/>", arn, "").error().code, Code::kInvalidArgument);
}

TEST(ObjectEvents, AreReadBackAndAreThoseOfS3) {
  const ObjectEvent event{"raw", "cats/a b+\xC3\xBC%.png", "\"abc\"", 42};
  const auto read = parse_object_event(write_object_event(event));
  ASSERT_TRUE(read && *read);
  EXPECT_EQ((*read)->key, event.key);
  EXPECT_EQ((*read)->etag, "abc");
  EXPECT_EQ((*read)->size_bytes, 42U);
  const auto s3 = parse_object_event(
      R"({"Records": [{"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "raw"},
          "object": {"key": "a+b.png", "size": 1, "eTag": "x"}}}]})");
  EXPECT_EQ((*s3)->key, "a b.png");
  EXPECT_FALSE(parse_object_event(R"({"Event": "s3:TestEvent"})")->has_value());
  EXPECT_FALSE(
      parse_object_event(R"({"Records": [{"eventName": "ObjectRemoved:Delete"}]})")->has_value());
  for (const char* bad : {"", "[]", "{}", R"({"Records": []})", R"({"Records": [1]})",
                          R"({"Records": [{"eventName": "ObjectCreated:Put"}]})"})
    EXPECT_EQ(parse_object_event(bad).error().code, Code::kInvalidArgument) << bad;
}

TEST(ObjectEvents, SampleKeysAreReadBackWholeByWebDataset) {
  EXPECT_EQ(sample_key_of("raw/cats/a.b", "raw/"), "cats/a_b");
  EXPECT_EQ(sample_key_of("raw/v1.0/a", "raw/"), "v1.0/a");
  EXPECT_EQ(sample_key_of("__meta__/a", ""), "x__meta__/a");
  EXPECT_EQ(sample_key_of("a\nb", ""), "a_b");
  EXPECT_EQ(picture_name("cats/a.b.JPG")->stem, "cats/a.b");
  EXPECT_EQ(picture_name("cats/a.b.JPG")->extension, "jpg");
  EXPECT_FALSE(picture_name("cats.d/.png").has_value());
  EXPECT_FALSE(picture_name("cats.d/png").has_value());
}

TEST(PrepSpec, EveryKeyIsReadAndOthersAreRefused) {
  const auto spec = parse_prep_spec(R"(
name: emoji
source: raw
output: out
shard_size: 1MiB
end_marker: _SUCCESS
queue: {sqs: uploads, notifications: true, visibility: 2m, receives_max: 9}
pictures: {formats: [png], aspect_max: 2.5, caption_required: false, near_duplicate_distance: 8}
encode: {format: jpeg, side_max: 512}
steps: [{command: "python3 'a b.py' -x", timeout: 5s}]
)",
                                    "s.yaml");
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->shard_bytes_max, 1U << 20);
  EXPECT_EQ(spec->visibility.count(), 120);
  EXPECT_EQ(spec->queue_sqs, "uploads");
  EXPECT_EQ(spec->end_marker, "_SUCCESS");
  EXPECT_EQ(spec->pictures.near_duplicate_distance, 8);
  EXPECT_FALSE(spec->pictures.caption_required);
  EXPECT_EQ(spec->encode.format, EncodeFormat::kJpeg);
  EXPECT_EQ(spec->steps[0].command, (std::vector<std::string>{"python3", "a b.py", "-x"}));
  for (const char* bad :
       {"", "[", "source: a", "{source: a, output: b, pictures: 3}",
        "{source: a, output: b, sorce: c}", "{source: a, output: b, shard_size: -1}",
        "{source: a, output: b, pictures: {near_duplicate_distance: 16}}",
        "{source: a, output: b, steps: [{command: 'x \"y'}]}",
        "{source: a, output: b, name: 'a/b'}",
        "{source: a, output: b, queue: {sqs: a, path: q.db}}",
        "{source: a, output: b, queue: {notifications: true}}",
        "{source: a, output: b, steps: [{command: x, url: 'http://y'}]}",
        "{source: a, output: b, steps: [{url: 'ftp://y'}]}",
        "{source: a, output: b, pictures: {side_min: 9, side_max: 3}}"})
    EXPECT_EQ(parse_prep_spec(bad, "s.yaml").error().code, Code::kInvalidArgument) << bad;
}

}  // namespace
}  // namespace yard::prep
