#include "net/md5_group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/random.h"
#include "net/md5_blocks_internal.h"
#include "net/testing/plain_md5.h"

namespace yard {
namespace {

using namespace std::chrono_literals;

TEST(Md5Group, StreamsOfManyThreadsEachHaveTheirOwnDigest) {
  constexpr size_t kThreads = 24;  // more than lanes
  Md5Group group;
  std::vector<std::string> got(kThreads), want(kThreads);
  {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        const auto bytes = noise(20'000 + 777 * t, t);
        want[t] = openssl_md5(bytes);
        Md5Group::Stream md5(group);
        for (size_t at = 0; at < bytes.size();) {
          const size_t piece = std::min<size_t>(1 + random_u64(t, 1, at) % 5000, bytes.size() - at);
          md5.update(std::span(bytes).subspan(at, piece));
          at += piece;
        }
        got[t] = md5.digest();
      });
  }
  EXPECT_EQ(got, want);
}

TEST(Md5Group, AStreamAloneWaitsForNobody) {
  Md5Group group({.gather_time = 1h, .recent = 1h});
  const auto bytes = noise(100'000, 1);
  Md5Group::Stream quiet(group);  // gave nothing yet
  Md5Group::Stream md5(group);
  for (size_t at = 0; at < bytes.size(); at += 10'000)
    md5.update(std::span(bytes).subspan(at, 10'000));
  EXPECT_EQ(md5.digest(), openssl_md5(bytes));
  EXPECT_EQ(group.counts().batch_count, group.counts().piece_count);
}

// Each piece of the second stream waits for one of the first, which is there all the time.
TEST(Md5Group, StreamsThatComeTogetherAreHashedTogether) {
  if (net_internal::md5_lane_count() < 2) GTEST_SKIP() << "NOT TESTED: this CPU has no vectors";
  constexpr uint64_t kPieces = 200;
  Md5Group group({.gather_time = 1h, .recent = 1h});
  const auto bytes = noise(1 << 10, 3);
  Md5Group::Stream first(group);
  first.update(bytes);
  std::atomic<bool> is_done = false;
  {
    const std::jthread other([&] {
      Md5Group::Stream second(group);
      for (uint64_t i = 0; i < kPieces; ++i) second.update(bytes);
      is_done = true;
    });
    while (!is_done) first.update(bytes);
  }
  const auto counts = group.counts();
  EXPECT_EQ(counts.piece_count - counts.batch_count, kPieces);
}

TEST(Md5Group, APieceGoesOnWhenTheStreamItWaitsForEnds) {
  Md5Group group({.gather_time = 1h, .recent = 1h});
  const auto bytes = noise(1 << 10, 3);
  auto other = std::make_unique<Md5Group::Stream>(group);
  other->update(bytes);  // has just been seen
  std::jthread ender([&] { other.reset(); });
  Md5Group::Stream md5(group);
  md5.update(bytes);
  EXPECT_EQ(md5.digest(), openssl_md5(bytes));
}

}  // namespace
}  // namespace yard
