#include "checkpoint/checkpoint_store.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/testing/fake_clock.h"
#include "checkpoint/load.h"
#include "checkpoint/saver.h"
#include "checkpoint/testing/sharded_state.h"
#include "storage/memory_store.h"
#include "storage/testing/faulty_store.h"

namespace yard::checkpoint {
namespace {

using storage::MemoryStore;
using testing::make_state;
using testing::State;

void save(storage::ObjectStore& store, int64_t step) {
  const auto group = collective::single_rank_group();
  const auto exchange = exchange_over(*group);
  Saver saver(CheckpointStore(store, "run"), *exchange);
  State state = make_state(0, 1);
  testing::fill(state, step);
  ASSERT_TRUE(saver.save(step, testing::views_of(state)));
  ASSERT_TRUE(saver.wait());
}

// Writes the object again, changed.
void change(storage::ObjectStore& store, const std::string& key,
            const std::function<void(std::string&)>& edit) {
  std::string text = *storage::get_all(store, key);
  edit(text);
  ASSERT_TRUE(storage::put_text(store, key, text));
}

class CheckpointFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    save(store, 3);
    manifest = *checkpoints.read(3);
    file_key = checkpoints.folder_of(3) + manifest.files[0].name;
  }
  // What a load of everything says.
  Status load_all(const LoadOptions& options = {}) {
    State state = make_state(0, 1);
    return load(checkpoints, manifest, testing::targets_of(state), options);
  }
  void expect_corrupt(const Status& status, std::string_view named) const {
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::kCorrupt);
    EXPECT_NE(status.error().message.find(named), std::string::npos) << status.error().message;
    EXPECT_NE(status.error().message.find(manifest.files[0].name), std::string::npos)
        << status.error().message;
  }

  MemoryStore store;
  CheckpointStore checkpoints{store, "run"};
  CheckpointManifest manifest;
  std::string file_key;
};

TEST_F(CheckpointFiles, AWholeOnePassesVerification) {
  uint64_t read_bytes = 0;
  EXPECT_TRUE(checkpoints.verify(manifest, {}, [&](uint64_t bytes) { read_bytes += bytes; }));
  EXPECT_EQ(read_bytes, manifest.size_bytes());
}

TEST_F(CheckpointFiles, AFlippedBitIsNamedWithFileAndTensorByLoadAndByVerify) {
  const ChunkRecord& chunk = manifest.tensors.at("columns").chunks[0];
  change(store, file_key, [&](std::string& text) { text[chunk.offset + 100] ^= 4; });
  expect_corrupt(load_all(), "tensor 'columns'");
  expect_corrupt(checkpoints.verify(manifest), "tensor 'columns'");
}

TEST_F(CheckpointFiles, AFlippedBitOfWhichOnlyTheNeighboursAreReadIsSeenWhereAllIsVerified) {
  const ChunkRecord& chunk = manifest.tensors.at("flat").chunks[0];
  change(store, file_key, [&](std::string& text) { text[chunk.offset + 4000] ^= 4; });
  State state;
  state.emplace_back("flat", manifest.tensors.at("flat").info, Region::flat(0, 10));
  EXPECT_TRUE(load(checkpoints, manifest, testing::targets_of(state)));
  EXPECT_EQ(testing::wrong_count(state, 3), 0U);
  expect_corrupt(
      load(checkpoints, manifest, testing::targets_of(state), {.verify = VerifyBlocks::kAll}),
      "tensor 'flat'");
}

TEST_F(CheckpointFiles, AMissingFileIsNamed) {
  ASSERT_TRUE(store.remove(file_key));
  expect_corrupt(load_all(), "is gone");
  expect_corrupt(checkpoints.verify(manifest), "is gone");
}

TEST_F(CheckpointFiles, AFileThatWasCutShortIsNamed) {
  change(store, file_key, [](std::string& text) { text.resize(text.size() - 1); });
  expect_corrupt(load_all(), "tensor");
  expect_corrupt(checkpoints.verify(manifest), "bytes, not");
}

TEST_F(CheckpointFiles, AChangedHeaderIsSeenByVerify) {
  change(store, file_key, [](std::string& text) { text[20] ^= 1; });
  expect_corrupt(checkpoints.verify(manifest), "header");
}

TEST_F(CheckpointFiles, AnUnknownTensorIsAnErrorThatNamesTheNearest) {
  State state;
  state.emplace_back("colums", TensorInfo{"F32", {29, 31}}, Region::all());
  const Status loaded = load(checkpoints, manifest, testing::targets_of(state));
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, Code::kNotFound);
  EXPECT_NE(loaded.error().message.find("did you mean 'columns'"), std::string::npos);
}

TEST_F(CheckpointFiles, AnotherShapeDTypeOrSizeIsRefusedAndBothAreNamed) {
  const auto load_one = [&](TensorInfo info, Region region, size_t size_bytes) {
    std::vector<std::byte> bytes(size_bytes);
    const TensorTarget target{"columns", std::move(info), std::move(region), bytes};
    const Status loaded = load(checkpoints, manifest, std::span(&target, 1));
    return loaded ? std::string() : loaded.error().message;
  };
  EXPECT_NE(load_one({"F32", {31, 29}}, Region::all(), 29 * 31 * 4)
                .find("tensor 'columns': is F32 [29, 31], not F32 [31, 29]"),
            std::string::npos);
  EXPECT_NE(load_one({"F64", {29, 31}}, Region::all(), 29 * 31 * 8).find("not F64"),
            std::string::npos);
  EXPECT_NE(load_one({"F32", {29, 31}}, Region::flat(0, 900), 3600).find("no region"),
            std::string::npos);
  EXPECT_NE(load_one({"F32", {29, 31}}, Region::all(), 8).find("memory for 8"), std::string::npos);
  EXPECT_EQ(load_one({"F32", {29, 31}}, Region::all(), 29 * 31 * 4), "");
}

TEST_F(CheckpointFiles, AStoppedLoadIsCancelled) {
  const StopSource stop;
  stop.request();
  const Status loaded = load_all({.stop = stop.token()});
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, Code::kCancelled);
}

TEST_F(CheckpointFiles, EveryChangeOfTheManifestIsSeen) {
  const std::string key = checkpoints.manifest_key(3);
  const std::string text = *storage::get_all(store, key);
  for (size_t at = 0; at < text.size(); at += 7) {
    std::string changed = text;
    changed[at] = changed[at] == '1' ? '2' : '1';
    const auto parsed = parse_manifest(changed, "manifest");
    if (changed.back() != '\n') continue;  // only the line's end
    EXPECT_FALSE(parsed) << at;
    const auto cut = parse_manifest(std::string_view(text).substr(0, at), "manifest");
    ASSERT_FALSE(cut);
    EXPECT_EQ(cut.error().code, Code::kCorrupt);
  }
  ASSERT_TRUE(parse_manifest(text, "manifest"));
}

TEST_F(CheckpointFiles, ADamagedNewestOneIsPassedOver) {
  save(store, 4);
  change(store, checkpoints.manifest_key(4), [](std::string& text) { text[30] ^= 1; });
  EXPECT_EQ((*checkpoints.latest())->step, 3);
  EXPECT_EQ(checkpoints.read(4).error().code, Code::kCorrupt);
  EXPECT_EQ(checkpoints.read(5).error().code, Code::kNotFound);
}

TEST_F(CheckpointFiles, AManifestThatLeadsOutOfItsFolderIsRefused) {
  for (const char* name : {"../x", "/x", "a//b", "a/", "", "a/../b", "."}) {
    CheckpointManifest evil = manifest;
    evil.files[0].name = name;
    EXPECT_FALSE(parse_manifest(format_manifest(evil), "manifest")) << name;
  }
}

TEST_F(CheckpointFiles, AManifestWhoseChunksDoNotFitIsRefused) {
  const auto refused = [&](const std::function<void(CheckpointManifest&)>& edit) {
    CheckpointManifest evil = manifest;
    edit(evil);
    return !parse_manifest(format_manifest(evil), "manifest").has_value();
  };
  EXPECT_FALSE(refused([](CheckpointManifest&) {}));
  const auto chunk = [](CheckpointManifest& m) -> ChunkRecord& {
    return m.tensors.at("flat").chunks[0];
  };
  EXPECT_TRUE(refused([&](CheckpointManifest& m) { chunk(m).offset += m.files[0].size_bytes; }));
  EXPECT_TRUE(refused([&](CheckpointManifest& m) { chunk(m).offset = UINT64_MAX - 2; }));
  EXPECT_TRUE(refused([&](CheckpointManifest& m) { chunk(m).offset = 0; }));
  EXPECT_TRUE(refused([&](CheckpointManifest& m) { chunk(m).file_index = 99; }));
  EXPECT_TRUE(refused([&](CheckpointManifest& m) { chunk(m).block_crc32c.clear(); }));
  EXPECT_TRUE(refused([&](CheckpointManifest& m) { chunk(m).region = Region::flat(0, 5); }));
  EXPECT_TRUE(refused([&](CheckpointManifest& m) { m.tensors.at("flat").chunks.clear(); }));
  EXPECT_TRUE(refused([&](CheckpointManifest& m) { m.tensors.at("flat").info.dtype = "F33"; }));
  EXPECT_TRUE(refused([&](CheckpointManifest& m) { m.block_bytes = 0; }));
}

TEST_F(CheckpointFiles, SweepingRemovesWhatNoManifestNamesOnceItIsOldEnough) {
  FakeClock clock;
  const auto modified = storage::list_all(store, "")->front().modified;
  clock.advance(modified - clock.wall_now() + std::chrono::minutes(10));
  const std::string other = checkpoints.folder_of(3) + "data-other/x.safetensors";
  const std::string unfinished = checkpoints.folder_of(9) + "data-third/x.safetensors";
  for (const std::string& key : {other, unfinished, std::string("run/notes.txt")})
    ASSERT_TRUE(storage::put_text(store, key, "x"));
  EXPECT_EQ(*checkpoints.sweep(std::chrono::hours(1), {}, clock), 0U);
  EXPECT_EQ(*checkpoints.sweep(std::chrono::minutes(1), "third", clock), 1U);
  EXPECT_FALSE(store.head(other));
  EXPECT_TRUE(store.head(unfinished));
  EXPECT_EQ(*checkpoints.sweep(std::chrono::minutes(1), {}, clock), 1U);
  EXPECT_TRUE(store.head("run/notes.txt"));
  EXPECT_TRUE(checkpoints.verify(manifest));
}

TEST_F(CheckpointFiles, ARemovalThatIsInterruptedLeavesNothingThatLooksWhole) {
  save(store, 4);
  for (uint64_t number = 0; number < 2; ++number) {
    storage::testing::FaultyStore faulty(store, [&](const storage::testing::Call& call) -> Status {
      if (call.method != storage::testing::Method::kRemove || call.number < number + 1) return Ok{};
      return Error{Code::kUnavailable, "gone"};
    });
    EXPECT_FALSE(CheckpointStore(faulty, "run").remove(4));
  }
  EXPECT_EQ(*checkpoints.steps(), std::vector<int64_t>{3});
  EXPECT_EQ(checkpoints.list()->back().is_whole, false);
  EXPECT_GT(*checkpoints.sweep(std::chrono::seconds(0)), 0U);
  EXPECT_EQ(checkpoints.list()->size(), 1U);
}

TEST(CheckpointStore, StepsAreInTheOrderOfTheirNumbersAlsoBeyondEightDigits) {
  MemoryStore store;
  for (const int64_t step : {int64_t{2'000'000'000}, int64_t{7}, int64_t{150'000'000}})
    save(store, step);
  ASSERT_TRUE(storage::put_text(store, "run/step-x/manifest.json", "x"));
  ASSERT_TRUE(storage::put_text(store, "run/step-7/manifest.json", "x"));  // not our way to write 7
  const CheckpointStore checkpoints(store, "run");
  EXPECT_EQ(*checkpoints.steps(), (std::vector<int64_t>{7, 150'000'000, 2'000'000'000}));
  EXPECT_EQ((*checkpoints.latest())->step, 2'000'000'000);
}

TEST(CheckpointStore, AnEmptyStoreHasNoLatest) {
  MemoryStore store;
  EXPECT_FALSE(CheckpointStore(store, "").latest()->has_value());
}

TEST(RetentionRule, KeepsTheNewestAndTheMultiples) {
  const std::vector<int64_t> steps{100, 200, 250, 300, 400, 450};
  const auto removed = [&](RetentionRule rule) { return steps_to_remove(steps, rule); };
  EXPECT_EQ(removed({}), std::vector<int64_t>{});
  EXPECT_EQ(removed({.keep_every_steps = 200}), std::vector<int64_t>{});
  EXPECT_EQ(removed({.keep_last = 6}), std::vector<int64_t>{});
  EXPECT_EQ(removed({.keep_last = 1}), (std::vector<int64_t>{100, 200, 250, 300, 400}));
  EXPECT_EQ(removed({.keep_last = 2, .keep_every_steps = 200}),
            (std::vector<int64_t>{100, 250, 300}));
}

}  // namespace
}  // namespace yard::checkpoint
