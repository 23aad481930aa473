#include "channels/checkpoint_sync.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "storage/memory_store.h"

namespace yard::channels {
namespace {

namespace fs = std::filesystem;

class Checkpoints : public ::testing::Test {
 protected:
  Checkpoints() {
    std::string path = (fs::temp_directory_path() / "yard-sync-XXXXXX").string();
    YARD_CHECK(::mkdtemp(path.data()) != nullptr);
    folder_ = path;
  }
  ~Checkpoints() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& content) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << content;
  }
  std::string stored(const std::string& key) {
    const auto content = storage::get_all(*store_, key);
    return content ? *content : "";
  }
  std::unique_ptr<CheckpointSync> restore() {
    CheckpointOptions options;
    options.open = [this](const std::string&) -> Result<storage::Location> {
      return storage::Location{store_, "ckpt"};
    };
    options.url = "s3://b/ckpt";
    options.folder = folder_;
    options.period = std::chrono::milliseconds(1);
    auto sync = CheckpointSync::restore(std::move(options), progress_);
    YARD_CHECK(sync.has_value());
    return *std::move(sync);
  }
  void wait_for(const std::string& key) {
    while (!store_->head(key)) std::this_thread::yield();
  }

  std::shared_ptr<storage::MemoryStore> store_ = std::make_shared<storage::MemoryStore>();
  ChannelProgress progress_;
  fs::path folder_;
};

TEST_F(Checkpoints, WhatTheStoreHasComesAndDoesNotGoBack) {
  ASSERT_TRUE(storage::put_text(*store_, "ckpt/a/w", "old"));
  ASSERT_TRUE(storage::put_text(*store_, "ckpt2/other", "not ours"));
  auto sync = restore();
  std::ifstream file(folder_ / "a/w");
  std::string content;
  file >> content;
  EXPECT_EQ(content, "old");
  EXPECT_TRUE(sync->finish());
  EXPECT_EQ(sync->uploaded_bytes(), 0U);
}

TEST_F(Checkpoints, AFileThatIsBeingWrittenWaitsUntilItIsClosed) {
  auto sync = restore();
  std::ofstream half(folder_ / "half");
  half << "not yet" << std::flush;
  sync->start();
  write("whole", "done");
  wait_for("ckpt/whole");
  EXPECT_FALSE(store_->head("ckpt/half"));
  half << ", now" << std::flush;
  half.close();
  wait_for("ckpt/half");
  EXPECT_EQ(stored("ckpt/half"), "not yet, now");
  write("whole", "changed");
  EXPECT_TRUE(sync->finish());
  EXPECT_EQ(stored("ckpt/whole"), "changed");
}

TEST_F(Checkpoints, TemporaryNamesNeverGoUp) {
  auto sync = restore();
  for (const char* name : {"a.tmp", "tmp-checkpoint-5/w", "x.part/w", "b~", "c.incomplete"})
    write(name, "x");
  write(".metadata", "a marker of torch's");
  EXPECT_TRUE(sync->finish());
  const auto all = storage::list_all(*store_, "");
  ASSERT_TRUE(all);
  ASSERT_EQ(all->size(), 1U);
  EXPECT_EQ((*all)[0].key, "ckpt/.metadata");
}

}  // namespace
}  // namespace yard::channels
