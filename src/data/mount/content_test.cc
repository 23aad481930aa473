#include "mount/content.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <future>

#include "base/testing/fake_clock.h"
#include "storage/memory_store.h"
#include "storage/testing/s3_faults.h"
#include "telemetry/metric_names.h"

namespace yard::mount {
namespace {

using storage::testing::bytes_text;

constexpr uint64_t kKib = 1 << 10, kMib = 1 << 20;

struct Request {
  std::string key;
  uint64_t offset;
  uint64_t size_bytes;
};

// A store that notes its ranges, gives them in pieces, and fails or waits on command.
class RangeStore final : public storage::ObjectStore {
 public:
  using Fate = std::function<Status(const Request&, int number)>;

  Status get_range_to(std::string_view key, std::string_view etag, uint64_t offset, uint64_t size,
                      const storage::RangeSink& sink) override {
    const Request request{std::string(key), offset, size};
    int number = 0;
    uint64_t give = size;
    {
      std::unique_lock lock(mutex_);
      number = static_cast<int>(requests_.size());
      requests_.push_back(request);
      changed_.notify_all();
      changed_.wait(lock, [&] { return is_open_; });
      if (cut_after_ && number == 0) give = std::min(size, *cut_after_);
    }
    if (fate) YARD_TRY(fate(request, number));
    std::vector<std::byte> bytes(size);
    YARD_TRY(inner.get_range(key, etag, offset, bytes));
    constexpr uint64_t kPiece = 100'000;  // fits no block size
    for (uint64_t at = 0; at < give; at += kPiece)
      YARD_TRY(sink(at, std::span(bytes).subspan(at, std::min(kPiece, give - at))));
    if (give < size) return Error{Code::kUnavailable, "cut short"};
    return Ok{};
  }
  Status get_range(std::string_view key, std::string_view etag, uint64_t offset,
                   std::span<std::byte> out) override {
    return inner.get_range(key, etag, offset, out);
  }
  Result<storage::ObjectInfo> head(std::string_view key) override { return inner.head(key); }
  Result<storage::ListPage> list(const storage::ListRequest& request) override {
    return inner.list(request);
  }
  Result<storage::ObjectInfo> put(std::string_view key, std::span<const std::byte> content,
                                  const storage::PutOptions& options) override {
    return inner.put(key, content, options);
  }
  Result<std::unique_ptr<storage::Upload>> upload(std::string_view key,
                                                  const storage::PutOptions& options) override {
    return inner.upload(key, options);
  }
  Result<storage::ObjectInfo> copy(std::string_view source, std::string_view key,
                                   const storage::PutOptions& options) override {
    return inner.copy(source, key, options);
  }
  Status remove(std::string_view key) override { return inner.remove(key); }
  std::string url() const override { return "test:"; }
  storage::StoreSpeed speed() const override {
    return {.latency = std::chrono::milliseconds(40), .stream_bytes_per_second = 100e6};
  }

  void set_open(bool is_open) {
    const std::lock_guard lock(mutex_);
    is_open_ = is_open;
    changed_.notify_all();
  }
  void cut_first_after(uint64_t bytes) { cut_after_ = bytes; }
  void wait_for_requests(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return requests_.size() >= count; });
  }
  std::vector<Request> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  uint64_t requested_bytes() const {
    uint64_t sum = 0;
    for (const Request& request : requests()) sum += request.size_bytes;
    return sum;
  }

  storage::MemoryStore inner;
  Fate fate;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Request> requests_;
  bool is_open_ = true;
  std::optional<uint64_t> cut_after_;
};

class ContentTest : public testing::Test {
 protected:
  void SetUp() override { build(64 * kMib); }
  void TearDown() override { end(); }

  void build(uint64_t memory_bytes, DiskCache* cache = nullptr) {
    end();
    stop.emplace();
    memory.emplace(memory_bytes);
    queue.emplace(16);
    wait.emplace(std::chrono::seconds(300), counters.counter(metric::kMountStoreRetries),
                 stop->token(), clock);
    content.emplace(
        store, *wait, *memory, *queue, cache, counters,
        ContentOptions{.on_changed = [this](const auto& v) { changed.push_back(v.key); }},
        stop->token(), clock);
  }
  void end() {
    if (!content) return;
    store.set_open(true);
    stop->request();
    queue.reset();
    content->end();
    content.reset();
    memory.reset();
  }

  ObjectVersion put(const std::string& key, uint64_t size_bytes, unsigned seed = 1) {
    auto info = storage::put_text(store.inner, key, bytes_text(size_bytes, seed));
    YARD_CHECK(info);
    return {key, info->etag, size_bytes};
  }

  using Answer = std::future<Result<std::string>>;
  Answer start(const std::shared_ptr<Content::Handle>& handle, uint64_t offset, uint64_t size) {
    auto promise = std::make_shared<std::promise<Result<std::string>>>();
    Answer answer = promise->get_future();
    content->read(handle, offset, size, [promise](Result<Content::Pieces> pieces) {
      if (!pieces) return promise->set_value(std::move(pieces).error());
      std::string text;
      for (const auto& piece : *pieces)
        text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      promise->set_value(std::move(text));
    });
    return answer;
  }
  Result<std::string> read(const std::shared_ptr<Content::Handle>& handle, uint64_t offset,
                           uint64_t size) {
    return start(handle, offset, size).get();
  }
  double count(std::string_view name) { return counters.counter(name).value(); }

  RangeStore store;
  FakeClock clock;
  CounterRegistry counters;
  std::vector<std::string> changed;
  std::optional<StopSource> stop;
  std::optional<storage::StoreWait> wait;
  std::optional<Memory> memory;
  std::optional<FetchQueue> queue;
  std::optional<Content> content;
};

TEST_F(ContentTest, EveryReadIsTheBytesAsked) {
  const auto version = put("a", 3 * kMib + 17);
  const std::string whole = bytes_text(3 * kMib + 17);
  const auto handle = content->open(version);
  for (const auto& [offset, size] : std::vector<std::pair<uint64_t, uint64_t>>{{0, 4096},
                                                                               {kMib, kMib},
                                                                               {kMib - 1, 2},
                                                                               {3 * kMib, 4096},
                                                                               {2 * kMib, 2 * kMib},
                                                                               {0, kMib}}) {
    const auto got = read(handle, offset, size);
    ASSERT_TRUE(got);
    EXPECT_EQ(*got, whole.substr(offset, size)) << offset;
  }
  EXPECT_EQ(*read(handle, 3 * kMib + 17, 4096), "");
  EXPECT_EQ(*read(handle, uint64_t{1} << 50, 4096), "");
  content->close(handle);
}

TEST_F(ContentTest, AFileReadInOrderIsWholeAndEachByteIsFetchedOnce) {
  const auto version = put("a", 20 * kMib + 5);
  const std::string whole = bytes_text(20 * kMib + 5);
  const auto handle = content->open(version);
  std::string got;
  while (got.size() < whole.size()) got += *read(handle, got.size(), 128 * kKib);
  EXPECT_TRUE(got == whole);
  content->close(handle);
  EXPECT_EQ(store.requested_bytes(), whole.size());
  queue.emplace(16);  // has run all that was under way
  EXPECT_EQ(memory->used_bytes(), 0U);
}

TEST_F(ContentTest, ASmallReadCostsItsOwnBytes) {
  const auto handle = content->open(put("a", 50 * kMib));
  EXPECT_TRUE(read(handle, 0, 16 * kKib));
  EXPECT_TRUE(read(handle, 30 * kMib, 4 * kKib));
  EXPECT_EQ(store.requested_bytes(), 20 * kKib);
  content->close(handle);
}

TEST_F(ContentTest, RandomReadsCostTheirOwnBytes) {
  const auto handle = content->open(put("a", 50 * kMib));
  for (const uint64_t place : {40U, 3U, 17U, 25U, 9U, 33U, 1U, 48U})
    EXPECT_TRUE(read(handle, place * kMib, 64 * kKib));
  EXPECT_EQ(store.requested_bytes(), 8 * 64 * kKib);
  content->close(handle);
}

TEST_F(ContentTest, AFileBelow128KibIsFetchedWholeByItsFirstRead) {
  const auto handle = content->open(put("a", 120 * kKib));
  EXPECT_TRUE(read(handle, 8 * kKib, 4 * kKib));
  EXPECT_TRUE(read(handle, 0, 120 * kKib));
  EXPECT_EQ(store.requests().size(), 1U);
  content->close(handle);
}

TEST_F(ContentTest, ASeekDropsWhatWasFetchedAhead) {
  const auto handle = content->open(put("a", 60 * kMib));
  EXPECT_TRUE(read(handle, 0, kMib));
  EXPECT_TRUE(read(handle, 55 * kMib, 64 * kKib));
  queue.emplace(16);  // has run all that was under way
  EXPECT_EQ(memory->used_bytes(), 0U);
  content->close(handle);
}

TEST_F(ContentTest, AFileClosedWhileItIsReadLeavesNothing) {
  const auto handle = content->open(put("a", 120 * kKib));
  store.set_open(false);
  auto answer = start(handle, 0, 4 * kKib);  // of a file that is fetched whole
  content->close(handle);
  store.set_open(true);
  EXPECT_TRUE(answer.get());
  queue.emplace(16);  // has run all that was under way
  EXPECT_EQ(memory->used_bytes(), 0U);
}

TEST_F(ContentTest, ManyReadersOfOneByteRangeCostOneRequest) {
  const auto version = put("a", 100 * kKib);
  store.set_open(false);
  std::vector<std::shared_ptr<Content::Handle>> handles;
  std::vector<Answer> answers;
  for (int i = 0; i < 20; ++i) {
    handles.push_back(content->open(version));
    answers.push_back(start(handles.back(), 0, 100 * kKib));
  }
  store.set_open(true);
  for (auto& answer : answers) EXPECT_EQ(answer.get()->size(), 100 * kKib);
  EXPECT_EQ(store.requests().size(), 1U);
  for (const auto& handle : handles) content->close(handle);
}

TEST_F(ContentTest, ThreeHundredFilesAtOnceStayWithinALittleMemory) {
  build(32 * kMib);
  std::vector<std::shared_ptr<Content::Handle>> handles;
  std::vector<ObjectVersion> versions;
  for (unsigned i = 0; i < 300; ++i) {
    versions.push_back(put(std::to_string(i), kMib, i));
    handles.push_back(content->open(versions.back()));
  }
  for (uint64_t offset = 0; offset < kMib; offset += 128 * kKib) {
    std::vector<Answer> answers;
    for (const auto& handle : handles) answers.push_back(start(handle, offset, 128 * kKib));
    EXPECT_LE(memory->used_bytes(), 32 * kMib);
    for (unsigned i = 0; i < 300; ++i) {
      const auto got = answers[i].get();
      ASSERT_TRUE(got);
      std::string expected(128 * kKib, '\0');
      ASSERT_TRUE(store.inner.get_range(versions[i].key, "", offset,
                                        std::as_writable_bytes(std::span(expected))));
      EXPECT_TRUE(*got == expected) << i;
    }
  }
  for (const auto& handle : handles) content->close(handle);
}

TEST_F(ContentTest, AReadThatNeedsAllTheMemoryWaitsForItsTurn) {
  build(2 * kMib);
  const auto a = content->open(put("a", 8 * kMib)), b = content->open(put("b", 8 * kMib, 2));
  store.set_open(false);
  std::vector<Answer> answers;
  for (uint64_t i = 0; i < 4; ++i) {
    answers.push_back(start(a, i * 2 * kMib, kMib));
    answers.push_back(start(b, i * 2 * kMib, kMib));
  }
  EXPECT_LE(memory->used_bytes(), 2 * kMib);
  store.set_open(true);
  for (auto& answer : answers) EXPECT_EQ(answer.get()->size(), kMib);
  content->close(a);
  content->close(b);
}

TEST_F(ContentTest, AChangedObjectIsAnErrorToAllReadsOfItAndNeverAMixture) {
  const auto version = put("a", 10 * kMib, 1);
  const auto handle = content->open(version);
  ASSERT_TRUE(read(handle, 0, 4 * kKib));
  put("a", 10 * kMib, 2);
  store.set_open(false);
  Answer first = start(handle, 2 * kMib, 4 * kKib), second = start(handle, 4 * kMib, 4 * kKib);
  store.wait_for_requests(3);
  store.set_open(true);
  EXPECT_FALSE(first.get());
  EXPECT_FALSE(second.get());
  for (const uint64_t offset : {5 * kMib, 7 * kMib, uint64_t{0}}) {
    const auto got = read(handle, offset, 4 * kKib);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, Code::kCorrupt);
  }
  EXPECT_EQ(changed, std::vector<std::string>{"a"});  // told once
  content->close(handle);
}

TEST_F(ContentTest, ANewVersionIsReadableWhileTheOldOneIsOpen) {
  const auto old_handle = content->open(put("a", kMib, 1));
  ASSERT_TRUE(read(old_handle, 0, 4 * kKib));
  const auto new_handle = content->open(put("a", kMib, 2));
  EXPECT_EQ(*read(new_handle, 512 * kKib, 4 * kKib),
            bytes_text(kMib, 2).substr(512 * kKib, 4 * kKib));
  EXPECT_FALSE(read(old_handle, 512 * kKib, 4 * kKib));
  content->close(old_handle);
  content->close(new_handle);
}

TEST_F(ContentTest, ARemovedObjectIsAnError) {
  const auto handle = content->open(put("a", kMib));
  ASSERT_TRUE(store.inner.remove("a"));
  const auto got = read(handle, 0, 4 * kKib);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kNotFound);
  content->close(handle);
}

TEST_F(ContentTest, ReadersWaitForAStoreThatIsAwayAndGoOn) {
  const auto handle = content->open(put("a", kMib));
  store.fate = [&](const Request&, int number) -> Status {
    if (number < 20) return Error{Code::kUnavailable, "away"};
    return Ok{};
  };
  EXPECT_EQ(*read(handle, 0, 4 * kKib), bytes_text(kMib).substr(0, 4 * kKib));
  EXPECT_GE(clock.elapsed(), std::chrono::seconds(30));
  EXPECT_EQ(count(metric::kMountStoreRetries), 20);
  content->close(handle);
}

TEST_F(ContentTest, AStoreThatStaysAwayIsAnErrorInTheEnd) {
  const auto handle = content->open(put("a", kMib));
  store.fate = [](const Request&, int) -> Status { return Error{Code::kUnavailable, "away"}; };
  const auto got = read(handle, 0, 4 * kKib);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kUnavailable);
  store.fate = nullptr;
  EXPECT_TRUE(read(handle, 0, 4 * kKib));  // and not for ever
  content->close(handle);
}

TEST_F(ContentTest, AfterABrokenBodyOnlyTheRestIsAskedFor) {
  const auto handle = content->open(put("a", 4 * kMib));
  store.cut_first_after(700'000);
  EXPECT_EQ(*read(handle, kMib, kMib), bytes_text(4 * kMib).substr(kMib, kMib));
  const auto requests = store.requests();
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[1].offset, kMib + 700'000);
  EXPECT_EQ(requests[1].size_bytes, kMib - 700'000);
  content->close(handle);
}

TEST_F(ContentTest, AFileFetchedAheadIsReadWithoutARequest) {
  const auto version = put("a", 50 * kKib);
  EXPECT_TRUE(content->fetch_ahead(version));
  EXPECT_TRUE(content->fetch_ahead(version));  // is under way
  const auto handle = content->open(version);
  EXPECT_EQ(*read(handle, 0, 50 * kKib), bytes_text(50 * kKib));
  EXPECT_EQ(store.requests().size(), 1U);
  content->close(handle);
  queue.emplace(16);  // has run all that was under way
  EXPECT_EQ(memory->used_bytes(), 0U);
}

TEST_F(ContentTest, FilesFetchedAheadMakeRoomForReaders) {
  build(2 * kMib);
  int begun = 0;
  for (unsigned i = 0; i < 40; ++i)
    begun += content->fetch_ahead(put("w" + std::to_string(i), 512 * kKib, i));
  EXPECT_GE(begun, 3);  // three quarters of the memory
  const auto handle = content->open(put("a", 8 * kMib));
  for (uint64_t at = 0; at < 8 * kMib; at += 2 * kMib) EXPECT_TRUE(read(handle, at, kMib));
  content->close(handle);
  EXPECT_LE(memory->used_bytes(), 2 * kMib);
}

TEST_F(ContentTest, AStopAnswersWhoWaits) {
  const auto handle = content->open(put("a", kMib));
  store.fate = [this](const Request&, int) -> Status {
    stop->request();
    return Error{Code::kUnavailable, "away"};
  };
  EXPECT_FALSE(read(handle, 0, 4 * kKib));
  content->close(handle);
}

}  // namespace
}  // namespace yard::mount
