#include "loop/checkpoint_folder.h"

#include <gtest/gtest.h>

#include "storage/memory_store.h"
#include "storage/testing/faulty_store.h"

namespace yard::loop {
namespace {

using storage::MemoryStore;
using storage::testing::Call;
using storage::testing::FaultyStore;
using storage::testing::Method;

std::vector<CheckpointFile> files(const std::string& content) {
  return {{"state.json", content}, {"model.safetensors", std::string(10'000, content[0])}};
}

int64_t newest_step(const CheckpointFolder& folder) {
  auto found = folder.newest();
  EXPECT_TRUE(found) << found.error().message;
  return found && *found ? (*found)->global_step : -1;
}

void corrupt(MemoryStore& store, const std::string& key) {
  auto content = storage::get_all(store, key);
  ASSERT_TRUE(content);
  content->back() ^= 1;
  ASSERT_TRUE(storage::put_text(store, key, *content));
}

size_t object_count(MemoryStore& store) {
  return storage::list_all(store, "")->size();
}

TEST(CheckpointFolderTest, NewestIsThatOfTheHighestStep) {
  MemoryStore store;
  CheckpointFolder folder(store);
  EXPECT_EQ(newest_step(folder), -1);
  ASSERT_TRUE(folder.write(9, files("a"), {{"stage_index", 1}}));
  ASSERT_TRUE(folder.write(100, files("b"), {}));
  ASSERT_TRUE(folder.write(20, files("c"), {}));
  EXPECT_EQ(newest_step(folder), 100);
  EXPECT_EQ((*folder.newest())->key, "checkpoints/step-00000100");
}

TEST(CheckpointFolderTest, WithoutAManifestItDoesNotCountAndIsCleaned) {
  MemoryStore store;
  CheckpointFolder folder(store);
  ASSERT_TRUE(folder.write(1, files("a"), {}));
  ASSERT_TRUE(storage::put_text(store, "checkpoints/step-00000002/state.json", "half"));
  EXPECT_EQ(newest_step(folder), 1);
  ASSERT_TRUE(folder.clean(5));
  EXPECT_EQ(object_count(store), 3u);
  EXPECT_EQ(newest_step(folder), 1);
}

TEST(CheckpointFolderTest, DamagedOneIsPassedOverForTheOlder) {
  for (const std::string file : {"state.json", "model.safetensors", "manifest.json"}) {
    MemoryStore store;
    CheckpointFolder folder(store);
    ASSERT_TRUE(folder.write(1, files("a"), {}));
    ASSERT_TRUE(folder.write(2, files("b"), {}));
    if (file == "manifest.json")
      ASSERT_TRUE(storage::put_text(store, "checkpoints/step-00000002/manifest.json", "{\"form"));
    else
      corrupt(store, "checkpoints/step-00000002/" + file);
    EXPECT_EQ(newest_step(folder), 1) << file;
  }
}

TEST(CheckpointFolderTest, MissingOrShortFileIsPassedOver) {
  MemoryStore store;
  CheckpointFolder folder(store);
  ASSERT_TRUE(folder.write(1, files("a"), {}));
  ASSERT_TRUE(folder.write(2, files("b"), {}));
  ASSERT_TRUE(storage::put_text(store, "checkpoints/step-00000002/model.safetensors", "short"));
  EXPECT_EQ(newest_step(folder), 1);
  ASSERT_TRUE(store.remove("checkpoints/step-00000001/model.safetensors"));
  EXPECT_EQ(newest_step(folder), -1);
}

TEST(CheckpointFolderTest, CleaningKeepsTheNewest) {
  MemoryStore store;
  CheckpointFolder folder(store);
  for (int64_t step = 1; step <= 4; ++step) ASSERT_TRUE(folder.write(step, files("a"), {}));
  ASSERT_TRUE(folder.clean(2));
  EXPECT_EQ(object_count(store), 6u);
  EXPECT_EQ(newest_step(folder), 4);
}

// Whatever call fails, nothing half-written is taken for a checkpoint and the older one stays.
TEST(CheckpointFolderTest, AFailureAtAnyCallLeavesTheOlderOneWhole) {
  for (uint64_t failing = 0; failing < 12; ++failing) {
    MemoryStore memory;
    CheckpointFolder before(memory);
    ASSERT_TRUE(before.write(1, files("a"), {}));
    FaultyStore store(memory, [&](const Call& call) -> Status {
      if (call.number == failing && call.method == Method::kPut)
        return Error{Code::kExhausted, std::string(call.key) + ": no space left on device"};
      return Ok{};
    });
    CheckpointFolder folder(store);
    const Status status = folder.write(2, files("b"), {});
    EXPECT_EQ(newest_step(before), status ? 2 : 1) << failing;
    if (!status) {
      EXPECT_EQ(status.error().code, Code::kExhausted);
      EXPECT_EQ(object_count(memory), 3u) << "nothing of the failed one stays";
    }
  }
}

TEST(CheckpointFolderTest, AFullStoreIsExhaustedAndNamesTheCheckpoint) {
  MemoryStore store(15'000);
  CheckpointFolder folder(store);
  ASSERT_TRUE(folder.write(1, files("a"), {}));
  const Status status = folder.write(2, files("b"), {});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kExhausted);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "checkpoints/step-00000002", status.error().message);
  EXPECT_EQ(newest_step(folder), 1);
}

}  // namespace
}  // namespace yard::loop
