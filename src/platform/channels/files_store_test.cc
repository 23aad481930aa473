#include "channels/files_store.h"

#include <gtest/gtest.h>

#include "storage/memory_store.h"

namespace yard::channels {
namespace {

class FilesStoreTest : public testing::Test {
 protected:
  SourceFile file(const std::shared_ptr<storage::MemoryStore>& store, const std::string& key,
                  const std::string& path) {
    const auto info = storage::put_text(*store, key, "content of " + key);
    YARD_CHECK(info.has_value());
    return {store, *info, path};
  }
  Result<std::shared_ptr<FilesStore>> make(const std::vector<SourceFile>& files) {
    return FilesStore::make(files, "s3://b/manifest");
  }
  std::shared_ptr<storage::MemoryStore> left_ = std::make_shared<storage::MemoryStore>();
  std::shared_ptr<storage::MemoryStore> right_ = std::make_shared<storage::MemoryStore>();
};

TEST_F(FilesStoreTest, ObjectsOfSeveralStoresAreReadUnderTheirPaths) {
  const auto store =
      make({file(right_, "x/2", "b/two"), file(left_, "x/1", "a"), file(left_, "3", "b/three")});
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_EQ(*storage::get_all(**store, "a"), "content of x/1");
  EXPECT_EQ(*storage::get_all(**store, "b/two"), "content of x/2");
  EXPECT_EQ((*store)->head("b/three")->key, "b/three");
  const auto root = (*store)->list({.prefix = "", .start_after = "", .delimiter = "/"});
  ASSERT_TRUE(root);
  ASSERT_EQ(root->objects.size(), 1U);
  EXPECT_EQ(root->objects[0].key, "a");
  EXPECT_EQ(root->common_prefixes, (std::vector<std::string>{"b/"}));
  const auto all = storage::list_all(**store, "b/");
  ASSERT_EQ(all->size(), 2U);
  EXPECT_EQ((*all)[0].key, "b/three");
  EXPECT_EQ((*store)->head("x/1").error().code, Code::kNotFound);
}

TEST_F(FilesStoreTest, AnObjectThatChangedSinceIsNotMixed) {
  const auto store = make({file(left_, "k", "k")});
  const auto info = (*store)->head("k");
  ASSERT_TRUE(storage::put_text(*left_, "k", "another content"));
  std::vector<std::byte> bytes(4);
  EXPECT_EQ((*store)->get_range("k", info->etag, 0, bytes).error().code, Code::kCorrupt);
}

TEST_F(FilesStoreTest, WhatCannotBeFilesIsRefused) {
  EXPECT_EQ(make({file(left_, "1", "a"), file(right_, "2", "a")}).error().code,
            Code::kInvalidArgument);
  EXPECT_NE(make({file(left_, "1", "a"), file(right_, "2", "a/b")}).error().message.find("folder"),
            std::string::npos);
  EXPECT_TRUE(make({file(left_, "1", "a"), file(right_, "2", "a.b")}));
  EXPECT_FALSE(make({file(left_, "1", "../a")}));
  const auto store = make({file(left_, "1", "a")});
  EXPECT_EQ(storage::put_text(**store, "a", "x").error().code, Code::kInvalidArgument);
  EXPECT_FALSE((*store)->remove("a"));
  EXPECT_EQ(*storage::get_all(*left_, "1"), "content of 1");
}

}  // namespace
}  // namespace yard::channels
