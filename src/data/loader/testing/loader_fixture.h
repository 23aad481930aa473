// Shards of small pictures in memory, and a loader over them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "images/picture.h"
#include "loader/loader.h"
#include "shards/shard_writer.h"
#include "storage/memory_store.h"

namespace yard::loader::testing {

// Wider than high, every pixel another colour, so that crops and flips show.
inline std::vector<std::byte> picture_of(int i, int width = 24, int height = 16) {
  images::Picture picture{width, height, std::vector<uint8_t>(size_t(width * height * 3))};
  for (size_t p = 0; p < picture.pixels.size(); ++p)
    picture.pixels[p] = uint8_t(p * 31 + size_t(i) * 57 + p * p / 7);
  return *images::encode_png(picture);
}

class LoaderTest : public ::testing::Test {
 protected:
  // `count` samples in shards of `per_shard`; `bad` has bytes that are no picture.
  void make_shards(int count, int per_shard = 10, const std::set<int>& bad = {},
                   const std::set<int>& without_caption = {}) {
    options_.shards.clear();
    for (int begin = 0; begin < count; begin += per_shard) {
      const std::string prefix = "s" + std::to_string(1000 + begin);
      auto writer = shards::ShardWriter::create(store_, {.prefix = prefix});
      ASSERT_TRUE(writer);
      for (int i = begin; i < std::min(count, begin + per_shard); ++i)
        add_sample(*writer, i, bad.contains(i), !without_caption.contains(i));
      ASSERT_TRUE(writer->finish());
      options_.shards.push_back(prefix + "-000000.tar");
    }
  }
  void add_sample(shards::ShardWriter& writer, int i, bool is_bad, bool has_caption) {
    std::vector<std::byte> picture = picture_of(i);
    if (is_bad) picture.resize(picture.size() / 2);
    const std::string caption = " caption " + std::to_string(i) + "\n";
    std::vector<shards::NewMember> members;
    if (has_caption) members.push_back({"txt", std::as_bytes(std::span(caption))});
    members.push_back({"png", picture});
    ASSERT_TRUE(writer.add("k" + std::to_string(1000 + i), members));
  }

  std::unique_ptr<Loader> open(const LoaderState& start = {}) { return open(store_, start); }
  std::unique_ptr<Loader> open(storage::ObjectStore& store, const LoaderState& start = {}) {
    auto loader = Loader::open(store, options_, start, counters_);
    EXPECT_TRUE(loader) << loader.error().message;
    return loader ? *std::move(loader) : nullptr;
  }
  Error open_error() {
    auto loader = Loader::open(store_, options_, {}, counters_);
    EXPECT_FALSE(loader);
    return loader ? Error{Code::kInternal, ""} : loader.error();
  }
  std::vector<Batch> batches(Loader& loader, int count) {
    std::vector<Batch> out;
    for (int i = 0; i < count; ++i) {
      auto batch = loader.next({});
      EXPECT_TRUE(batch) << batch.error().message;
      if (!batch) break;
      out.push_back(*std::move(batch));
    }
    return out;
  }

  storage::MemoryStore store_;
  CounterRegistry counters_;
  LoaderOptions options_{.seed = 11,
                         .global_batch_size = 6,
                         .image_size = 8,
                         .store_patience = std::chrono::seconds(0)};
};

inline void expect_equal(const Batch& a, const Batch& b) {
  EXPECT_EQ(a.position.epoch, b.position.epoch);
  EXPECT_EQ(a.position.batch, b.position.batch);
  EXPECT_EQ(a.sample_ids, b.sample_ids);
  EXPECT_EQ(a.keys, b.keys);
  EXPECT_EQ(a.captions, b.captions);
  EXPECT_TRUE(std::ranges::equal(a.images.bytes(), b.images.bytes()));
}

}  // namespace yard::loader::testing
