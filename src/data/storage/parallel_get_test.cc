#include "storage/parallel_get.h"

#include <gtest/gtest.h>

#include <set>

#include "storage/memory_store.h"
#include "storage/testing/faulty_store.h"

namespace yard::storage {
namespace {

using namespace std::chrono_literals;
using testing::Call;
using testing::FaultyStore;
using testing::Method;

constexpr uint64_t kMiB = 1 << 20;

std::string text_of(size_t size_bytes) {
  std::string text(size_bytes, '\0');
  for (size_t i = 0; i < size_bytes; ++i) text[i] = static_cast<char>((i * 2654435761U) >> 13);
  return text;
}

class ParallelGetTest : public ::testing::Test {
 protected:
  ParallelGetTest() {
    YARD_CHECK(put_text(store_, "k", content_));
    info_ = *store_.head("k");
  }
  Result<std::string> in_order(ObjectStore& store, const ObjectInfo& info,
                               const TransferOptions& options = {}) {
    std::string out;
    YARD_TRY(read_in_order(
        store, info,
        [&](std::span<const std::byte> bytes) -> Status {
          out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
          return Ok{};
        },
        options));
    return out;
  }

  const std::string content_ = text_of(5 * kMiB + 123);
  MemoryStore store_;
  ObjectInfo info_;
};

TEST(ChoosePartBytesTest, APartFlowsForEightTimesTheLatency) {
  const auto choose = [](std::chrono::microseconds latency, double rate) {
    return choose_part_bytes({latency, rate, true}, uint64_t{1} << 40, uint64_t{1} << 30);
  };
  EXPECT_EQ(choose(40ms, 50e6), 8 * kMiB);   // 16 MB, next power of two below
  EXPECT_EQ(choose(10ms, 100e6), 4 * kMiB);  // 8 MB
  EXPECT_EQ(choose(100us, 1e9), kMiB);       // never less
  EXPECT_EQ(choose(200ms, 1e9), 32 * kMiB);  // never more
  EXPECT_EQ(choose(0us, 0), 8 * kMiB);       // unmeasured
}

TEST(ChoosePartBytesTest, SixteenPartsFitIntoTheObjectAndTheMemory) {
  const StoreSpeed slow{200ms, 1e9, true};
  EXPECT_EQ(choose_part_bytes(slow, 64 * kMiB, 1024 * kMiB), 4 * kMiB);
  EXPECT_EQ(choose_part_bytes(slow, uint64_t{1} << 40, 128 * kMiB), 8 * kMiB);
  EXPECT_EQ(choose_part_bytes(slow, 1, 1), kMiB);
}

TEST_F(ParallelGetTest, TheWholeAndAnyRangeAreTheBytes) {
  for (const auto& [offset, size] : std::vector<std::pair<uint64_t, uint64_t>>{
           {0, content_.size()}, {1, 3 * kMiB}, {5 * kMiB, 123}, {7, 0}}) {
    std::string out(size, '?');
    ASSERT_TRUE(parallel_get(store_, info_, offset, std::as_writable_bytes(std::span(out))));
    EXPECT_EQ(out, content_.substr(offset, size));
  }
  std::string out(10, '?');
  EXPECT_EQ(parallel_get(store_, info_, content_.size(), std::as_writable_bytes(std::span(out)))
                .error()
                .code,
            Code::kInvalidArgument);
}

TEST_F(ParallelGetTest, InOrderItIsTheBytesInAnyMemory) {
  for (const uint64_t memory : {uint64_t{1}, kMiB, 3 * kMiB, 1024 * kMiB})
    EXPECT_TRUE(*in_order(store_, info_, {.memory_bytes_max = memory}) == content_) << memory;
  ASSERT_TRUE(put_text(store_, "empty", ""));
  EXPECT_EQ(*in_order(store_, *store_.head("empty")), "");
}

TEST_F(ParallelGetTest, AnErrorOfOnePartIsTheErrorOfAll) {
  for (uint64_t number = 0; number < 6; ++number) {
    FaultyStore faulty(store_, [&](const Call& call) -> Status {
      if (call.number == number) return Error{Code::kDeadlineExceeded, "injected"};
      return Ok{};
    });
    std::string out(content_.size(), '?');
    EXPECT_EQ(parallel_get(faulty, info_, 0, std::as_writable_bytes(std::span(out))).error().code,
              Code::kDeadlineExceeded);
    FaultyStore again(store_, [&](const Call& call) -> Status {
      if (call.number == number) return Error{Code::kDeadlineExceeded, "injected"};
      return Ok{};
    });
    EXPECT_EQ(in_order(again, info_).error().code, Code::kDeadlineExceeded);
  }
}

TEST_F(ParallelGetTest, AnObjectReplacedMeanwhileIsCorrupt) {
  FaultyStore replacing(store_, [&](const Call& call) -> Status {
    if (call.number == 3) YARD_TRY(put_text(store_, "k", std::string(content_.size(), 'x')));
    return Ok{};
  });
  EXPECT_EQ(in_order(replacing, info_).error().code, Code::kCorrupt);
}

TEST_F(ParallelGetTest, TheChecksumOfTheWholeIsJoinedFromTheParts) {
  for (const auto algorithm :
       {ChecksumAlgorithm::kCrc32, ChecksumAlgorithm::kCrc32c, ChecksumAlgorithm::kCrc64Nvme}) {
    ObjectInfo info = info_;
    const std::string name = std::string(to_string(algorithm)) + ":";
    info.checksum = name + checksum_base64(algorithm, std::as_bytes(std::span(content_)));
    std::string out(content_.size(), '?');
    const auto bytes = std::as_writable_bytes(std::span(out));
    EXPECT_TRUE(parallel_get(store_, info, 0, bytes)) << name;
    EXPECT_TRUE(in_order(store_, info)) << name;
    EXPECT_TRUE(parallel_get(store_, info, 1, bytes.first(kMiB))) << name;  // of a range: none
    info.checksum = name + checksum_base64(algorithm, {});
    EXPECT_EQ(parallel_get(store_, info, 0, bytes).error().code, Code::kCorrupt) << name;
    EXPECT_EQ(in_order(store_, info).error().code, Code::kCorrupt) << name;
  }
}

TEST_F(ParallelGetTest, TheErrorOfTheSinkEndsTheReading) {
  int calls = 0;
  const auto read = read_in_order(store_, info_, [&](std::span<const std::byte>) -> Status {
    ++calls;
    return Error{Code::kExhausted, "disk full"};
  });
  EXPECT_EQ(read.error().code, Code::kExhausted);
  EXPECT_EQ(calls, 1);
}

TEST_F(ParallelGetTest, AStopEndsTheReading) {
  StopSource stop;
  const auto read = read_in_order(store_, info_,
                                  [&](std::span<const std::byte>) -> Status {
                                    stop.request();
                                    return Ok{};
                                  },
                                  {.stop = stop.token()});
  EXPECT_EQ(read.error().code, Code::kCancelled);
}

}  // namespace
}  // namespace yard::storage
