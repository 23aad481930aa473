#include "checkpoint/saver.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "checkpoint/load.h"
#include "checkpoint/testing/sharded_state.h"
#include "storage/memory_store.h"
#include "storage/testing/faulty_store.h"

namespace yard::checkpoint {
namespace {

using storage::MemoryStore;
using storage::testing::Call;
using storage::testing::FaultyStore;
using storage::testing::Method;
using testing::make_state;
using testing::on_exchanges;
using testing::State;
using testing::targets_of;
using testing::views_of;
using testing::wrong_count;

// Small files, so that every rank writes several.
SaverOptions small_files() {
  return {.files = {.file_count_max = 3, .file_bytes_min = 1000}};
}

// Saves `steps` one after the other on `world_size` ranks; the first error of any.
Status save_steps(storage::ObjectStore& store, int world_size, const std::vector<int64_t>& steps,
                  const SaverOptions& options = small_files(), uint64_t scale = 1) {
  std::mutex mutex;
  Status first = Ok{};
  on_exchanges(world_size, [&](Exchange& exchange) {
    Saver saver(CheckpointStore(store, "run"), exchange, options);
    State state = make_state(exchange.rank(), world_size, scale);
    for (const int64_t step : steps) {
      testing::fill(state, step);
      Status saved = saver.save(step, views_of(state), {.metadata = {{"epoch", step * 2}}});
      if (saved) testing::fill(state, -1);  // the copy must not see it
      if (saved) saved = saver.wait();
      const std::lock_guard lock(mutex);
      if (first && !saved) first = saved;
    }
  });
  return first;
}

// Bytes of `step` that `world_size` ranks do not find as they were saved.
Result<uint64_t> load_wrong_count(storage::ObjectStore& store, int64_t step, int world_size,
                                  const LoadOptions& options = {}, uint64_t scale = 1) {
  const CheckpointStore checkpoints(store, "run/");
  YARD_ASSIGN(const CheckpointManifest manifest, checkpoints.read(step));
  uint64_t wrong = 0;
  for (int rank = 0; rank < world_size; ++rank) {
    State state = make_state(rank, world_size, scale);
    YARD_TRY(load(checkpoints, manifest, targets_of(state), options));
    wrong += wrong_count(state, step);
  }
  return wrong;
}

size_t object_count(storage::ObjectStore& store) {
  return storage::list_all(store, "")->size();
}

TEST(Saver, WhatTwoRanksSavedIsLoadedByAnyNumberOfRanksInAnySharding) {
  MemoryStore store;
  const Status saved = save_steps(store, 2, {7});
  ASSERT_TRUE(saved) << saved.error().message;
  for (const int world_size : {1, 2, 3, 8, 17}) {
    const auto wrong = load_wrong_count(store, 7, world_size);
    ASSERT_TRUE(wrong) << wrong.error().message;
    EXPECT_EQ(*wrong, 0U) << world_size;
    EXPECT_EQ(*load_wrong_count(store, 7, world_size, {.verify = VerifyBlocks::kAll}), 0U);
  }
}

TEST(Saver, WhatFiveRanksSavedIsLoadedByTwoAndOne) {
  MemoryStore store;
  ASSERT_TRUE(save_steps(store, 5, {7}));
  for (const int world_size : {1, 2, 5}) EXPECT_EQ(*load_wrong_count(store, 7, world_size), 0U);
}

TEST(Saver, TensorsOfManyBlocksAreLoadedInOtherShardings) {
  MemoryStore store;
  constexpr uint64_t kScale = 3000;  // 5 to 23 MB each
  ASSERT_TRUE(save_steps(store, 2, {1}, {.copy_thread_count = 2}, kScale));
  EXPECT_EQ(*load_wrong_count(store, 1, 3, {}, kScale), 0U);
  EXPECT_EQ(*load_wrong_count(store, 1, 3, {.verify = VerifyBlocks::kAll}, kScale), 0U);
}

TEST(Saver, ARemoteStoreIsReadWithLargerGapsToTheSameBytes) {
  MemoryStore memory;
  FaultyStore remote(
      memory, [](const Call&) { return Status(Ok{}); }, true);
  ASSERT_TRUE(save_steps(remote, 2, {7}));
  const uint64_t before = remote.call_count();
  EXPECT_EQ(*load_wrong_count(remote, 7, 1), 0U);
  // The manifest (head and content), and one request for each of the six small files.
  EXPECT_LE(remote.call_count() - before, 8U);
}

TEST(Saver, EachReplicatedChunkIsWrittenOnce) {
  MemoryStore store;
  ASSERT_TRUE(save_steps(store, 4, {1, 2}));
  for (const int64_t step : {1, 2}) {
    const auto manifest = CheckpointStore(store, "run").read(step);
    ASSERT_TRUE(manifest);
    EXPECT_EQ(manifest->tensors.at("replicated").chunks.size(), 1U);
    EXPECT_EQ(manifest->tensors.at("step").chunks.size(), 1U);
    uint64_t data_bytes = 0;
    for (const FileRecord& file : manifest->files)
      data_bytes += file.size_bytes - file.header_bytes;
    EXPECT_EQ(data_bytes, manifest->size_bytes());
  }
}

TEST(Saver, LaterSavesCopyOnlyWhatTheirRankWrites) {
  MemoryStore store;
  std::atomic<double> first_bytes = 0, second_bytes = 0;
  on_exchanges(3, [&](Exchange& exchange) {
    CounterRegistry counters;
    Saver saver(CheckpointStore(store, ""), exchange, {.counters = &counters});
    State state;
    state.emplace_back("replicated", TensorInfo{"F32", {3000}}, Region::all());
    testing::fill(state, 1);
    ASSERT_TRUE(saver.save(1, views_of(state)));
    ASSERT_TRUE(saver.wait());
    first_bytes += counters.counter("checkpoint_copied_bytes").value();
    ASSERT_TRUE(saver.save(2, views_of(state)));
    ASSERT_TRUE(saver.wait());
    second_bytes += counters.counter("checkpoint_copied_bytes").value();
  });
  EXPECT_EQ(first_bytes, 3 * 12000);
  EXPECT_EQ(second_bytes - first_bytes, 12000);
}

TEST(Saver, NotesAreInTheManifest) {
  MemoryStore store;
  on_exchanges(3, [&](Exchange& exchange) {
    Saver saver(CheckpointStore(store, ""), exchange);
    State state = make_state(exchange.rank(), 3);
    testing::fill(state, 1);
    const SaveNotes notes{.metadata = {{"said_by", exchange.rank()}, {"odd", "a\xff"}},
                          .rank_metadata = {{"seed", 100 + exchange.rank()}}};
    ASSERT_TRUE(saver.save(1, views_of(state), notes));
    ASSERT_TRUE(saver.wait());
  });
  const auto manifest = CheckpointStore(store, "").read(1);
  ASSERT_TRUE(manifest) << manifest.error().message;
  EXPECT_EQ(manifest->metadata["said_by"], 0);
  ASSERT_EQ(manifest->rank_metadata.size(), 3U);
  EXPECT_EQ(manifest->rank_metadata[2]["seed"], 102);
  EXPECT_EQ(manifest->world_size, 3);
}

TEST(Saver, SavingTheSameStepAgainReplacesItAndLeavesNoOldFiles) {
  MemoryStore store;
  ASSERT_TRUE(save_steps(store, 2, {5}));
  const size_t count = object_count(store);
  ASSERT_TRUE(save_steps(store, 2, {5}));
  EXPECT_EQ(object_count(store), count);
  EXPECT_EQ(*load_wrong_count(store, 5, 2), 0U);
}

TEST(Saver, RetentionKeepsTheLastAndTheMultiples) {
  MemoryStore store;
  SaverOptions options = small_files();
  options.retention = {.keep_last = 2, .keep_every_steps = 4};
  ASSERT_TRUE(save_steps(store, 2, {1, 2, 3, 4, 5, 6, 7}, options));
  EXPECT_EQ(*CheckpointStore(store, "run").steps(), (std::vector<int64_t>{4, 6, 7}));
}

TEST(Saver, TensorsThatRanksSeeDifferentlyAreAnErrorOnAllOfThem) {
  MemoryStore store;
  std::atomic<int> told = 0;
  const auto expect_refused = [&](const std::function<State(int)>& state_of, const char* why) {
    told = 0;
    on_exchanges(2, [&](Exchange& exchange) {
      Saver saver(CheckpointStore(store, ""), exchange);
      const State state = state_of(exchange.rank());
      ASSERT_TRUE(saver.save(1, views_of(state)));
      const Status outcome = saver.wait();
      ASSERT_FALSE(outcome);
      EXPECT_EQ(outcome.error().code, Code::kInvalidArgument);
      EXPECT_NE(outcome.error().message.find(why), std::string::npos) << outcome.error().message;
      ++told;
    });
    EXPECT_EQ(told, 2);
  };
  const auto single = [](TensorInfo info, Region region) {
    State state;
    state.emplace_back("w", std::move(info), std::move(region));
    return state;
  };
  expect_refused(
      [&](int rank) {
        return single({rank == 0 ? "F32" : "F16", {4}}, Region::all());
      },
      "is F32 [4] on rank 0 and F16 [4] on rank 1");
  expect_refused(
      [&](int rank) {
        return single({"F32", {4}}, Region::flat(rank == 0 ? 0 : 1, rank == 0 ? 2 : 4));
      },
      "overlap");
  expect_refused(
      [&](int rank) {
        return single({"F32", {4}}, Region::flat(rank * 2, rank * 2 + 1));
      },
      "2 of its 4 elements are in no chunk");
  EXPECT_EQ(object_count(store), 0U);
}

TEST(Saver, AChunkThatIsNoneIsToldAtOnceAndThePeersLearnOfIt) {
  MemoryStore store;
  std::atomic<int> told = 0;
  on_exchanges(2, [&](Exchange& exchange) {
    Saver saver(CheckpointStore(store, ""), exchange);
    State state = make_state(exchange.rank(), 2);
    auto views = views_of(state);
    if (exchange.rank() == 1) views[2].bytes = views[2].bytes.subspan(1);
    const Status saved = saver.save(3, views);
    EXPECT_EQ(saved.has_value(), exchange.rank() == 0);
    const Status outcome = saver.wait();
    if (exchange.rank() == 1) {
      EXPECT_NE(saved.error().message.find("columns"), std::string::npos);
      EXPECT_TRUE(outcome);  // told already
    } else {
      ASSERT_FALSE(outcome);
      EXPECT_NE(outcome.error().message.find("rank 1: tensor 'columns'"), std::string::npos)
          << outcome.error().message;
    }
    // The exchange is still in step.
    testing::fill(state, 4);
    ASSERT_TRUE(saver.save(4, views_of(state)));
    ASSERT_TRUE(saver.wait());
    ++told;
  });
  EXPECT_EQ(told, 2);
  EXPECT_EQ(*CheckpointStore(store, "").steps(), std::vector<int64_t>{4});
}

TEST(Saver, BadNamesDTypesRegionsAndStepsAreRefused) {
  MemoryStore store;
  const auto group = collective::single_rank_group();
  const auto exchange = exchange_over(*group);
  Saver saver(CheckpointStore(store, ""), *exchange);
  const std::vector<std::byte> bytes(16);
  const auto save = [&](TensorView view, int64_t step = 1) {
    const Status saved = saver.save(step, std::span(&view, 1));
    EXPECT_TRUE(saver.wait());
    return saved;
  };
  EXPECT_FALSE(save({"", {"F32", {4}}, Region::all(), bytes}));
  EXPECT_FALSE(save({"__metadata__", {"F32", {4}}, Region::all(), bytes}));
  EXPECT_FALSE(save({"a\xff", {"F32", {4}}, Region::all(), bytes}));
  EXPECT_FALSE(save({"w", {"F32", {4}}, Region::flat(2, 7), bytes}));
  EXPECT_FALSE(save({"w", {"F32", {4}}, Region::all(), bytes}, -1));
  const Status dtype = save({"w", {"BF61", {4}}, Region::all(), bytes});
  ASSERT_FALSE(dtype);
  EXPECT_NE(dtype.error().message.find("did you mean 'BF16'"), std::string::npos);
  EXPECT_TRUE(save({"w", {"F32", {4}}, Region::all(), bytes}));
  EXPECT_EQ(object_count(store), 2U);
}

TEST(Saver, DifferentStepsOnTwoRanksAreAnErrorThatNamesBoth) {
  MemoryStore store;
  on_exchanges(2, [&](Exchange& exchange) {
    Saver saver(CheckpointStore(store, ""), exchange);
    State state = make_state(exchange.rank(), 2);
    ASSERT_TRUE(saver.save(10 + exchange.rank(), views_of(state)));
    const Status outcome = saver.wait();
    ASSERT_FALSE(outcome);
    EXPECT_NE(outcome.error().message.find("saves step 1"), std::string::npos);
  });
  EXPECT_EQ(object_count(store), 0U);
}

TEST(Saver, AStoreThatFailsAtAnyCallHarmsNoCheckpointAndLeavesNothingInTheEnd) {
  MemoryStore memory;
  ASSERT_TRUE(save_steps(memory, 2, {1}));
  const size_t whole_count = object_count(memory);
  bool has_failed = true;
  for (uint64_t number = 0; has_failed; ++number) {
    ASSERT_LT(number, 500U);
    has_failed = false;
    std::atomic<bool> failed = false;
    {
      std::atomic<uint64_t> calls = 0;
      FaultyStore faulty(memory, [&](const Call& call) -> Status {
        if (call.method == Method::kRemove || calls++ != number) return Ok{};
        failed = true;
        return Error{Code::kExhausted, std::string(call.key) + ": disk full"};
      });
      const Status saved = save_steps(faulty, 2, {2});
      if (!saved) {
        EXPECT_EQ(saved.error().code, Code::kExhausted) << saved.error().message;
        EXPECT_EQ(*CheckpointStore(memory, "run").steps(), std::vector<int64_t>{1});
        EXPECT_EQ(object_count(memory), whole_count) << "after call " << number;
      }
    }
    has_failed = failed;
    EXPECT_EQ(*load_wrong_count(memory, 1, 1), 0U);
    ASSERT_TRUE(CheckpointStore(memory, "run").remove(2));
  }
}

TEST(Saver, AnErrorIsToldAtTheNextSaveOnceAndTheOneAfterSaves) {
  MemoryStore memory;
  std::atomic<bool> is_full = true;
  FaultyStore store(memory, [&](const Call& call) -> Status {
    if (is_full && call.method == Method::kWrite) return Error{Code::kExhausted, "disk full"};
    return Ok{};
  });
  on_exchanges(2, [&](Exchange& exchange) {
    Saver saver(CheckpointStore(store, "run"), exchange, small_files());
    State state = make_state(exchange.rank(), 2);
    testing::fill(state, 1);
    EXPECT_TRUE(saver.save(1, views_of(state)));
    const Status second = saver.save(2, views_of(state));
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, Code::kExhausted);
    EXPECT_NE(second.error().message.find("step-00000001"), std::string::npos);
    is_full = false;
    testing::fill(state, 3);
    EXPECT_TRUE(saver.save(3, views_of(state)));
    EXPECT_TRUE(saver.wait());
  });
  EXPECT_EQ(*CheckpointStore(memory, "run").steps(), std::vector<int64_t>{3});
  EXPECT_EQ(*load_wrong_count(memory, 3, 1), 0U);
}

// Holds every write until it is opened.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  Status pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_open_; });
    return Ok{};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
};

TEST(Saver, ASaveIsRefusedWhileAnotherRunsWhereThatIsAskedFor) {
  MemoryStore memory;
  Gate gate;
  FaultyStore store(memory, [&](const Call& call) {
    return call.method == Method::kWrite ? gate.pass() : Status(Ok{});
  });
  std::atomic<int> refused_count = 0;
  on_exchanges(2, [&](Exchange& exchange) {
    SaverOptions options = small_files();
    options.when_busy = WhenBusy::kRefuse;
    Saver saver(CheckpointStore(store, "run"), exchange, options);
    State state = make_state(exchange.rank(), 2);
    testing::fill(state, 1);
    ASSERT_TRUE(saver.save(1, views_of(state)));
    EXPECT_TRUE(saver.is_busy());
    const Status refused = saver.save(2, views_of(state));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kUnavailable);
    if (++refused_count == 2) gate.open();
    EXPECT_TRUE(saver.wait());
    testing::fill(state, 3);
    ASSERT_TRUE(saver.save(3, views_of(state)));
    EXPECT_TRUE(saver.wait());
  });
  EXPECT_EQ(*CheckpointStore(memory, "run").steps(), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(*load_wrong_count(memory, 1, 1), 0U);
}

TEST(Saver, WaitingSavesAreAllMadeWithTheValuesOfTheirCalls) {
  MemoryStore store;
  on_exchanges(2, [&](Exchange& exchange) {
    Saver saver(CheckpointStore(store, "run"), exchange, small_files());
    State state = make_state(exchange.rank(), 2);
    for (int64_t step = 1; step <= 5; ++step) {
      testing::fill(state, step);
      ASSERT_TRUE(saver.save(step, views_of(state)));
    }
    ASSERT_TRUE(saver.wait());
  });
  for (int64_t step = 1; step <= 5; ++step) EXPECT_EQ(*load_wrong_count(store, step, 1), 0U);
}

TEST(Saver, AWriteThatTheStoreGarblesIsSeenByReadingBack) {
  // Says that all is well and keeps other bytes.
  class GarblingStore final : public storage::ObjectStore {
   public:
    Status get_range(std::string_view key, std::string_view etag, uint64_t offset,
                     std::span<std::byte> out) override {
      YARD_TRY(inner.get_range(key, etag, offset, out));
      if (key.ends_with(".safetensors") && !out.empty()) out.back() ^= std::byte{1};
      return Ok{};
    }
    Result<storage::ObjectInfo> head(std::string_view key) override { return inner.head(key); }
    Result<storage::ListPage> list(const storage::ListRequest& r) override { return inner.list(r); }
    Result<storage::ObjectInfo> put(std::string_view key, std::span<const std::byte> content,
                                    const storage::PutOptions& options) override {
      return inner.put(key, content, options);
    }
    Result<std::unique_ptr<storage::Upload>> upload(std::string_view key,
                                                    const storage::PutOptions& o) override {
      return inner.upload(key, o);
    }
    Result<storage::ObjectInfo> copy(std::string_view source, std::string_view key,
                                     const storage::PutOptions& options) override {
      return inner.copy(source, key, options);
    }
    Status remove(std::string_view key) override { return inner.remove(key); }
    std::string url() const override { return inner.url(); }

    MemoryStore inner;
  } store;
  SaverOptions options = small_files();
  options.read_back = true;
  const Status saved = save_steps(store, 2, {1}, options);
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().code, Code::kCorrupt);
  EXPECT_EQ(object_count(store.inner), 0U);
}

TEST(Saver, WithoutAGroupTheRanksAgreeThroughTheStore) {
  MemoryStore store;
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      const auto exchange =
          exchange_over(store, "run", {.rank = rank, .world_size = 3, .run_id = "r"});
      ASSERT_TRUE(exchange);
      Saver saver(CheckpointStore(store, "run"), **exchange, small_files());
      State state = make_state(rank, 3);
      for (const int64_t step : {1, 2, 3}) {
        testing::fill(state, step);
        ASSERT_TRUE(saver.save(step, views_of(state)));
      }
      const Status outcome = saver.wait();
      EXPECT_TRUE(outcome) << outcome.error().message;
    });
  ranks.clear();
  for (const int64_t step : {1, 2, 3}) EXPECT_EQ(*load_wrong_count(store, step, 2), 0U);
}

}  // namespace
}  // namespace yard::checkpoint
