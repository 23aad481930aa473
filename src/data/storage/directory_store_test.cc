#include "storage/directory_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <set>

#include "storage/beneath_internal.h"

namespace yard::storage {
namespace {

namespace fs = std::filesystem;

class DirectoryStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = ::testing::TempDir() + "yard-dir-XXXXXX";
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    base_ = path;
    fs::create_directories(base_ / "root");
    store_ = open_store();
  }
  void TearDown() override { fs::remove_all(base_); }

  std::unique_ptr<DirectoryStore> open_store() {
    auto store = DirectoryStore::open((base_ / "root").string());
    YARD_CHECK(store);
    return *std::move(store);
  }
  void write(const std::string& relative, const std::string& content) {
    const fs::path path = base_ / relative;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
  }
  std::string list() {
    std::string keys;
    auto objects = list_all(*store_, "");
    if (!objects) return "error: " + objects.error().message;
    for (const auto& object : *objects) keys += object.key + " ";
    return keys;
  }
  std::string get(std::string_view key) {
    auto content = get_all(*store_, key);
    return content ? *content : "error: " + content.error().message;
  }

  fs::path base_;
  std::unique_ptr<DirectoryStore> store_;
};

TEST_F(DirectoryStoreTest, LinksThatLeadOutAreRefusedAndNotListed) {
  write("secret.txt", "secret");
  write("outside/x.txt", "secret");
  fs::create_symlink("../secret.txt", base_ / "root/relative");
  fs::create_symlink(base_ / "secret.txt", base_ / "root/absolute");
  fs::create_directory_symlink("../outside", base_ / "root/folder");
  fs::create_symlink("nowhere", base_ / "root/broken");
  std::vector<std::byte> out(1);
  for (const char* key : {"relative", "absolute", "folder/x.txt"}) {
    EXPECT_EQ(store_->get_range(key, "", 0, out).error().code, Code::kInvalidArgument) << key;
    EXPECT_EQ(store_->head(key).error().code, Code::kInvalidArgument) << key;
  }
  EXPECT_EQ(put_text(*store_, "folder/new", "x").error().code, Code::kInvalidArgument);
  EXPECT_EQ(store_->remove("folder/x.txt").error().code, Code::kInvalidArgument);
  EXPECT_TRUE(fs::exists(base_ / "outside/x.txt"));
  EXPECT_FALSE(fs::exists(base_ / "outside/new"));
  EXPECT_EQ(list(), "");
}

TEST_F(DirectoryStoreTest, LinksInsideAreFollowedButALoopOfFoldersEnds) {
  write("root/blobs/1", "one");
  fs::create_symlink("../blobs/1",
                     (fs::create_directories(base_ / "root/names"), base_ / "root/names/one"));
  fs::create_directory_symlink(".", base_ / "root/loop");
  EXPECT_EQ(get("names/one"), "one");
  EXPECT_EQ(get("loop/blobs/1"), "one");
  EXPECT_EQ(list(), "blobs/1 names/one ");
}

TEST_F(DirectoryStoreTest, PuttingOverALinkReplacesTheLinkNotItsTarget) {
  write("secret.txt", "secret");
  fs::create_symlink("../secret.txt", base_ / "root/k");
  ASSERT_TRUE(put_text(*store_, "k", "new"));
  EXPECT_EQ(get("k"), "new");
  EXPECT_EQ(fs::file_size(base_ / "secret.txt"), 6U);
}

TEST_F(DirectoryStoreTest, TheWayWithoutOpenat2FollowsNoLink) {
  write("root/a/b/c", "x");
  write("secret.txt", "secret");
  fs::create_symlink("../secret.txt", base_ / "root/out");
  fs::create_directory_symlink("..", base_ / "root/up");
  const UniqueFd root(::open((base_ / "root").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto open = [&](std::string_view path) {
    return open_beneath_without_links(root.get(), path, O_RDONLY, std::string(path));
  };
  EXPECT_TRUE(open("a/b/c"));
  EXPECT_TRUE(open("."));
  EXPECT_EQ(open("a/none").error().code, Code::kNotFound);
  EXPECT_EQ(open("a/b/c/d").error().code, Code::kNotFound);
  for (const char* path : {"out", "up/secret.txt", "../secret.txt", "a/../../secret.txt"})
    EXPECT_EQ(open(path).error().code, Code::kInvalidArgument) << path;
}

TEST_F(DirectoryStoreTest, AnObjectInTheWayOfAFolderIsNamed) {
  ASSERT_TRUE(put_text(*store_, "a", "x"));
  auto below = put_text(*store_, "a/b/c", "x");
  ASSERT_FALSE(below);
  EXPECT_EQ(below.error().code, Code::kInvalidArgument);
  EXPECT_NE(below.error().message.find("'a' is an object"), std::string::npos)
      << below.error().message;
  ASSERT_TRUE(put_text(*store_, "d/e", "x"));
  EXPECT_EQ(put_text(*store_, "d", "x").error().code, Code::kInvalidArgument);
  EXPECT_EQ(put_text(*store_, "d", "x", {.if_absent = true}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(get("d/e"), "x");
}

TEST_F(DirectoryStoreTest, AFileRewrittenInPlaceChangesItsEtag) {
  write("root/k", "aaaa");
  auto before = store_->head("k");
  ASSERT_TRUE(before);
  write("root/k", "bbbbb");
  std::vector<std::byte> out(4);
  EXPECT_EQ(store_->get_range("k", before->etag, 0, out).error().code, Code::kCorrupt);
}

TEST_F(DirectoryStoreTest, OfAFileThatIsReadInPartsEveryChangeIsNoticed) {
  const std::string content(2 << 20, 'a');
  const auto parts = [&](const std::string& etag) -> std::optional<Code> {
    std::vector<std::byte> out(4096);
    for (const uint64_t offset : {0, 1 << 20, (2 << 20) - 4096})
      if (auto read = store_->get_range("k", etag, offset, out); !read) return read.error().code;
    EXPECT_EQ(out[0], std::byte('a'));
    return std::nullopt;
  };
  const std::function<void()> changes[] = {
      [&] { ASSERT_TRUE(put_text(*store_, "k", content)); },
      [&] { write("root/k", std::string(2 << 20, 'b')); },
      [&] { fs::resize_file(base_ / "root/k", 100); },
      [&] { ASSERT_TRUE(store_->remove("k")); },
      [&] { fs::remove(base_ / "root/k"); },
  };
  for (size_t i = 0; i < std::size(changes); ++i) {
    const auto before = put_text(*store_, "k", content);
    ASSERT_TRUE(before);
    ASSERT_EQ(parts(before->etag), std::nullopt);
    ASSERT_EQ(parts(before->etag), std::nullopt);
    changes[i]();
    EXPECT_EQ(parts(before->etag), i < 3 ? Code::kCorrupt : Code::kNotFound) << i;
  }
}

TEST_F(DirectoryStoreTest, FewOfManyLargeFilesAreKeptOpen) {
  const auto open_count = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  const auto before = open_count();
  std::vector<std::byte> out(10);
  for (int i = 0; i < 100; ++i) {
    const std::string key = std::to_string(i);
    write("root/" + key, "");
    fs::resize_file(base_ / "root" / key, 1 << 20);
    ASSERT_TRUE(store_->get_range(key, store_->head(key)->etag, 5, out));
  }
  EXPECT_LE(open_count(), before + 32);
  for (int i = 0; i < 100; ++i)
    if (i % 2 == 0)
      ASSERT_TRUE(store_->remove(std::to_string(i)));
    else
      ASSERT_TRUE(put_text(*store_, std::to_string(i), "another"));
  EXPECT_EQ(open_count(), before);
}

TEST_F(DirectoryStoreTest, ALargeFolderIsListedAtOnceAsItIsInPages) {
  for (int i = 0; i < 5000; ++i)
    write(fmt::format("root/{}{}", i % 100 == 0 ? "d/" : "", i), std::string(size_t(i % 7), 'x'));
  fs::create_symlink("1", base_ / "root/link");
  fs::create_symlink("nowhere", base_ / "root/lost");
  ASSERT_EQ(::mkfifo((base_ / "root/pipe").c_str(), 0600), 0);
  for (const char* prefix : {"", "2", "d/"}) {
    std::vector<ObjectInfo> paged;
    ListRequest request{.prefix = prefix};
    do {
      auto page = store_->list(request);
      ASSERT_TRUE(page);
      std::ranges::move(page->objects, std::back_inserter(paged));
      request.start_after = page->next_start_after;
    } while (!request.start_after.empty());
    const auto all = store_->list_all(prefix);
    ASSERT_TRUE(all);
    EXPECT_TRUE(std::ranges::equal(*all, paged, [](const ObjectInfo& a, const ObjectInfo& b) {
      return a.key == b.key && a.size_bytes == b.size_bytes && a.etag == b.etag;
    })) << prefix;
  }
}

// Where a sync takes no time, several puts fall into one tick of the clock that stamps files; and a
// file system may give a new file the inode of the one it replaced.
TEST(DirectoryStoreInMemoryTest, QuickPutsHaveTimesOfTheirOwn) {
  std::string path = "/dev/shm/yard-store-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) GTEST_SKIP() << "NOT TESTED: no /dev/shm here";
  auto store = DirectoryStore::open(path);
  ASSERT_TRUE(store);
  std::set<std::string> times;
  for (int i = 0; i < 200; ++i) {
    auto info = put_text(**store, "k", std::to_string(100 + i));
    ASSERT_TRUE(info) << info.error().message;
    times.insert(info->etag.substr(info->etag.rfind('-')));
  }
  fs::remove_all(path);
  EXPECT_EQ(times.size(), 200U);
}

TEST_F(DirectoryStoreTest, NothingIsLeftOfTheStagingFolder) {
  ASSERT_TRUE(put_text(*store_, "k", "x"));
  auto upload = store_->upload("deep/er/k2");
  ASSERT_TRUE(upload);
  EXPECT_EQ(list(), "k ");
  EXPECT_TRUE(fs::exists(base_ / "root" / kStagingFolder));
  upload->reset();
  EXPECT_FALSE(fs::exists(base_ / "root" / kStagingFolder));
  EXPECT_FALSE(fs::exists(base_ / "root/deep"));
}

TEST_F(DirectoryStoreTest, TheStagingFolderIsNobodysKey) {
  for (const char* key : {".yard-staging", ".yard-staging/x"}) {
    EXPECT_EQ(put_text(*store_, key, "x").error().code, Code::kInvalidArgument);
    EXPECT_EQ(store_->head(key).error().code, Code::kInvalidArgument);
  }
  write("root/.yard-staging/x", "x");
  auto page = store_->list({.prefix = ".yard-staging/"});
  ASSERT_TRUE(page);
  EXPECT_TRUE(page->objects.empty());
  EXPECT_TRUE(put_text(*store_, "deep/.yard-staging", "x"));
}

TEST_F(DirectoryStoreTest, WhatACrashedWriterLeftIsSweptWhatALivingOneWritesIsNot) {
  write("root/.yard-staging/dead", "half");
  auto living = store_->upload("living");
  ASSERT_TRUE(living);
  EXPECT_FALSE(fs::exists(base_ / "root/.yard-staging/dead"));
  ASSERT_TRUE(put_text(*open_store(), "k", "x"));  // another process's first write sweeps too
  ASSERT_TRUE((*living)->commit());
  EXPECT_EQ(list(), "k living ");
}

TEST_F(DirectoryStoreTest, NamesThatAreNoKeysAndThingsThatAreNoFilesAreNotListed) {
  write("root/good", "x");
  write("root/\xff\xfe", "x");
  ASSERT_EQ(::mkfifo((base_ / "root/fifo").c_str(), 0600), 0);
  fs::create_directories(base_ / "root/empty/folder");
  EXPECT_EQ(list(), "good ");
  std::vector<std::byte> out(1);
  EXPECT_EQ(store_->get_range("fifo", "", 0, out).error().code, Code::kNotFound);
}

// RLIMIT_FSIZE is what a full disk is to write(): it takes part of the bytes, then fails.
TEST_F(DirectoryStoreTest, AFullDiskIsExhaustedAndTheOldObjectStays) {
  ASSERT_TRUE(put_text(*store_, "k", "old"));
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight = {.rlim_cur = 1000, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  auto failed = put_text(*store_, "k", std::string(2000, 'n'));
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kExhausted);
  EXPECT_NE(failed.error().message.find("root/k"), std::string::npos) << failed.error().message;
  EXPECT_EQ(get("k"), "old");
  EXPECT_EQ(list(), "k ");
  EXPECT_FALSE(fs::exists(base_ / "root" / kStagingFolder));
}

TEST_F(DirectoryStoreTest, ARootThatIsNoDirectoryIsAnError) {
  write("file", "x");
  EXPECT_EQ(DirectoryStore::open((base_ / "none").string()).error().code, Code::kNotFound);
  EXPECT_EQ(DirectoryStore::open((base_ / "file").string()).error().code, Code::kInvalidArgument);
}

TEST_F(DirectoryStoreTest, PathsAndFileUrlsNameTheSame) {
  write("root/a b%/k.txt", "x");
  const std::string path = (base_ / "root/a b%").string();
  auto by_path = open_directory(path + "/");
  ASSERT_TRUE(by_path) << by_path.error().message;
  const std::string url = by_path->store->url();
  EXPECT_EQ(url.find(' '), std::string::npos) << url;
  for (const std::string& name : {path + "/k.txt", url + "/k.txt"}) {
    auto object = open_object(name);
    ASSERT_TRUE(object) << object.error().message;
    EXPECT_EQ(object->key, "k.txt");
    EXPECT_TRUE(object->store->head(object->key)) << name;
  }
  EXPECT_EQ(open_directory(path + "/none").error().code, Code::kNotFound);
  for (const char* bad : {"", "s3://b/k", "file://host/x", "file:///a%zz"})
    EXPECT_EQ(open_directory(bad).error().code, Code::kInvalidArgument) << bad;
  for (const char* bad : {"", "/", "x/", ".."})
    EXPECT_EQ(open_object(bad).error().code, Code::kInvalidArgument) << bad;
}

}  // namespace
}  // namespace yard::storage
