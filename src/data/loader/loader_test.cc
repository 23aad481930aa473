#include "loader/loader.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <set>

#include "images/picture.h"
#include "loader/testing/loader_fixture.h"
#include "shards/sample_plan.h"
#include "storage/testing/faulty_store.h"
#include "telemetry/metric_names.h"

namespace yard::loader {
namespace {

using storage::testing::Call;
using storage::testing::FaultyStore;
using storage::testing::Method;
using testing::expect_equal;
using testing::LoaderTest;
using testing::picture_of;

TEST_F(LoaderTest, ABatchHoldsPicturesCaptionsAndKeysOfItsSamples) {
  make_shards(25);
  const auto first = batches(*open(), 1);
  const Batch& batch = first[0];
  ASSERT_EQ(batch.size, 6);
  EXPECT_EQ(batch.images.floats().size(), 6U * 3 * 8 * 8);
  EXPECT_EQ(batch.image_size.width, 8);
  EXPECT_EQ(batch.first_sample_number, 0U);
  for (size_t i = 0; i < 6; ++i) {
    const int id = int(batch.sample_ids[i]);
    EXPECT_EQ(batch.captions[i], "caption " + std::to_string(id));
    EXPECT_EQ(batch.keys[i], "s" + std::to_string(1000 + id / 10 * 10) + "-000000.tar/k" +
                                 std::to_string(1000 + id));
    auto picture = images::decode(picture_of(id), {});
    std::vector<float> expected(3 * 8 * 8);
    images::crop_into(*picture, {.size = 8}, expected);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(),
                           batch.images.floats().begin() + std::ptrdiff_t(i * expected.size())));
  }
}

TEST_F(LoaderTest, TheOrderOfShardsGivenThreadsAndPrefetchChangeNothing) {
  make_shards(50);
  options_.random_flip = options_.random_crop = true;
  const auto expected = batches(*open(), 20);  // two epochs and a half
  std::reverse(options_.shards.begin(), options_.shards.end());
  for (int threads : {2, 5}) {
    for (int64_t prefetch : {1, 3, 40}) {
      options_.thread_count = threads;
      options_.prefetch_batch_count = prefetch;
      const auto got = batches(*open(), 20);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) expect_equal(got[i], expected[i]);
    }
  }
}

TEST_F(LoaderTest, ResumedAtAnyBatchTheStreamGoesOnExactly) {
  make_shards(30);
  options_.random_flip = options_.random_crop = true;
  options_.thread_count = 3;
  const auto expected = batches(*open(), 12);
  for (size_t at = 0; at < 12; ++at) {
    const auto got = batches(*open(expected[at].position), 2);
    expect_equal(got[0], expected[at]);
    if (at + 1 < 12) expect_equal(got[1], expected[at + 1]);
  }
  // One past the last batch is the next epoch's first.
  expect_equal(batches(*open({0, 5}), 1)[0], expected[5]);
}

TEST_F(LoaderTest, RanksShareTheBatchThatOneRankWouldHave) {
  make_shards(30);
  options_.random_flip = true;
  const auto whole = batches(*open(), 7);
  for (int world : {2, 3, 6}) {
    options_.world_size = world;
    std::vector<Batch> joined(whole.size());
    std::vector<std::vector<std::byte>> pixels(whole.size());
    for (options_.rank = 0; options_.rank < world; ++options_.rank) {
      const auto share = batches(*open(), 7);
      for (size_t b = 0; b < share.size(); ++b) {
        EXPECT_EQ(share[b].size, 6 / world);
        joined[b].position = share[b].position;
        const auto append = [](auto& to, const auto& from) {
          to.insert(to.end(), from.begin(), from.end());
        };
        append(pixels[b], share[b].images.bytes());
        append(joined[b].captions, share[b].captions);
        append(joined[b].keys, share[b].keys);
        append(joined[b].sample_ids, share[b].sample_ids);
      }
    }
    for (size_t b = 0; b < whole.size(); ++b) {
      joined[b].images.resize(pixels[b].size());
      std::ranges::copy(pixels[b], joined[b].images.bytes().begin());
      expect_equal(joined[b], whole[b]);
    }
  }
}

TEST_F(LoaderTest, AChangeOfWorldSizeInsideAnEpochUsesEachSampleOnce) {
  make_shards(10'000, 2500);
  options_.image_size = 2;
  options_.thread_count = 2;
  options_.global_batch_size = 60;
  std::multiset<uint64_t> used;
  const auto run = [&](int world, uint64_t begin, uint64_t end) {
    options_.world_size = world;
    for (options_.rank = 0; options_.rank < world; ++options_.rank)
      for (const auto& batch : batches(*open({0, begin}), int(end - begin)))
        used.insert(batch.sample_ids.begin(), batch.sample_ids.end());
  };
  run(2, 0, 50);
  run(3, 50, 120);
  run(1, 120, 166);
  EXPECT_EQ(used.size(), 9960U);
  EXPECT_EQ(std::set<uint64_t>(used.begin(), used.end()).size(), 9960U);
}

TEST_F(LoaderTest, EpochsFollowEachOtherInOrdersOfTheirOwn) {
  make_shards(20);
  options_.global_batch_size = 8;
  auto loader = open();
  EXPECT_EQ(loader->sample_count(), 20);
  EXPECT_EQ(loader->batches_per_epoch(), 2);
  const auto got = batches(*loader, 6);
  for (uint64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(got[i].position.epoch, i / 2);
    EXPECT_EQ(got[i].position.batch, i % 2);
  }
  EXPECT_NE(got[0].sample_ids, got[2].sample_ids);
}

TEST_F(LoaderTest, ASeedDecidesTheOrder) {
  make_shards(30);
  const auto first = batches(*open(), 1)[0].sample_ids;
  EXPECT_EQ(batches(*open(), 1)[0].sample_ids, first);
  options_.seed = 12;
  EXPECT_NE(batches(*open(), 1)[0].sample_ids, first);
}

// The first pixel of a row of a flipped picture is the last of the other; crops lie elsewhere.
TEST_F(LoaderTest, FlipsAndCropsAreDrawnForEachSampleAndEpoch) {
  make_shards(30);
  const auto plain = batches(*open(), 10);
  std::map<uint64_t, std::vector<float>> by_id;
  const auto pixels = [](const Batch& batch, size_t i) {
    const auto begin = batch.images.floats().begin() + std::ptrdiff_t(i * 192);
    return std::vector<float>(begin, begin + 192);
  };
  for (const auto& batch : plain)
    for (size_t i = 0; i < 6; ++i) by_id[batch.sample_ids[i]] = pixels(batch, i);
  options_.random_flip = true;
  std::set<std::pair<uint64_t, uint64_t>> flipped;
  for (const auto& batch : batches(*open(), 10)) {
    for (size_t i = 0; i < 6; ++i) {
      auto expected = by_id[batch.sample_ids[i]];
      if (pixels(batch, i) == expected) continue;
      for (size_t row = 0; row < 24; ++row)
        std::reverse(expected.begin() + std::ptrdiff_t(row * 8),
                     expected.begin() + std::ptrdiff_t(row * 8 + 8));
      EXPECT_EQ(pixels(batch, i), expected);
      flipped.emplace(batch.position.epoch, batch.sample_ids[i]);
    }
  }
  EXPECT_GT(flipped.size(), 15U);  // of 60
  EXPECT_LT(flipped.size(), 45U);
  options_.random_flip = false;
  options_.random_crop = true;
  std::set<std::vector<float>> crops;
  for (const auto& batch : batches(*open(), 10))
    for (size_t i = 0; i < 6; ++i)
      if (batch.sample_ids[i] == plain[0].sample_ids[0]) crops.insert(pixels(batch, i));
  EXPECT_EQ(crops.size(), 2U) << "one for each epoch";
}

TEST_F(LoaderTest, PixelsDoNotDependOnWhatTheCacheHolds) {
  make_shards(30);
  options_.thread_count = 2;
  for (const bool random_crop : {false, true}) {
    options_.random_crop = options_.random_flip = random_crop;
    options_.cache_bytes_max = 0;
    const auto exact = batches(*open(), 15);
    options_.cache_bytes_max = uint64_t{1} << 30;
    auto cached_loader = open();
    const auto cached = batches(*cached_loader, 15);
    options_.cache_bytes_max = 2000;  // room for some pictures
    const auto partly = batches(*open(), 15);
    const auto resumed = batches(*open(cached[7].position), 8);
    for (size_t b = 0; b < 15; ++b) {
      expect_equal(cached[b], partly[b]);
      if (b >= 7) expect_equal(cached[b], resumed[b - 7]);
      EXPECT_EQ(cached[b].sample_ids, exact[b].sample_ids);
      for (size_t i = 0; i < cached[b].images.floats().size(); ++i)
        ASSERT_NEAR(cached[b].images.floats()[i], exact[b].images.floats()[i], 0.5 / 127.5 + 1e-6);
    }
  }
}

TEST_F(LoaderTest, WhatIsCachedIsNotReadAgain) {
  make_shards(30);
  options_.cache_bytes_max = uint64_t{1} << 30;
  std::atomic<int> reads = 0;
  FaultyStore counted(store_, [&](const Call& call) -> Status {
    reads += call.method == Method::kGetRange && call.key.ends_with(".tar");
    return Ok{};
  });
  auto loader = open(counted);
  batches(*loader, 20);
  EXPECT_EQ(reads, 30);
  options_.cache_bytes_max = 1;
  auto uncached = open(counted);
  batches(*uncached, 20);
  EXPECT_GE(reads, 30 + 120);
}

TEST_F(LoaderTest, ABadPictureIsAnErrorAtItsBatchAndNamed) {
  make_shards(30, 10, {13});
  options_.thread_count = 3;
  auto loader = open();
  int good_count = 0;
  std::optional<Error> error;
  for (int i = 0; i < 5 && !error; ++i) {
    auto batch = loader->next({});
    if (!batch) {
      error = batch.error();
      continue;
    }
    ++good_count;
    for (const uint64_t id : batch->sample_ids) EXPECT_NE(id, 13U);
  }
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, Code::kCorrupt);
  for (const char* word : {"s1010-000000.tar", "offset", "'k1013'", "k1013.png"})
    EXPECT_NE(error->message.find(word), std::string::npos) << error->message;
  const auto plan = shards::SamplePlan::create(
      {.seed = options_.seed, .sample_count = 30, .global_batch_size = 6});
  uint64_t place = 0;
  while (plan->sample_at(0, place) != 13) ++place;
  EXPECT_EQ(good_count, int(place / 6));
  EXPECT_EQ(loader->next({}).error().message, error->message) << "it stays";
}

TEST_F(LoaderTest, OfSeveralBadSamplesInABatchTheFirstIsTold) {
  make_shards(8, 10, {0, 1, 2, 3, 4, 5, 6, 7});
  options_.thread_count = 4;
  const auto plan = shards::SamplePlan::create(
      {.seed = options_.seed, .sample_count = 8, .global_batch_size = 6});
  uint64_t lowest = 8;  // a batch is in the order of the data set
  for (uint64_t place = 0; place < 6; ++place) lowest = std::min(lowest, plan->sample_at(0, place));
  const std::string first = "'k" + std::to_string(1000 + lowest) + "'";
  for (int i = 0; i < 50; ++i) {
    const auto batch = open()->next({});
    ASSERT_FALSE(batch);
    EXPECT_NE(batch.error().message.find(first), std::string::npos) << batch.error().message;
  }
}

TEST_F(LoaderTest, SkippedSamplesAreReplacedByTheNextGoodOneAndCounted) {
  make_shards(30, 10, {13, 20, 21}, {5});
  options_.bad_samples = BadSamplePolicy::kSkip;
  const auto plan = shards::SamplePlan::create(
      {.seed = options_.seed, .sample_count = 30, .global_batch_size = 6});
  const std::set<uint64_t> bad = {5, 13, 20, 21};
  // Of each batch in the order of the data set, as it was drawn.
  std::vector<std::pair<uint64_t, uint64_t>> drawn;
  int64_t skipped = 0;
  for (uint64_t place = 0; place < 30; ++place) {
    uint64_t at = place;
    for (; bad.contains(plan->sample_at(0, at % 30)); ++at) ++skipped;
    drawn.emplace_back(plan->sample_at(0, place), plan->sample_at(0, at % 30));
    if (place % 6 == 5) std::sort(drawn.end() - 6, drawn.end());
  }
  std::vector<uint64_t> expected;
  for (const auto& [wanted, given] : drawn) expected.push_back(given);
  for (int world : {1, 2, 3}) {
    for (int threads : {1, 4}) {
      options_.world_size = world;
      options_.thread_count = threads;
      std::vector<std::vector<uint64_t>> shares(5);
      int64_t counted = 0;
      for (options_.rank = 0; options_.rank < world; ++options_.rank) {
        auto loader = open();
        for (size_t b = 0; b < 5; ++b) {
          const auto batch = loader->next({});
          ASSERT_TRUE(batch) << batch.error().message;
          shares[b].insert(shares[b].end(), batch->sample_ids.begin(), batch->sample_ids.end());
        }
        counted += loader->skipped_count();
      }
      std::vector<uint64_t> got;
      for (const auto& share : shares) got.insert(got.end(), share.begin(), share.end());
      EXPECT_EQ(got, expected);
      EXPECT_EQ(counted, skipped);
    }
  }
  EXPECT_GT(counters_.snapshot()[std::string(metric::kLoaderSkippedSamples)], 0);
}

TEST_F(LoaderTest, ADataSetOfBadSamplesEndsInAnError) {
  make_shards(8, 10, {0, 1, 2, 3, 4, 5, 6, 7});
  options_.bad_samples = BadSamplePolicy::kSkip;
  auto batch = open()->next({});
  ASSERT_FALSE(batch);
  EXPECT_EQ(batch.error().code, Code::kCorrupt);
  EXPECT_NE(batch.error().message.find("8 samples in a row"), std::string::npos);
}

TEST_F(LoaderTest, AMissingCaptionFailsBeforeTrainingBegins) {
  make_shards(30, 10, {}, {17});
  const Error error = open_error();
  EXPECT_EQ(error.code, Code::kCorrupt);
  for (const char* word : {"s1010-000000.tar", "'k1017'", "caption", "txt", "png"})
    EXPECT_NE(error.message.find(word), std::string::npos) << error.message;
}

TEST_F(LoaderTest, TheFirstImageMemberThatASampleHasIsTaken) {
  make_shards(10);
  options_.image_members = "webp, gif";
  EXPECT_EQ(open_error().code, Code::kCorrupt);
  options_.image_members = "webp, PNG";
  EXPECT_EQ(batches(*open(), 1).size(), 1U);
}

TEST_F(LoaderTest, AStoreThatFailsIsAnErrorUnderEveryPolicy) {
  make_shards(30);
  FaultyStore failing(store_, [](const Call& call) -> Status {
    if (call.method == Method::kGetRange && call.key.ends_with(".tar"))
      return Error{Code::kUnavailable, "503"};
    return Ok{};
  });
  for (const auto policy : {BadSamplePolicy::kFail, BadSamplePolicy::kSkip}) {
    options_.bad_samples = policy;
    EXPECT_EQ(open(failing)->next({}).error().code, Code::kUnavailable);
  }
}

TEST_F(LoaderTest, AShardThatIsReplacedMeanwhileIsNotSkippedOver) {
  make_shards(30);
  options_.bad_samples = BadSamplePolicy::kSkip;
  options_.prefetch_batch_count = 1;
  auto loader = open();
  for (const std::string& shard : options_.shards) {
    auto content = storage::get_all(store_, shard);
    ASSERT_TRUE(storage::put_text(store_, shard, *content));
  }
  Result<Batch> batch = loader->next({});
  for (int i = 0; i < 3 && batch; ++i) batch = loader->next({});
  ASSERT_FALSE(batch);
  EXPECT_EQ(batch.error().code, Code::kCorrupt);
  EXPECT_NE(batch.error().message.find("changed"), std::string::npos);
  EXPECT_EQ(loader->skipped_count(), 0);
}

TEST_F(LoaderTest, AStoppedWaitLosesNothing) {
  make_shards(30);
  const auto expected = batches(*open(), 1);
  std::mutex mutex;
  std::condition_variable opened;
  bool is_open = false;
  FaultyStore gated(store_, [&](const Call& call) -> Status {
    std::unique_lock lock(mutex);
    if (call.method == Method::kGetRange && call.key.ends_with(".tar"))
      opened.wait(lock, [&] { return is_open; });
    return Ok{};
  });
  auto loader = open(gated);
  StopSource stop;
  stop.request();
  EXPECT_EQ(loader->next(stop.token()).error().code, Code::kCancelled);
  {
    std::lock_guard lock(mutex);
    is_open = true;
  }
  opened.notify_all();
  expect_equal(batches(*loader, 1)[0], expected[0]);
}

TEST_F(LoaderTest, HeldOutSamplesAreFixedAndNeverTrainedOn) {
  make_shards(40);
  options_.held_out_count = 7;
  options_.random_flip = options_.random_crop = true;
  auto loader = open();
  EXPECT_EQ(loader->sample_count(), 33);
  auto held_out = loader->held_out(0, 7);
  ASSERT_TRUE(held_out) << held_out.error().message;
  const std::set<uint64_t> ids(held_out->sample_ids.begin(), held_out->sample_ids.end());
  EXPECT_EQ(ids.size(), 7U);
  for (const auto& batch : batches(*loader, 15))
    for (const uint64_t id : batch.sample_ids) EXPECT_FALSE(ids.contains(id));
  options_.seed = 99;
  options_.rank = 1;
  options_.world_size = 2;
  auto other = open({3, 2});
  expect_equal(*other->held_out(0, 7), *held_out);
  EXPECT_EQ(other->held_out(5, 2)->sample_ids[0], held_out->sample_ids[5]);
  for (const auto& [begin, count] : {std::pair{0, 8}, {7, 1}, {-1, 2}, {0, 0}})
    EXPECT_EQ(loader->held_out(begin, count).error().code, Code::kInvalidArgument);
}

TEST_F(LoaderTest, MemoryGivenBackServesAgain) {
  make_shards(30);
  options_.thread_count = 2;
  const auto expected = batches(*open(), 12);
  auto loader = open();
  std::set<const std::byte*> buffers;
  for (size_t b = 0; b < 12; ++b) {
    auto batch = loader->next({});
    ASSERT_TRUE(batch);
    expect_equal(*batch, expected[b]);
    buffers.insert(batch->images.bytes().data());
    loader->recycle(std::move(batch->images));
  }
  EXPECT_LT(buffers.size(), 12U);
}

TEST_F(LoaderTest, ALoaderEndsWhileItsThreadsWait) {
  make_shards(30);
  options_.thread_count = 4;
  for (int i = 0; i < 20; ++i) {
    auto loader = open();
    if (i % 2 == 0) batches(*loader, i % 5);
  }
}

TEST_F(LoaderTest, WhatIsDoneIsCounted) {
  make_shards(30);
  auto loader = open();
  batches(*loader, 4);
  auto counted = counters_.snapshot();
  EXPECT_EQ(counted[std::string(metric::kLoaderSamples)], 24);
  EXPECT_GT(counted[std::string(metric::kLoaderReadBytes)], 24 * 100);
  EXPECT_GT(counted[std::string(metric::kLoaderDecodeSeconds)], 0);
  EXPECT_EQ(counted[std::string(metric::kLoaderConsumerWaitSeconds)], loader->wait_seconds());
}

TEST_F(LoaderTest, ShardsWithoutSamplesArePassedOver) {
  make_shards(30);
  const auto expected = batches(*open(), 10);
  const std::vector<std::byte> nothing(size_t{1024});  // the mark of a tar's end
  for (const char* name : {"s0.tar", "s1010-1.tar", "t.tar"}) {
    ASSERT_TRUE(store_.put(name, nothing, {}));
    options_.shards.push_back(name);
  }
  const auto got = batches(*open(), 10);
  for (size_t i = 0; i < 10; ++i) expect_equal(got[i], expected[i]);
  options_.shards = {"s0.tar"};
  EXPECT_EQ(open_error().code, Code::kInvalidArgument);
}

TEST_F(LoaderTest, ImpossibleOptionsAreRefused) {
  make_shards(10);
  const LoaderOptions good = options_;
  const auto refused = [&](auto change) {
    options_ = good;
    change(options_);
    EXPECT_EQ(open_error().code, Code::kInvalidArgument);
  };
  refused([](LoaderOptions& o) { o.shards.clear(); });
  refused([](LoaderOptions& o) { o.shards.push_back(o.shards[0]); });
  refused([](LoaderOptions& o) { o.rank = 1; });
  refused([](LoaderOptions& o) { o.world_size = 0; });
  refused([](LoaderOptions& o) { o.world_size = 4; });
  refused([](LoaderOptions& o) { o.global_batch_size = 0; });
  refused([](LoaderOptions& o) { o.global_batch_size = 11; });
  refused([](LoaderOptions& o) { o.held_out_count = 5; });
  refused([](LoaderOptions& o) { o.held_out_count = 10; });
  refused([](LoaderOptions& o) { o.held_out_count = -1; });
  refused([](LoaderOptions& o) { o.image_size = 0; });
  refused([](LoaderOptions& o) { o.thread_count = 0; });
  refused([](LoaderOptions& o) { o.prefetch_batch_count = 0; });
  options_ = good;
  options_.shards.push_back("none.tar");
  EXPECT_EQ(open_error().code, Code::kNotFound);
  options_ = good;
  EXPECT_EQ(Loader::open(store_, options_, {0, 2}, counters_).error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace yard::loader
