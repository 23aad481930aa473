#include "channels/pipe_feeder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "base/file.h"
#include "channels/tar_tree.h"
#include "storage/memory_store.h"

namespace yard::channels {
namespace {

namespace fs = std::filesystem;

class Pipes : public ::testing::Test {
 protected:
  Pipes() {
    std::string path = (fs::temp_directory_path() / "yard-pipe-XXXXXX").string();
    YARD_CHECK(::mkdtemp(path.data()) != nullptr);
    folder_ = path;
  }
  ~Pipes() override { fs::remove_all(folder_); }

  void put(const std::string& key, const std::string& content) {
    const auto info = storage::put_text(*store_, key, content);
    YARD_CHECK(info.has_value());
    records_.push_back({PipePart{store_, *info, {}}});
  }
  std::unique_ptr<PipeFeeder> start(ChannelConfig channel) {
    channel.name = "train";
    auto feeder = PipeFeeder::start(std::move(channel), records_, folder_);
    YARD_CHECK(feeder.has_value());
    return *std::move(feeder);
  }
  std::string read(int epoch, size_t bytes_max = SIZE_MAX) {
    const UniqueFd pipe(
        ::open((folder_ / ("train_" + std::to_string(epoch))).c_str(), O_RDONLY | O_CLOEXEC));
    std::string content(std::min<size_t>(bytes_max, 1 << 20), '\0');
    size_t size = 0;
    ssize_t got = 0;
    while (size < content.size() &&
           (got = ::read(pipe.get(), content.data() + size, content.size() - size)) > 0)
      size += size_t(got);
    content.resize(size);
    return content;
  }

  std::shared_ptr<storage::MemoryStore> store_ = std::make_shared<storage::MemoryStore>();
  std::vector<PipeRecord> records_;
  fs::path folder_;
};

TEST_F(Pipes, EveryEpochHasAllObjectsInOrder) {
  put("a", "alpha");
  put("b", std::string(300'000, 'b'));
  const auto feeder = start({});
  for (int epoch = 0; epoch < 3; ++epoch)
    EXPECT_EQ(read(epoch), "alpha" + std::string(300'000, 'b')) << epoch;
  EXPECT_TRUE(feeder->status());
}

TEST_F(Pipes, AShuffledEpochHasTheSameObjectsInItsOwnOrder) {
  for (char c = 'a'; c < 'q'; ++c) put(std::string(1, c), std::string(1, c));
  ChannelConfig channel;
  channel.shuffle_seed = 7;
  const auto feeder = start(channel);
  std::string first = read(0), second = read(1);
  EXPECT_NE(first, second);
  std::ranges::sort(first);
  std::ranges::sort(second);
  EXPECT_EQ(first, "abcdefghijklmnop");
  EXPECT_EQ(second, first);
}

TEST_F(Pipes, GzipIsUnpackedAndRecordsAreFramed) {
  std::string packed;
  ParallelGzip gzip(2, [&](std::span<const std::byte> bytes) -> Status {
    packed.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return Ok{};
  });
  const std::string plain(2'500'000, 'p');
  ASSERT_TRUE(gzip.write(std::as_bytes(std::span(plain))));
  ASSERT_TRUE(gzip.finish());
  put("g", packed);
  ChannelConfig channel;
  channel.is_gzip = true;
  {
    const auto feeder = start(channel);
    EXPECT_EQ(read(0, 1 << 20), plain.substr(0, 1 << 20));
  }
  records_ = {{PipePart{nullptr, {}, "text"}, PipePart{nullptr, {}, "12345"}}};
  ChannelConfig framed;
  framed.as_record_io = true;
  const auto feeder = start(framed);
  EXPECT_EQ(read(0),
            *record_io_header(4) + "text" + *record_io_header(5) + "12345" + std::string(3, '\0'));
}

TEST_F(Pipes, ADamagedObjectEndsThePipeAndIsTold) {
  put("g", "this is no gzip");
  ChannelConfig channel;
  channel.is_gzip = true;
  const auto feeder = start(channel);
  EXPECT_EQ(read(0), "");
  while (feeder->status()) std::this_thread::yield();
  EXPECT_EQ(feeder->status().error().code, Code::kCorrupt);
}

TEST_F(Pipes, AReaderThatLeavesEarlyGetsTheNextEpochWhole) {
  put("b", std::string(900'000, 'b'));
  const auto feeder = start({});
  EXPECT_EQ(read(0, 10).size(), 10U);
  while (!fs::exists(folder_ / "train_1")) std::this_thread::yield();
  EXPECT_EQ(read(1).size(), 900'000U);
}

TEST_F(Pipes, AFeederWithoutAReaderEnds) {
  put("a", "x");
  start({}).reset();
}

}  // namespace
}  // namespace yard::channels
