#include "channels/channel_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace yard::channels {
namespace {

jobs::PlanChannel prefix_channel() {
  return {.config = {{"ChannelName", "train"},
                     {"DataSource",
                      {{"S3DataSource", {{"S3DataType", "S3Prefix"}, {"S3Uri", "s3://b/p/"}}}}}}};
}

std::vector<std::string> paths(const std::vector<std::string>& keys, const std::string& prefix) {
  const auto found = paths_of_keys(keys, prefix);
  if (!found) return {"error: " + found.error().message};
  std::vector<std::string> out;
  for (const KeyPath& item : *found) out.push_back(item.path);
  return out;
}

using Strings = std::vector<std::string>;

TEST(ChannelConfig, TheModeOfTheJobIsTheDefault) {
  const auto channel = read_channel(prefix_channel(), "FastFile");
  ASSERT_TRUE(channel) << channel.error().message;
  EXPECT_EQ(channel->mode, ChannelMode::kFastFile);
  EXPECT_EQ(channel->uri, "s3://b/p/");
  EXPECT_FALSE(channel->is_sharded);
  auto own = prefix_channel();
  own.config["InputMode"] = "Pipe";
  own.config["CompressionType"] = "Gzip";
  own.config["ShuffleConfig"] = {{"Seed", 7}};
  own.config["DataSource"]["S3DataSource"]["S3DataDistributionType"] = "ShardedByS3Key";
  const auto pipe = read_channel(own, "File");
  ASSERT_TRUE(pipe) << pipe.error().message;
  EXPECT_EQ(pipe->mode, ChannelMode::kPipe);
  EXPECT_TRUE(pipe->is_gzip && pipe->is_sharded);
  EXPECT_EQ(pipe->shuffle_seed, 7U);
}

TEST(ChannelConfig, WhatCannotBeIsRefusedWithTheChannelsName) {
  const auto refused = [](auto change) {
    auto channel = prefix_channel();
    change(channel);
    const auto read = read_channel(channel, "File");
    return !read && read.error().code == Code::kInvalidArgument &&
           read.error().message.find("'train'") != std::string::npos;
  };
  EXPECT_FALSE(refused([](auto&) {}));
  EXPECT_TRUE(refused([](auto& c) { c.config["InputMode"] = "Slow"; }));
  EXPECT_TRUE(refused([](auto& c) { c.config["CompressionType"] = "Zip"; }));
  EXPECT_TRUE(refused([](auto& c) { c.config.erase("DataSource"); }));
  EXPECT_TRUE(refused([](auto& c) {
    c.config["DataSource"]["S3DataSource"]["S3DataType"] = "AugmentedManifestFile";
  }));
  // As the service: what its lines hold are records, not files.
  EXPECT_TRUE(refused([](auto& c) {
    c.config["InputMode"] = "FastFile";
    c.config["DataSource"]["S3DataSource"] = {{"S3DataType", "AugmentedManifestFile"},
                                              {"S3Uri", "s3://b/m"},
                                              {"AttributeNames", {"a-ref"}}};
  }));
  EXPECT_FALSE(refused([](auto& c) {
    c.config["InputMode"] = "FastFile";
    c.config["DataSource"]["S3DataSource"]["S3DataType"] = "ManifestFile";
  }));
  EXPECT_TRUE(refused([](auto& c) {
    c.config["DataSource"] = {{"FileSystemDataSource", {{"FileSystemId", "fs-1"}}}};
  }));
  EXPECT_TRUE(refused([](auto& c) {
    c.config["DataSource"]["FileSystemDataSource"] = {{"FileSystemId", "fs-1"}};
  }));
}

TEST(ChannelConfig, AFileSystemsPathStaysInIt) {
  jobs::PlanChannel channel = {
      .config = {{"ChannelName", "train"},
                 {"DataSource",
                  {{"FileSystemDataSource",
                    {{"DirectoryPath", "/a/b"}, {"FileSystemAccessMode", "rw"}}}}}},
      .directory = "/mnt/shared"};
  const auto read = read_channel(channel, "File");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->directory, "/mnt/shared/a/b");
  EXPECT_TRUE(read->is_writable);
  channel.config["DataSource"]["FileSystemDataSource"]["DirectoryPath"] = "/../etc";
  EXPECT_FALSE(read_channel(channel, "File"));
}

TEST(PathsOfKeys, FollowTheRuleOfBothSdks) {
  EXPECT_EQ(paths({"d/train/a", "d/train/x/b"}, "d/train/"), (Strings{"a", "x/b"}));
  // v3 names its code's folder without a slash.
  EXPECT_EQ(paths({"in/code/a.py", "in/code/m/b.py"}, "in/code"), (Strings{"a.py", "m/b.py"}));
  // Processing names one object.
  EXPECT_EQ(paths({"in/proc.py"}, "in/proc.py"), (Strings{"proc.py"}));
  // A prefix that is no folder.
  EXPECT_EQ(paths({"d/train-1", "d/train-2"}, "d/train-"), (Strings{"train-1", "train-2"}));
  EXPECT_EQ(paths({"a", "b/c"}, ""), (Strings{"a", "b/c"}));
  EXPECT_EQ(paths({"d/", "d/x/", "d/x/y"}, "d/"), (Strings{"x/y"}));
}

TEST(PathsOfKeys, AKeyThatWouldLeaveOrCollideIsRefused) {
  EXPECT_FALSE(paths_of_keys({"d/../../etc/passwd"}, "d/"));
  EXPECT_FALSE(paths_of_keys({"d//..//x"}, "d/"));
  EXPECT_FALSE(paths_of_keys({"d/a", "d//a"}, "d/"));
  EXPECT_EQ(paths({"d//a"}, "d/"), (Strings{"a"}));
}

TEST(Shares, TogetherAreTheWholeAndDifferByOneAtMost) {
  const std::vector<int> items = {0, 1, 2, 3, 4, 5, 6};
  std::multiset<int> all;
  for (size_t index = 0; index < 3; ++index) {
    const auto share = share_of(items, index, 3);
    EXPECT_GE(share.size(), 2U);
    EXPECT_LE(share.size(), 3U);
    all.insert(share.begin(), share.end());
  }
  EXPECT_EQ(std::vector<int>(all.begin(), all.end()), items);
}

TEST(Shuffle, EachEpochHasItsOrderTheSameEveryTime) {
  const auto first = shuffled_order(50, 7, 0);
  EXPECT_EQ(first, shuffled_order(50, 7, 0));
  EXPECT_NE(first, shuffled_order(50, 7, 1));
  EXPECT_NE(first, shuffled_order(50, 8, 0));
  auto sorted = first;
  std::ranges::sort(sorted);
  for (size_t i = 0; i < sorted.size(); ++i) EXPECT_EQ(sorted[i], i);
  EXPECT_TRUE(shuffled_order(0, 7, 0).empty());
}

TEST(Manifest, HasAPrefixOrWholeUrls) {
  const auto with_prefix = parse_manifest(R"([{"prefix": "s3://b/p/"}, "a", "x/b"])", "m");
  ASSERT_TRUE(with_prefix) << with_prefix.error().message;
  ASSERT_EQ(with_prefix->size(), 2U);
  EXPECT_EQ((*with_prefix)[1].uri, "s3://b/p/x/b");
  EXPECT_EQ((*with_prefix)[1].path, "x/b");
  const auto urls = parse_manifest(R"(["s3://b/k/a"])", "m");
  ASSERT_TRUE(urls);
  EXPECT_EQ((*urls)[0].path, "k/a");
  for (const char* bad :
       {"{}", "[1]", "[\"a\"]", "[{}]", "not json", R"([{"prefix": "s3://b/p/"}, "../x"])"})
    EXPECT_FALSE(parse_manifest(bad, "m")) << bad;
}

TEST(RecordIo, HeaderAndPaddingAreThoseOfMxnet) {
  const auto header = record_io_header(5);
  ASSERT_TRUE(header);
  EXPECT_EQ(*header, std::string("\x0a\x23\xd7\xce\x05\x00\x00\x00", 8));
  EXPECT_EQ(record_io_padding(5), 3U);
  EXPECT_EQ(record_io_padding(8), 0U);
  EXPECT_FALSE(record_io_header(uint64_t{1} << 29));
}

}  // namespace
}  // namespace yard::channels
