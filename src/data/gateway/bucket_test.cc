#include "gateway/bucket.h"

#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <sys/stat.h>

#include <atomic>
#include <thread>

#include "gateway/root.h"
#include "gateway/testing/temp_root.h"

namespace yard::gateway {
namespace {

namespace fs = std::filesystem;

S3Status anything(const ObjectFile*) {
  return Ok{};
}

S3Status only_if_absent(const ObjectFile* existing) {
  if (existing != nullptr) return s3::kPreconditionFailed;
  return Ok{};
}

TEST(BucketTest, AnObjectIsAPlainFileAtItsKeysPath) {
  TempRoot folder;
  ASSERT_TRUE(folder.put("a/b/c.txt", "content"));
  EXPECT_TRUE(fs::is_regular_file(folder.path() / "b/a/b/c.txt"));
  EXPECT_EQ(folder.content("a/b/c.txt"), "content");
  EXPECT_EQ(folder.content("a/b"), "no such key");
  EXPECT_EQ(folder.count_in("tmp"), 0u);
}

TEST(BucketTest, AKeyAndAnotherUnderItAreBothObjectsInAnyOrder) {
  for (const bool deep_first : {false, true}) {
    TempRoot folder;
    const auto put = [&](const char* key) { ASSERT_TRUE(folder.put(key, key)) << key; };
    if (deep_first) {
      put("a/b/c");
      put("a/b");
      put("a");
    } else {
      put("a");
      put("a/b");
      put("a/b/c");
    }
    for (const char* key : {"a", "a/b", "a/b/c"}) EXPECT_EQ(folder.content(key), key);
    for (const char* key : {"a", "a/b", "a/b/c"}) {
      EXPECT_TRUE(*folder.remove(key));
      EXPECT_EQ(folder.content(key), "no such key");
      EXPECT_FALSE(*folder.remove(key));
    }
    EXPECT_TRUE(fs::is_empty(folder.path() / "b"));
    EXPECT_TRUE(folder.root().delete_bucket("b"));
    EXPECT_EQ(folder.count_in("odd"), 0u);
  }
}

TEST(BucketTest, AKeyWhosePathBecameFreeIsReplacedNotDoubled) {
  TempRoot folder;
  ASSERT_TRUE(folder.put("a", "file"));
  ASSERT_TRUE(folder.put("a/b", "first"));
  ASSERT_TRUE(*folder.remove("a"));
  EXPECT_EQ(folder.content("a/b"), "first");
  ASSERT_TRUE(folder.put("a/b", "second"));
  EXPECT_TRUE(fs::is_regular_file(folder.path() / "b/a/b"));
  EXPECT_EQ(folder.content("a/b"), "second");
  EXPECT_FALSE(fs::exists(folder.path() / ".yard/odd/b/a+/b="));
  ASSERT_TRUE(*folder.remove("a/b"));
  EXPECT_EQ(folder.content("a/b"), "no such key");
}

TEST(BucketTest, AnEmptyFolderIsNoObjectAndInNobodysWay) {
  TempRoot folder;
  fs::create_directories(folder.path() / "b/a");
  ASSERT_TRUE(folder.put("a", "file"));
  EXPECT_TRUE(fs::is_regular_file(folder.path() / "b/a"));
}

TEST(BucketTest, NoKeyLeadsOutOfTheBucket) {
  TempRoot folder;
  for (const char* key : {"../x", "a/../../x", "/etc/x", "..", ".", "../.yard/credentials.json"}) {
    ASSERT_TRUE(folder.put(key, key)) << key;
    EXPECT_EQ(folder.content(key), key);
  }
  size_t in_root = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    EXPECT_TRUE(entry.path().filename() == "b" || entry.path().filename() == ".yard");
    ++in_root;
  }
  EXPECT_EQ(in_root, 2u);
  EXPECT_FALSE(fs::exists(folder.path() / ".yard/credentials.json"));
}

TEST(BucketTest, LinksThatLeadOutAreNoObjectsAndNothingIsWrittenThroughThem) {
  TempRoot folder;
  const fs::path outside = folder.path() / "outside";
  fs::create_directory(outside);
  std::ofstream(outside / "secret") << "secret";
  fs::create_symlink(outside / "secret", folder.path() / "b/file");
  fs::create_symlink(outside, folder.path() / "b/folder");
  EXPECT_EQ(folder.content("file"), "no such key");
  EXPECT_EQ(folder.content("folder/secret"), "no such key");
  ASSERT_TRUE(folder.put("folder/new", "new"));
  EXPECT_EQ(folder.content("folder/new"), "new");
  EXPECT_FALSE(fs::exists(outside / "new"));
  ASSERT_TRUE(folder.put("file", "replaces the link"));
  EXPECT_EQ(folder.content("file"), "replaces the link");
  EXPECT_EQ(fs::file_size(outside / "secret"), 6u);
  EXPECT_FALSE(*folder.remove("folder/secret"));
  EXPECT_TRUE(fs::exists(outside / "secret"));
}

TEST(BucketTest, AFileThatMayNotBeReadIsAccessDeniedAndNotMissing) {
  TempRoot folder;
  ASSERT_TRUE(folder.put("k", "secret"));
  fs::permissions(folder.path() / "b/k", fs::perms::none);
  const Bucket bucket = folder.bucket();
  // Of this thread, for the super-user may read everything.
  const int user = ::setfsuid(65534);
  const auto plain = bucket.open("k");
  ::setfsuid(uid_t(user));
  ASSERT_FALSE(plain);
  EXPECT_EQ(plain.error().code, "AccessDenied");
}

TEST(BucketTest, APipeOrSocketIsNoObject) {
  TempRoot folder;
  ASSERT_EQ(::mkfifo((folder.path() / "b/pipe").c_str(), 0600), 0);
  EXPECT_EQ(folder.content("pipe"), "no such key");
}

TEST(BucketTest, AReaderKeepsTheContentThatItOpened) {
  TempRoot folder;
  ASSERT_TRUE(folder.put("k", "old"));
  const auto object = folder.bucket().open("k");
  ASSERT_TRUE(folder.put("k", "new content"));
  char bytes[3];
  ASSERT_EQ(::pread(object->fd.get(), bytes, 3, 0), 3);
  EXPECT_EQ(std::string_view(bytes, 3), "old");
}

TEST(BucketTest, ARefusedWriteLeavesNothing) {
  TempRoot folder;
  ASSERT_TRUE(folder.put("k", "old"));
  TempFile file = *folder.root().make_temp_file();
  const auto refused = folder.bucket().store(std::move(file), {.etag = "e"}, "k", only_if_absent);
  EXPECT_EQ(refused.error().http_status, 412);
  EXPECT_EQ(folder.content("k"), "old");
  EXPECT_EQ(folder.count_in("tmp"), 0u);
}

TEST(BucketTest, OfManyWhoWantToBeFirstOneIs) {
  TempRoot folder;
  std::atomic<int> winners = 0;
  std::vector<std::thread> writers;
  for (int i = 0; i < 8; ++i)
    writers.emplace_back([&, i] {
      for (int key = 0; key < 20; ++key) {
        TempFile file = *folder.root().make_temp_file();
        const std::string text = std::to_string(i);
        ASSERT_TRUE(file.write(bytes_of(text)));
        Bucket bucket = folder.bucket();
        if (bucket.store(std::move(file), {.etag = text}, "d/" + std::to_string(key),
                         only_if_absent))
          ++winners;
      }
    });
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(winners, 20);
}

TEST(BucketTest, PutsAndRemovesInOneFolderDoNotDisturbEachOther) {
  TempRoot folder;
  std::vector<std::thread> workers;
  for (int i = 0; i < 4; ++i)
    workers.emplace_back([&, i] {
      for (int round = 0; round < 50; ++round) {
        const std::string key = "shared/folder/" + std::to_string(i);
        ASSERT_TRUE(folder.put(key, key));
        ASSERT_EQ(folder.content(key), key);
        ASSERT_TRUE(*folder.remove(key));
      }
    });
  for (std::thread& worker : workers) worker.join();
  EXPECT_TRUE(fs::is_empty(folder.path() / "b"));
}

TEST(RootTest, WhatAKilledGatewayWasWritingIsRemovedAtTheStart) {
  TempRoot folder;
  std::ofstream(folder.path() / ".yard/tmp/left") << "half";
  fs::create_directories(folder.path() / ".yard/uploads/0123");
  folder.open();
  EXPECT_EQ(folder.count_in("tmp"), 0u);
}

TEST(RootTest, AFolderIsServedByOneAtATime) {
  TempRoot folder;
  const auto second = Root::open(folder.path().string());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kUnavailable);
  folder.close();
  EXPECT_TRUE(Root::open(folder.path().string()));
}

TEST(RootTest, OnlyExistingFoldersAreServed) {
  TempRoot folder;
  EXPECT_EQ(Root::open((folder.path() / "none").string()).error().code, Code::kNotFound);
  std::ofstream(folder.path() / "file") << "";
  EXPECT_EQ(Root::open((folder.path() / "file").string()).error().code, Code::kInvalidArgument);
}

TEST(RootTest, BucketsAreFoldersNotFilesLinksOrOurs) {
  TempRoot folder;
  std::ofstream(folder.path() / "file") << "";
  fs::create_directory_symlink("/etc", folder.path() / "link");
  fs::create_directory(folder.path() / "By_Hand");
  fs::create_directory(folder.path() / "with space");
  std::vector<std::string> names;
  const auto buckets = folder.root().list_buckets();
  for (const BucketInfo& info : *buckets) names.push_back(info.name);
  EXPECT_EQ(names, (std::vector<std::string>{"By_Hand", "b"}));
  for (const char* name : {"file", "link", ".yard", "..", "", "with space", "a/b"})
    EXPECT_EQ(folder.root().bucket(name).error().code, "NoSuchBucket") << name;
}

TEST(RootTest, BucketNamesFollowS3sRule) {
  for (const char* name : {"abc", "a-b.c", "0ab", "123.456"})
    EXPECT_TRUE(is_new_bucket_name(name)) << name;
  for (const char* name :
       {"ab", "Abc", "a_b", "-abc", "abc-", "a..b", "192.168.1.1", "", ".yard", "a/b"})
    EXPECT_FALSE(is_new_bucket_name(name)) << name;
  EXPECT_FALSE(is_new_bucket_name(std::string(64, 'a')));
}

TEST(RootTest, ABucketIsRemovedOnlyWhenEmpty) {
  TempRoot folder;
  for (const char* key : {"plain", "odd//"}) {
    ASSERT_TRUE(folder.put(key, ""));
    EXPECT_EQ(folder.root().delete_bucket("b").error().code, "BucketNotEmpty") << key;
    EXPECT_EQ(folder.content(key), "");
    ASSERT_TRUE(folder.remove(key));
  }
  EXPECT_TRUE(folder.root().delete_bucket("b"));
  EXPECT_EQ(folder.root().delete_bucket("b").error().code, "NoSuchBucket");
}

TEST(RootTest, ABucketMadeAnewHasNothingOfAnOlderOneOfItsName) {
  TempRoot folder;
  ASSERT_TRUE(folder.root().create_bucket("bucket"));
  TempFile file = *folder.root().make_temp_file();
  ASSERT_TRUE(
      folder.root().bucket("bucket")->store(std::move(file), {.etag = "e"}, "odd/", anything));
  fs::remove_all(folder.path() / "bucket");
  ASSERT_TRUE(folder.root().create_bucket("bucket"));
  EXPECT_FALSE(folder.root().bucket("bucket")->exists("odd/"));
  EXPECT_EQ(folder.root().create_bucket("bucket").error().code, "BucketAlreadyOwnedByYou");
}

}  // namespace
}  // namespace yard::gateway
