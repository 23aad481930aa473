#include "checkpoint/convert.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "checkpoint/load.h"
#include "checkpoint/saver.h"
#include "checkpoint/testing/sharded_state.h"
#include "storage/memory_store.h"

namespace yard::checkpoint {
namespace {

using storage::MemoryStore;
using testing::make_state;
using testing::State;

class Converted : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::on_exchanges(3, [&](Exchange& exchange) {
      Saver saver(checkpoints, exchange, {.files = {.file_count_max = 2, .file_bytes_min = 500}});
      State state = make_state(exchange.rank(), 3, kScale);
      testing::fill(state, 5);
      ASSERT_TRUE(saver.save(5, testing::views_of(state), {.metadata = {{"a", 1}}}));
      ASSERT_TRUE(saver.wait());
    });
    manifest = *checkpoints.read(5);
  }

  // Everything, loaded by two ranks.
  void expect_same(const CheckpointStore& others, int64_t step) {
    const auto imported = others.read(step);
    ASSERT_TRUE(imported) << imported.error().message;
    EXPECT_TRUE(others.verify(*imported));
    for (int rank = 0; rank < 2; ++rank) {
      State state = make_state(rank, 2, kScale);
      const Status loaded = load(others, *imported, testing::targets_of(state));
      ASSERT_TRUE(loaded) << loaded.error().message;
      EXPECT_EQ(testing::wrong_count(state, 5), 0U);
    }
  }

  static constexpr uint64_t kScale = 700;  // tensors of several blocks
  MemoryStore store;
  CheckpointStore checkpoints{store, "run"};
  CheckpointManifest manifest;
  MemoryStore plain;
};

TEST_F(Converted, OneFileAndBackIsTheSame) {
  const auto keys = export_safetensors(checkpoints, manifest, plain, "out/");
  ASSERT_TRUE(keys) << keys.error().message;
  EXPECT_EQ(*keys, std::vector<std::string>{"out/model.safetensors"});
  const CheckpointStore others(plain, "again");
  for (const char* source : {"out/model.safetensors", "out", "out/"}) {
    const auto imported = import_safetensors(plain, source, others, {.step = 9});
    ASSERT_TRUE(imported) << imported.error().message;
    expect_same(others, 9);
  }
}

TEST_F(Converted, SeveralFilesWithAnIndexAndBackAreTheSame) {
  const auto keys =
      export_safetensors(checkpoints, manifest, plain, "out", {.file_bytes_max = 2'000'000});
  ASSERT_TRUE(keys) << keys.error().message;
  ASSERT_GT(keys->size(), 3U);
  EXPECT_EQ(keys->back(), "out/model.safetensors.index.json");
  EXPECT_EQ(keys->front(), fmt::format("out/model-00001-of-{:05}.safetensors", keys->size() - 1));
  const auto index = parse_json(*storage::get_all(plain, keys->back()), "index");
  EXPECT_EQ((*index)["metadata"]["total_size"], manifest.size_bytes());
  EXPECT_EQ((*index)["weight_map"].size(), manifest.tensors.size());
  const CheckpointStore others(plain, "again");
  for (const std::string& source : {keys->back(), std::string("out")}) {
    const auto imported = import_safetensors(plain, source, others, {.step = 9});
    ASSERT_TRUE(imported) << imported.error().message;
    expect_same(others, 9);
  }
}

TEST_F(Converted, OnlyNamesThatStartSoAreExportedWithoutTheirStart) {
  ASSERT_TRUE(export_safetensors(checkpoints, manifest, plain, "",
                                 {.stem = "rows", .name_prefix = "rows."}));
  const CheckpointStore others(plain, "again");
  const auto imported = import_safetensors(plain, "rows.safetensors", others, {.step = 1});
  ASSERT_TRUE(imported) << imported.error().message;
  EXPECT_EQ(imported->tensors.size(), 2U);
  EXPECT_TRUE(imported->tensors.contains("three"));
  EXPECT_EQ(export_safetensors(checkpoints, manifest, plain, "", {.name_prefix = "x"}).error().code,
            Code::kNotFound);
  EXPECT_EQ(
      export_safetensors(checkpoints, manifest, plain, "", {.name_prefix = "flat"}).error().code,
      Code::kInvalidArgument);
}

TEST_F(Converted, ACorruptedShardIsNotExported) {
  const std::string key = checkpoints.folder_of(5) + manifest.files[1].name;
  std::string text = *storage::get_all(store, key);
  text.back() ^= 1;
  ASSERT_TRUE(storage::put_text(store, key, text));
  const auto keys = export_safetensors(checkpoints, manifest, plain, "out");
  ASSERT_FALSE(keys);
  EXPECT_EQ(keys.error().code, Code::kCorrupt);
  EXPECT_TRUE(storage::list_all(plain, "")->empty());
}

std::string file_of(std::vector<FileEntry> entries) {
  std::string text = *format_header(entries, {});
  for (const FileEntry& entry : entries) text.append(entry.size_bytes, 'x');
  return text;
}

Code import_code(MemoryStore& plain, std::string_view key) {
  const CheckpointStore others(plain, "again");
  const auto imported = import_safetensors(plain, key, others, {.step = 1});
  EXPECT_FALSE(imported);
  EXPECT_TRUE(others.steps()->empty());
  return imported ? Code::kInternal : imported.error().code;
}

TEST(Import, DamagedFilesAreCorrupt) {
  MemoryStore plain;
  const std::string whole = file_of({{"w", {"F32", {4}}, 0, 16}});
  const auto with = [&](const std::function<void(std::string&)>& edit) {
    std::string text = whole;
    edit(text);
    EXPECT_TRUE(storage::put_text(plain, "f.safetensors", text));
    return import_code(plain, "f.safetensors");
  };
  EXPECT_EQ(with([](std::string& text) { text.resize(text.size() - 1); }), Code::kCorrupt);
  EXPECT_EQ(with([](std::string& text) { text += 'x'; }), Code::kCorrupt);
  EXPECT_EQ(with([](std::string& text) { text.resize(5); }), Code::kCorrupt);
  EXPECT_EQ(with([](std::string& text) { text.clear(); }), Code::kCorrupt);
  EXPECT_EQ(with([](std::string& text) { text[0] = '\xff'; }), Code::kCorrupt);
  EXPECT_EQ(with([](std::string& text) { text[7] = '\xff'; }), Code::kCorrupt);
  EXPECT_EQ(with([](std::string& text) { text[8] = '['; }), Code::kCorrupt);
  EXPECT_EQ(with([](std::string& text) { text.replace(text.find("F32"), 3, "F99"); }),
            Code::kCorrupt);
  EXPECT_EQ(with([](std::string& text) { text.replace(text.find("[4]"), 3, "[5]"); }),
            Code::kCorrupt);
}

TEST(Import, ATensorInTwoFilesOrNotWhereTheIndexSaysIsRefused) {
  MemoryStore plain;
  ASSERT_TRUE(storage::put_text(plain, "a.safetensors", file_of({{"w", {"F32", {4}}, 0, 16}})));
  ASSERT_TRUE(storage::put_text(plain, "b.safetensors", file_of({{"w", {"F32", {4}}, 0, 16}})));
  EXPECT_EQ(import_code(plain, ""), Code::kInvalidArgument);
  ASSERT_TRUE(storage::put_text(plain, "m.safetensors.index.json",
                                R"({"weight_map": {"w": "a.safetensors", "v": "a.safetensors"}})"));
  EXPECT_EQ(import_code(plain, ""), Code::kInvalidArgument);
  ASSERT_TRUE(storage::put_text(plain, "m.safetensors.index.json", R"({"weight_map": {"w": 1}})"));
  EXPECT_EQ(import_code(plain, ""), Code::kCorrupt);
  EXPECT_EQ(import_code(plain, "nowhere/"), Code::kNotFound);
  EXPECT_EQ(import_code(plain, "nowhere.safetensors"), Code::kNotFound);
}

}  // namespace
}  // namespace yard::checkpoint
