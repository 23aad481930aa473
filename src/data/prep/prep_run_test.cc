#include "prep/prep_run.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <thread>

#include "images/picture.h"
#include "prep/object_events.h"
#include "prep/prep_shard.h"
#include "prep/step_process.h"
#include "shards/shard_reader.h"
#include "storage/memory_store.h"

namespace yard::prep {
namespace {

class PrepRunTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = testing::TempDir() + "/prep-run-" + std::to_string(getpid());
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    spec_.name = "t";
    spec_.source = "memory";
    spec_.output = "memory";
    spec_.workers = 3;
    spec_.shard_bytes_max = 40'000;
    spec_.visibility = std::chrono::seconds(1);
    spec_.receive_count_max = 1000;
    places_.source = source_;
    places_.output = output_;
    places_.state_dir = dir_;
    places_.env = {{"PATH", "/usr/bin:/bin"}};
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void add_picture(int number) {
    images::Picture picture{33, 31, {}};
    for (int i = 0; i < 33 * 31 * 3; ++i)
      picture.pixels.push_back(uint8_t(i * (number + 1) + i / 7 * number));
    const auto png = images::encode_png(picture);
    ASSERT_TRUE(source_->put("p/" + std::to_string(number) + ".png", *png, {}));
    ASSERT_TRUE(storage::put_text(*source_, "p/" + std::to_string(number) + ".txt", "a caption"));
  }

  // How often each key is in the shards.
  std::map<std::string, int> packed() {
    std::map<std::string, int> counts;
    const auto objects = storage::list_all(*output_, "");
    for (const storage::ObjectInfo& object : *objects) {
      if (!object.key.ends_with(".tar")) continue;
      const auto scanned = shards::scan_shard(*output_, object.key);
      EXPECT_TRUE(scanned) << scanned.error().message;
      for (uint64_t i = 0; i < scanned->index.sample_count(); ++i)
        ++counts[std::string(scanned->index.key(i))];
    }
    return counts;
  }

  std::string dir_;
  PrepSpec spec_;
  PrepPlaces places_;
  std::shared_ptr<storage::MemoryStore> source_ = std::make_shared<storage::MemoryStore>();
  std::shared_ptr<storage::MemoryStore> output_ = std::make_shared<storage::MemoryStore>();
};

TEST_F(PrepRunTest, EveryPictureIsPackedOnce) {
  for (int i = 0; i < 60; ++i) add_picture(i);
  const auto report = run_prep(spec_, places_, {}, {});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->done.packed, 60U);
  EXPECT_GT(report->done.shards, 3U);
  const auto counts = packed();
  EXPECT_EQ(counts.size(), 60U);
  for (const auto& [key, count] : counts) EXPECT_EQ(count, 1) << key;
  EXPECT_EQ(run_prep(spec_, places_, {}, {})->done.taken, 0U);
}

TEST_F(PrepRunTest, AShardThatIsThereButNotConfirmedIsConfirmed) {
  const auto put = [&](const std::string& sample_key) {
    auto shard = PrepShard::begin(*output_, "shard-000000.tar");
    const std::string text = "{}";
    const std::vector<shards::NewMember> members = {
        {"json", std::as_bytes(std::span(text.data(), text.size()))}};
    ASSERT_TRUE(shard->add(sample_key, members));
    ASSERT_TRUE(shard->commit());
  };
  {
    auto ledger = Ledger::open(ledger_path(dir_));
    ASSERT_TRUE(ledger->begin_shard({.number = 0, .key = "shard-000000.tar", .sample_count = 1},
                                    {{{"p/0.png", "x"}, "p/0", "", 0, "", ""}}, {}));
  }
  put("other");
  EXPECT_EQ(run_prep(spec_, places_, {}, {}).error().code, Code::kCorrupt);
  put("p/0");
  ASSERT_TRUE(output_->remove("shard-000000.tar.idx"));  // it died before that, too
  ASSERT_TRUE(run_prep(spec_, places_, {}, {}));
  EXPECT_TRUE(output_->head("shard-000000.tar.idx"));
  EXPECT_EQ(prep_status(spec_, places_)->ledger.packed, 1);
}

TEST_F(PrepRunTest, AStopLeavesTheRestForTheNextRun) {
  for (int i = 0; i < 30; ++i) add_picture(i);
  StopSource stop;
  PrepRunOptions options;
  options.follow = true;
  options.progress = [&](const PrepProgress& at) {
    if (at.taken > 10) stop.request();
  };
  const auto report = run_prep(spec_, places_, options, stop.token());
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->done.taken, report->done.packed);
  ASSERT_TRUE(run_prep(spec_, places_, {}, {}));
  EXPECT_EQ(packed().size(), 30U);
}

// Two hosts: folders of their own, a ledger's journal and pictures in common.
TEST_F(PrepRunTest, HostsThatShareALedgerPackEveryPictureOnce) {
  for (int i = 0; i < 80; ++i) add_picture(i);
  for (int i = 0; i < 6; ++i) {  // twins, of which either host may have one
    const auto bytes = storage::get_all(*source_, "p/" + std::to_string(i) + ".png");
    ASSERT_TRUE(storage::put_text(*source_, "p/twin" + std::to_string(i) + ".png", *bytes));
    ASSERT_TRUE(storage::put_text(*source_, "p/twin" + std::to_string(i) + ".txt", "a caption"));
  }
  ASSERT_TRUE(storage::put_text(*source_, "p/bad.png", "no picture"));
  const auto journal = std::make_shared<storage::MemoryStore>();
  std::vector<std::thread> hosts;
  std::vector<Result<PrepReport>> reports(2, Error{Code::kInternal, "did not run"});
  for (int host = 0; host < 2; ++host) {
    PrepPlaces places = places_;
    places.state_dir = dir_ + "/host-" + std::to_string(host);
    std::filesystem::create_directories(places.state_dir);
    places.journal = journal;
    places.journal_prefix = "state/";
    places.writer = places.share_index = host;
    places.share_count = 2;
    hosts.emplace_back([this, &reports, host, places] {
      reports[size_t(host)] = run_prep(spec_, places, {}, {});
    });
  }
  for (std::thread& host : hosts) host.join();
  uint64_t taken = 0;
  for (const auto& report : reports) {
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_GT(report->done.packed, 10U);
    taken += report->done.packed + report->done.dropped;
  }
  EXPECT_EQ(taken, 86U);
  const auto counts = packed();
  EXPECT_EQ(counts.size(), 80U);
  for (const auto& [key, count] : counts) EXPECT_EQ(count, 1) << key;
  // A host that begins with nothing of its own knows it all, dead letters too.
  PrepPlaces places = places_;
  places.state_dir = dir_ + "/host-2";
  std::filesystem::create_directories(places.state_dir);
  places.journal = journal;
  places.journal_prefix = "state/";
  const auto again = run_prep(spec_, places, {}, {});
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->done.taken, 0U);
  const auto status = prep_status(spec_, places);
  EXPECT_EQ(status->ledger.packed, 80);
  EXPECT_EQ(status->ledger.dropped, (std::map<std::string, int64_t>{{"duplicate", 6}}));
}

TEST_F(PrepRunTest, AShardOfAWriterThatDiedIsSettledByWhoGetsItsMessages) {
  for (int i = 0; i < 5; ++i) add_picture(i);
  const auto version = [&](int i) {
    std::string etag = source_->head("p/" + std::to_string(i) + ".png")->etag;
    std::erase(etag, '"');
    return ObjectVersion{"p/" + std::to_string(i) + ".png", etag};
  };
  {
    auto other = Ledger::open_as({.path = ledger_path(dir_), .writer = 7});
    const int64_t number = *other->next_shard_number();
    ASSERT_TRUE(other->begin_shard({.number = number, .key = "shard-w7-000000.tar"},
                                   {{version(0), "p/0", "s0", 0, "", ""}}, {{version(1), "flat"}}));
  }
  const auto report = run_prep(spec_, places_, {}, {});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(packed().size(), 5U);
  EXPECT_EQ(prep_status(spec_, places_)->ledger.packed, 5);
  EXPECT_EQ(prep_status(spec_, places_)->ledger.dropped.size(), 0U);
}

TEST_F(PrepRunTest, StepsSeeEveryPictureAndAddToIt) {
  for (int i = 0; i < 12; ++i) add_picture(i);
  StepSpec step;
  step.name = "sed";
  step.command = {"sed", "-u", R"(s/.*"id":\([0-9]*\).*/{"id":\1,"fields":{"caption":"said"}}/)"};
  step.batch = 5;
  spec_.steps = {step, step};
  const auto report = run_prep(spec_, places_, {}, {});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->done.packed, 12U);
  const auto reader = shards::ShardReader::open(*output_, "shard-000000.tar");
  const auto* caption = reader->index().find(0, "txt");
  std::vector<std::byte> buffer;
  const auto contents = reader->read(0, std::span(caption, 1), buffer);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>((*contents)[0].data()), 4), "said");
}

TEST(StepProcess, AProgramThatCannotBeStartedIsAnError) {
  StepProcess process({.name = "x", .command = {"/no/such/program"}}, {});
  EXPECT_EQ(process.ask({{"k", "/p", Json::object()}}, {}).error().code, Code::kNotFound);
}

TEST(StepProcess, OneThatOnlyEndsIsGivenUpAfterTenTries) {
  StepProcess process({.name = "x", .command = {"/bin/true"}}, {});
  int tries = 0;
  while (tries < 20) {
    const auto answers = process.ask({{"k", "/p", Json::object()}}, {});
    ++tries;
    if (!answers) {
      EXPECT_EQ(answers.error().code, Code::kUnavailable);
      break;
    }
    EXPECT_FALSE((*answers)[0].error.empty());
  }
  EXPECT_EQ(tries, StepProcess::kFailuresMax);
}

}  // namespace
}  // namespace yard::prep
