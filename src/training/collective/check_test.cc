#include "collective/check.h"

#include <gtest/gtest.h>

#include <set>

#include "collective/testing/forwarding_group.h"
#include "collective/testing/ranks.h"

namespace yard::collective {
namespace {

TEST(CheckTest, RoundsPairEveryTwoRanksOnceAndNobodyTwiceAtATime) {
  for (int size = 1; size <= 9; ++size) {
    std::set<std::pair<int, int>> all;
    for (const auto& round : pair_rounds(size)) {
      std::set<int> busy;
      for (const auto& pair : round) {
        EXPECT_LT(pair.first, pair.second);
        EXPECT_TRUE(busy.insert(pair.first).second && busy.insert(pair.second).second);
        EXPECT_TRUE(all.insert(pair).second);
      }
    }
    EXPECT_EQ(all.size(), static_cast<size_t>(size * (size - 1) / 2));
  }
}

std::vector<PairFigures> all_pairs(int size, double bytes_per_second) {
  std::vector<PairFigures> pairs;
  for (int a = 0; a < size; ++a)
    for (int b = a + 1; b < size; ++b)
      pairs.push_back({.a = a, .b = b, .latency_us = 10, .bytes_per_second = bytes_per_second});
  return pairs;
}

TEST(CheckTest, ASlowLinkAndASlowRankAreNamed) {
  const std::vector<std::string> hosts = {"ant", "bee", "cat", "dog"};
  auto pairs = all_pairs(4, 1e9);
  EXPECT_TRUE(find_slow(pairs, hosts, 0.5).empty());
  pairs[0].bytes_per_second = 1e8;
  auto warnings = find_slow(pairs, hosts, 0.5);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("rank 0 on ant and rank 1 on bee"), std::string::npos) << warnings[0];
  pairs = all_pairs(4, 1e9);
  for (PairFigures& pair : pairs)
    if (pair.b == 3) pair.bytes_per_second = 2e8;
  warnings = find_slow(pairs, hosts, 0.5);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("rank 3 on dog"), std::string::npos) << warnings[0];
}

TEST(CheckTest, LinksBetweenHostsAreNotComparedWithThoseInside) {
  const std::vector<std::string> hosts = {"ant", "ant", "bee", "bee"};
  auto pairs = all_pairs(4, 1e9);
  for (PairFigures& pair : pairs)
    if (hosts[static_cast<size_t>(pair.a)] == hosts[static_cast<size_t>(pair.b)])
      pair.bytes_per_second = 2e10;
  EXPECT_TRUE(find_slow(pairs, hosts, 0.5).empty());
}

TEST(CheckTest, HealthyRanksPassAndRankZeroHasTheFigures) {
  for (const auto& layout :
       {std::vector<std::string>{"a", "a", "a"}, std::vector<std::string>{"a", "b", "a"}}) {
    on_ranks(options_for(layout), [&](Group& group) {
      const auto report = check_collectives(
          group, layout[static_cast<size_t>(group.rank())],
          {.size_bytes = 100'000, .round_count = 2, .element_count = kIsSlow ? 20'011u : 100'003u});
      ASSERT_TRUE(report) << report.error().message;
      EXPECT_GT(report->operation_count, 100);
      EXPECT_EQ(report->hosts, layout);
      ASSERT_EQ(report->pairs.size(), group.rank() == 0 ? 3u : 0u);
      for (const PairFigures& pair : report->pairs) {
        EXPECT_GT(pair.latency_us, 0);
        EXPECT_GT(pair.bytes_per_second, 0);
      }
    });
  }
}

// Adds wrong, on one rank.
TEST(CheckTest, ARankThatGetsAWrongAnswerIsNamedByAll) {
  on_ranks(options_for(one_host(2)), [](Group& group) {
    class Liar final : public ForwardingGroup {
     public:
      using ForwardingGroup::ForwardingGroup;
      std::unique_ptr<Work> all_reduce(std::span<std::byte> inout, DType dtype,
                                       ReduceOp op) override {
        auto work = inner_->all_reduce(inout, dtype, op);
        if (rank() == 1 && dtype == DType::kF64 && inout.size() > 8) {
          (void)work->wait();
          inout[9] ^= std::byte{1};
        }
        return work;
      }
    };
    Liar liar(group);
    const std::string host = group.rank() == 0 ? "good" : "bad";
    const auto report = check_collectives(liar, host, {.size_bytes = 1000, .round_count = 1});
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().code, Code::kCorrupt);
    for (const char* part : {"all_reduce of 1000 f64", "rank 1 on bad"})
      EXPECT_NE(report.error().message.find(part), std::string::npos) << report.error().message;
  });
}

}  // namespace
}  // namespace yard::collective
