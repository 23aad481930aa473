// What a loader can be asked for besides the plain stream: remote stores, ranks by themselves,
// ends, mixes, aspect buckets, values and layouts, raw members, turns.
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <map>
#include <mutex>

#include "base/file.h"
#include "loader/loader_options_internal.h"
#include "loader/testing/loader_fixture.h"
#include "shards/shard_index.h"
#include "storage/testing/faulty_store.h"

namespace yard::loader {
namespace {

using storage::testing::Call;
using storage::testing::FaultyStore;
using storage::testing::Method;
using testing::expect_equal;
using testing::LoaderTest;
using testing::picture_of;

// ---- ranks by themselves

TEST_F(LoaderTest, IndependentRanksReadTheirOwnShardsOnly) {
  make_shards(70, 10);
  options_.mode = ShardMode::kIndependent;
  options_.world_size = 3;
  std::set<std::string> all;
  size_t total = 0;
  for (options_.rank = 0; options_.rank < 3; ++options_.rank) {
    std::mutex mutex;
    std::set<std::string> touched;
    FaultyStore watched(store_, [&](const Call& call) -> Status {
      const std::lock_guard lock(mutex);
      if (!call.key.empty()) touched.insert(std::string(call.key.substr(0, 5)));
      return Ok{};
    });
    auto loader = open(watched);
    EXPECT_EQ(loader->sample_count(), options_.rank == 0 ? 30 : 20);
    EXPECT_EQ(loader->batches_per_epoch(), options_.rank == 0 ? 15 : 10);
    const int count = int(loader->batches_per_epoch());
    std::set<std::string> keys;
    for (const Batch& batch : batches(*loader, count)) {
      EXPECT_EQ(batch.size, 2);
      keys.insert(batch.keys.begin(), batch.keys.end());
    }
    EXPECT_EQ(keys.size(), size_t(2 * count));
    EXPECT_EQ(touched.size(), options_.rank == 0 ? 3U : 2U);
    all.insert(keys.begin(), keys.end());
    total += keys.size();
  }
  EXPECT_EQ(total, 70U);
  EXPECT_EQ(all.size(), 70U);
}

TEST_F(LoaderTest, FewerShardsThanIndependentRanksAreRefused) {
  make_shards(20);
  options_.mode = ShardMode::kIndependent;
  options_.world_size = 3;
  const Error error = open_error();
  EXPECT_EQ(error.code, Code::kInvalidArgument);
  EXPECT_NE(error.message.find("2 shards cannot be dealt to 3 ranks"), std::string::npos);
  options_.mode = ShardMode::kGlobal;
  EXPECT_TRUE(open());
}

// ---- ends, sources, buckets

TEST_F(LoaderTest, PaddedEndsAreMarkedAndEverySampleComesOnce) {
  make_shards(20);
  options_.ends = shards::EndPolicy::kPad;
  for (const int world : {1, 2, 3}) {
    options_.world_size = world;
    std::multiset<uint64_t> ids;
    int padding = 0;
    for (options_.rank = 0; options_.rank < world; ++options_.rank) {
      auto loader = open();
      ASSERT_EQ(loader->batches_per_epoch(), 4);
      for (const Batch& batch : batches(*loader, 4))
        for (size_t i = 0; i < batch.sample_ids.size(); ++i) {
          if (batch.is_padding[i] == 0) ids.insert(batch.sample_ids[i]);
          padding += batch.is_padding[i];
        }
    }
    EXPECT_EQ(padding, 4);
    EXPECT_EQ(ids.size(), 20U);
    EXPECT_EQ(std::set<uint64_t>(ids.begin(), ids.end()).size(), 20U);
  }
}

TEST_F(LoaderTest, ASingleSampleMakesWholeBatches) {
  make_shards(1);
  options_.ends = shards::EndPolicy::kWrap;
  const auto got = batches(*open(), 3);
  ASSERT_EQ(got.size(), 3U);
  EXPECT_EQ(got[2].sample_ids, std::vector<uint64_t>(6, 0));
  EXPECT_EQ(got[2].position.epoch, 2U);
  options_.ends = shards::EndPolicy::kDrop;
  EXPECT_EQ(open_error().code, Code::kInvalidArgument);
}

TEST_F(LoaderTest, SourcesOfTwoStoresAreMixedByWeight) {
  make_shards(30);
  const auto first = options_.shards;
  storage::MemoryStore other;
  {
    auto writer = shards::ShardWriter::create(other, {.prefix = "other"});
    ASSERT_TRUE(writer);
    for (int i = 0; i < 12; ++i) add_sample(*writer, 500 + i, false, true);
    ASSERT_TRUE(writer->finish());
  }
  options_.shards.clear();
  options_.sources = {{nullptr, first, 1}, {&other, {"other-000000.tar"}, 3}};
  const int kBatches = 4096 / 6;
  int of_other = 0;
  for (const Batch& batch : batches(*open(), kBatches))
    for (const std::string& key : batch.keys) of_other += key.starts_with("other");
  EXPECT_NEAR(of_other, 3072, 12);
  options_.shards = first;
  EXPECT_EQ(open_error().code, Code::kInvalidArgument);
}

// 80 samples of four aspects, for three buckets.
class AspectTest : public LoaderTest {
 protected:
  void SetUp() override {
    auto writer = shards::ShardWriter::create(store_, {.prefix = "aspects"});
    ASSERT_TRUE(writer);
    const std::pair<int, int> sizes[] = {{24, 16}, {16, 24}, {20, 20}, {60, 16}};
    for (int i = 0; i < 80; ++i) {
      const auto [width, height] = sizes[i % 4];
      const auto picture = picture_of(i, width, height);
      const std::string caption = "c";
      ASSERT_TRUE(writer->add("k" + std::to_string(100 + i),
                              std::vector<shards::NewMember>{
                                  {"png", picture}, {"txt", std::as_bytes(std::span(caption))}}));
    }
    ASSERT_TRUE(writer->finish());
    options_.shards = {"aspects-000000.tar"};
    options_.aspect_buckets = {{12, 8}, {8, 12}, {10, 10}};
  }
  // As indexes were before they had sizes.
  void forget_sizes() {
    const auto index =
        shards::ShardIndex::decode(*storage::get_all(store_, "aspects-000000.tar.idx"), "idx");
    shards::ShardIndexBuilder builder;
    for (uint64_t i = 0; i < index->sample_count(); ++i)
      for (const auto& member : index->members(i))
        ASSERT_TRUE(builder.add(index->member_name(i, member), member.offset, member.size_bytes,
                                member.crc32c));
    const auto shard = store_.head("aspects-000000.tar");
    ASSERT_TRUE(
        storage::put_text(store_, "aspects-000000.tar.idx", builder.finish(*shard).encode()));
  }
  // Requests for bytes of shards until it is known which sample goes to which bucket.
  int reads_of_buckets() {
    std::atomic<int> count = 0;
    FaultyStore watched(store_, [&](const Call& call) -> Status {
      count += call.method == Method::kGetRange && call.key.ends_with(".tar");
      return Ok{};
    });
    auto set = DataSet::open(watched, options_);
    auto quarantine = Quarantine::open("");
    EXPECT_TRUE(set && quarantine);
    const auto plan = plan_options_of(**set, options_, **quarantine, counters_);
    EXPECT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->buckets.size(), 80U);
    return count;
  }
};

TEST_F(AspectTest, BatchesAreOfOneAspectEach) {
  std::map<int, int> batch_counts;
  std::set<uint64_t> ids;
  auto loader = open();
  for (const Batch& batch : batches(*loader, int(loader->batches_per_epoch()))) {
    ++batch_counts[batch.image_size.width];
    EXPECT_EQ(batch.images.floats().size(),
              6U * 3 * size_t(batch.image_size.width) * size_t(batch.image_size.height));
    for (const uint64_t id : batch.sample_ids) {
      const int expected[] = {12, 8, 10, 12};
      EXPECT_EQ(batch.image_size.width, expected[id % 4]);
      ids.insert(id);
    }
  }
  EXPECT_EQ(batch_counts, (std::map<int, int>{{8, 3}, {10, 3}, {12, 6}}));
  EXPECT_EQ(ids.size(), 72U);
}

TEST_F(AspectTest, SizesOfTheIndexSpareReadingThePictures) {
  EXPECT_EQ(reads_of_buckets(), 0);
  const auto expected = batches(*open(), 24);
  forget_sizes();
  EXPECT_EQ(reads_of_buckets(), 80);
  const auto got = batches(*open(), 24);
  for (size_t i = 0; i < 24; ++i) expect_equal(got[i], expected[i]);
}

TEST_F(LoaderTest, AFilterChoosesSamplesByTheirMetadata) {
  auto writer = shards::ShardWriter::create(store_, {.prefix = "filtered"});
  ASSERT_TRUE(writer);
  for (int i = 0; i < 40; ++i) {
    const auto picture = picture_of(i);
    const std::string caption = "c";
    const std::string metadata = i == 7 ? "no JSON" : "{\"number\": " + std::to_string(i) + "}";
    std::vector<shards::NewMember> members = {{"png", picture},
                                              {"txt", std::as_bytes(std::span(caption))}};
    if (i != 8) members.push_back({"json", std::as_bytes(std::span(metadata))});
    ASSERT_TRUE(writer->add("k" + std::to_string(100 + i), members));
  }
  ASSERT_TRUE(writer->finish());
  options_.shards = {"filtered-000000.tar"};
  options_.filter = "number >= 4 and number < 28";
  EXPECT_EQ(open_error().code, Code::kCorrupt);  // the first bad one
  options_.bad_samples = BadSamplePolicy::kSkip;
  auto loader = open();
  EXPECT_EQ(loader->sample_count(), 22);
  std::set<uint64_t> ids;
  for (const Batch& batch : batches(*loader, 3))
    ids.insert(batch.sample_ids.begin(), batch.sample_ids.end());
  EXPECT_EQ(ids.size(), 18U);
  for (const uint64_t id : ids) EXPECT_TRUE(id >= 4 && id < 28 && id != 7 && id != 8) << id;
  FaultyStore remote(
      store_, [](const Call&) -> Status { return Ok{}; }, true);
  const auto expected = batches(*open(), 9);
  const auto from_remote = batches(*open(remote), 9);
  for (size_t i = 0; i < 9; ++i) expect_equal(from_remote[i], expected[i]);
  options_.filter = "number >";
  EXPECT_EQ(open_error().code, Code::kInvalidArgument);
  options_.filter = "number < 0";
  EXPECT_EQ(open_error().code, Code::kInvalidArgument);  // none is left
}

TEST(LoaderOptionsTest, TheNearestBucketIsByTheRatioOfSides) {
  const std::vector<images::Size> buckets = {{100, 100}, {200, 100}, {100, 200}};
  EXPECT_EQ(nearest_bucket({50, 50}, buckets), 0U);
  EXPECT_EQ(nearest_bucket({150, 100}, buckets), 1U);  // log 1.5 is nearer to log 2
  EXPECT_EQ(nearest_bucket({140, 100}, buckets), 0U);
  EXPECT_EQ(nearest_bucket({10, 100}, buckets), 2U);
}

// ---- values and layouts

TEST_F(LoaderTest, ValuesAndLayoutsAreThoseAskedFor) {
  make_shards(12);
  const auto floats = batches(*open(), 2);
  for (const uint64_t cache : {uint64_t{0}, uint64_t{1} << 20}) {
    options_.cache_bytes_max = cache;
    const auto reference = batches(*open(), 2);
    const auto levels_of = [&](images::PixelType type, images::Layout layout) {
      options_.render = {.layout = layout, .type = type};
      return batches(*open(), 2);
    };
    const auto bytes = levels_of(images::PixelType::kUint8, images::Layout::kInterleaved);
    const auto halves = levels_of(images::PixelType::kBfloat16, images::Layout::kPlanar);
    options_.render = {};
    for (size_t b = 0; b < 2; ++b) {
      const auto exact = reference[b].images.floats();
      const auto* half = reinterpret_cast<const uint16_t*>(halves[b].images.bytes().data());
      ASSERT_EQ(halves[b].images.bytes().size(), exact.size() * 2);
      ASSERT_EQ(bytes[b].images.bytes().size(), exact.size());
      for (size_t i = 0; i < exact.size(); ++i) {
        ASSERT_NEAR(std::bit_cast<float>(uint32_t{half[i]} << 16), exact[i], 0.004);
        const size_t sample = i / 192, channel = i % 192 / 64, place = i % 64;
        const auto level =
            std::to_integer<int>(bytes[b].images.bytes()[sample * 192 + place * 3 + channel]);
        ASSERT_NEAR(float(level) / 127.5F - 1, exact[i], 0.5 / 127.5 + 1e-5);
      }
      EXPECT_EQ(bytes[b].sample_ids, floats[b].sample_ids);
    }
  }
}

TEST_F(LoaderTest, ResizedCropsAreDrawnForEachSampleAndEpochAndNothingElse) {
  make_shards(12);
  options_.random_resized_crop.emplace();
  options_.random_flip = true;
  const auto expected = batches(*open(), 6);
  options_.thread_count = 4;
  const auto got = batches(*open(), 6);
  std::set<std::vector<float>> pictures;
  for (size_t b = 0; b < 6; ++b) {
    expect_equal(got[b], expected[b]);
    for (size_t i = 0; i < 6; ++i)
      if (got[b].sample_ids[i] == 0) {
        const auto pixels = got[b].images.floats().subspan(i * 192, 192);
        pictures.emplace(pixels.begin(), pixels.end());
      }
  }
  EXPECT_EQ(pictures.size(), 3U);  // one for each epoch
}

// ---- raw members, quarantine, report

TEST_F(LoaderTest, RawSamplesHaveTheirMembersAsTheyAre) {
  make_shards(12, 10, {}, {5});
  options_.raw = true;
  for (const bool is_remote : {false, true}) {
    FaultyStore store(
        store_, [](const Call&) -> Status { return Ok{}; }, is_remote);
    for (const Batch& batch : batches(*open(store), 2)) {
      EXPECT_TRUE(batch.images.empty());
      ASSERT_EQ(batch.samples.size(), 6U);
      for (size_t i = 0; i < 6; ++i) {
        const int id = int(batch.sample_ids[i]);
        const auto& members = batch.samples[i].members;
        ASSERT_EQ(members.size(), id == 5 ? 1U : 2U);
        EXPECT_EQ(members.back().extension, "png");
        EXPECT_TRUE(std::ranges::equal(members.back().content, picture_of(id)));
        if (id != 5) {
          EXPECT_EQ(members[0].extension, "txt");
          EXPECT_EQ(members[0].content.size(), (" caption " + std::to_string(id) + "\n").size());
        }
      }
    }
  }
}

TEST_F(LoaderTest, WithoutACaptionMemberThereAreNoCaptions) {
  make_shards(12, 10, {}, {5});
  options_.caption_member.clear();
  for (const Batch& batch : batches(*open(), 2)) EXPECT_TRUE(batch.captions.empty());
}

TEST_F(LoaderTest, SkippedSamplesAreWrittenDown) {
  make_shards(12, 12, {7});
  const std::string path = ::testing::TempDir() + "/quarantine-" + std::to_string(::getpid());
  ::unlink(path.c_str());
  options_.bad_samples = BadSamplePolicy::kSkip;
  options_.quarantine_path = path;
  batches(*open(), 2);
  const std::string text = *read_file(path);
  EXPECT_NE(text.find("\"sample_id\":7"), std::string::npos) << text;
  EXPECT_NE(text.find("k1007"), std::string::npos) << text;
  ::unlink(path.c_str());
  options_.quarantine_path = "/none/there";
  EXPECT_EQ(open_error().code, Code::kNotFound);
}

TEST_F(LoaderTest, SamplesAreCountedOverEpochs) {
  make_shards(12);
  const auto got = batches(*open(), 5);
  for (size_t b = 0; b < 5; ++b) EXPECT_EQ(got[b].first_sample_number, b * 6);
  EXPECT_EQ(batches(*open({3, 1}), 1)[0].first_sample_number, 42U);
}

TEST(LoaderReportTest, SaysInOneLineWhatBounds) {
  LoaderReport report{.seconds = 10,
                      .consumer_wait_seconds = 5,
                      .decode_seconds = 18,
                      .read_wait_seconds = 1,
                      .idle_seconds = 1,
                      .thread_count = 2,
                      .sample_count = 1000,
                      .read_bytes = 50'000'000};
  EXPECT_EQ(
      report.to_string(),
      "decoding bounds: 100 samples/s, 5.0 MB/s; threads decode 90 %, wait for the store 5 %, "
      "are idle 5 %; the consumer waits 50.0 %");
  report.read_wait_seconds = 19;
  EXPECT_TRUE(report.to_string().starts_with("the store bounds"));
  report.consumer_wait_seconds = 0.1;
  EXPECT_TRUE(report.to_string().starts_with("the consumer bounds"));
}

// ---- turns, order, waiting

TEST_F(LoaderTest, LoadersThatTakeTurnsGiveTheStreamOfOne) {
  make_shards(50);  // 8 batches of 6 an epoch
  const auto expected = batches(*open(), 24);
  for (const int count : {2, 3, 8}) {
    options_.turn_count = count;
    std::vector<std::unique_ptr<Loader>> loaders;
    for (options_.turn = 0; options_.turn < count; ++options_.turn)
      loaders.push_back(open({0, uint64_t(options_.turn)}));
    for (const Batch& batch : expected) {
      const auto got = batches(*loaders[batch.position.batch % uint64_t(count)], 1);
      expect_equal(got[0], batch);
    }
  }
}

TEST_F(LoaderTest, AnotherTurnsBatchAndATurnWithoutBatchesAreRefused) {
  make_shards(50);
  options_.turn_count = 3;
  options_.turn = 1;
  EXPECT_TRUE(open({0, 4}));
  EXPECT_TRUE(open({0, 8}));  // the end of the epoch
  EXPECT_FALSE(Loader::open(store_, options_, {0, 3}, counters_));
  EXPECT_NE(open_error().message.find("batch 0 is not of turn 1 of 3"), std::string::npos);
  options_.turn_count = 9;
  options_.turn = 8;
  EXPECT_NE(open_error().message.find("no batch of an epoch of 8"), std::string::npos);
  options_.turn = 9;
  EXPECT_NE(open_error().message.find("no turn 9 of 9"), std::string::npos);
}

TEST_F(LoaderTest, WithoutShuffleTheOrderIsThatOfTheShards) {
  make_shards(50);
  options_.shuffle = false;
  const auto got = batches(*open(), 10);
  for (uint64_t i = 0; i < 60; ++i)
    EXPECT_EQ(got[i / 6].sample_ids[i % 6], i < 48 ? i : i - 48);  // a second epoch, the same
}

TEST_F(LoaderTest, WaitingIsBoundedAndLosesNothing) {
  make_shards(50);
  const auto expected = batches(*open(), 4);
  std::atomic<bool> is_closed = true;
  FaultyStore slow(store_, [&](const Call& call) -> Status {
    if (call.method == Method::kGetRange && call.key.ends_with(".tar")) is_closed.wait(true);
    return Ok{};
  });
  auto loader = Loader::open(slow, options_, {}, counters_);
  ASSERT_TRUE(loader);
  EXPECT_FALSE((*loader)->wait_for(std::chrono::milliseconds(1)));
  EXPECT_GT((*loader)->wait_seconds(), 0);
  is_closed = false;
  is_closed.notify_all();
  for (const Batch& batch : expected) {
    while (!(*loader)->wait_for(std::chrono::seconds(60))) {
    }
    expect_equal(*(*loader)->next({}), batch);
  }
}

}  // namespace
}  // namespace yard::loader
