// Messages from rank to rank.
#include <gtest/gtest.h>

#include <latch>
#include <numeric>
#include <vector>

#include "collective/collective.h"
#include "collective/testing/ranks.h"

namespace yard::collective {
namespace {

std::vector<int32_t> pattern(size_t count, int seed) {
  std::vector<int32_t> values(count);
  std::iota(values.begin(), values.end(), seed * 1'000'003);
  return values;
}

class PointToPointTest : public ::testing::TestWithParam<Hosts> {
 protected:
  void run(const std::function<void(Group&)>& body) { on_ranks(options_for(GetParam()), body); }
};

// Eager, and offered.
constexpr size_t kCounts[] = {0, 1, 1000, 16'384, 16'385, kIsSlow ? 200'001 : 700'001};

TEST_P(PointToPointTest, EveryPairExchangesMessagesOfAnySize) {
  run([](Group& group) {
    for (const size_t count : kCounts) {
      std::vector<std::vector<int32_t>> sent, received;
      std::vector<std::unique_ptr<Work>> works;
      for (int peer = 0; peer < group.size(); ++peer) {
        sent.push_back(pattern(count, group.rank() * 10 + peer));
        received.emplace_back(count);
      }
      for (int peer = 0; peer < group.size(); ++peer) {
        if (peer == group.rank()) continue;
        const auto at = static_cast<size_t>(peer);
        works.push_back(group.send(bytes_of(sent[at]), peer, 5));
        works.push_back(group.receive(bytes_of(received[at]), peer, 5));
      }
      for (auto& work : works) ASSERT_TRUE(work->wait());
      for (int peer = 0; peer < group.size(); ++peer) {
        if (peer == group.rank()) continue;
        ASSERT_EQ(received[static_cast<size_t>(peer)], pattern(count, peer * 10 + group.rank()));
      }
    }
  });
}

TEST_P(PointToPointTest, TagsAreReceivedInAnyOrderAndEachInTheOrderOfIssue) {
  run([](Group& group) {
    constexpr int kMessages = 30;
    // Some are larger than what goes at once.
    const auto count_of = [](int i) { return static_cast<size_t>(i % 3 == 0 ? 40'000 : 10 * i); };
    if (group.rank() == 0) {
      std::vector<std::vector<int32_t>> data;
      std::vector<std::unique_ptr<Work>> works;
      for (int i = 0; i < 2 * kMessages; ++i) data.push_back(pattern(count_of(i / 2), i));
      for (int i = 0; i < 2 * kMessages; ++i)
        works.push_back(
            group.send(bytes_of(data[static_cast<size_t>(i)]), 1, static_cast<uint64_t>(i % 2)));
      for (auto& work : works) ASSERT_TRUE(work->wait());
    } else if (group.rank() == 1) {
      for (const int tag : {1, 0}) {
        for (int i = 0; i < kMessages; ++i) {
          std::vector<int32_t> data(count_of(i));
          ASSERT_TRUE(group.receive(bytes_of(data), 0, static_cast<uint64_t>(tag))->wait());
          ASSERT_EQ(data, pattern(count_of(i), 2 * i + tag));
        }
      }
    }
    ASSERT_TRUE(group.barrier()->wait());
  });
}

TEST_P(PointToPointTest, AReceiveFromAnyRankTellsWhoItWas) {
  run([](Group& group) {
    if (group.rank() != 0) {
      std::vector<int32_t> data(3, group.rank());
      ASSERT_TRUE(group.send(bytes_of(data), 0, 9)->wait());
    } else {
      std::vector<bool> seen(static_cast<size_t>(group.size()));
      for (int i = 1; i < group.size(); ++i) {
        std::vector<int32_t> data(3);
        int source = -1;
        ASSERT_TRUE(group.receive(bytes_of(data), kAnyRank, 9, &source)->wait());
        ASSERT_EQ(data, std::vector<int32_t>(3, source));
        EXPECT_FALSE(seen[static_cast<size_t>(source)]);
        seen[static_cast<size_t>(source)] = true;
      }
    }
    ASSERT_TRUE(group.barrier()->wait());
  });
}

TEST_P(PointToPointTest, WhatWasSentArrivesAlthoughTheSenderHasLeft) {
  run([](Group& group) {
    if (group.rank() == 0) {
      std::vector<int32_t> data = pattern(12'000, 4);
      for (int i = 0; i < 20; ++i) ASSERT_TRUE(group.send(bytes_of(data), 1, 0)->wait());
    } else if (group.rank() == 1) {
      for (int i = 0; i < 20; ++i) {
        std::vector<int32_t> data(12'000);
        ASSERT_TRUE(group.receive(bytes_of(data), 0, 0)->wait());
        ASSERT_EQ(data, pattern(12'000, 4));
      }
    }
  });
}

TEST_P(PointToPointTest, AReceiveOfAnotherSizeIsAnErrorThatNamesBoth) {
  for (const size_t count : {size_t{100}, size_t{100'000}}) {
    run([&](Group& group) {
      std::vector<int32_t> data(count + (group.rank() == 1 ? 1 : 0));
      if (group.rank() == 0) (void)group.send(bytes_of(data), 1, 3)->wait();
      const bool received = group.rank() == 1 && group.receive(bytes_of(data), 0, 3)->wait();
      EXPECT_FALSE(received);
      auto status = group.barrier()->wait();
      while (status) status = group.barrier()->wait();
      EXPECT_EQ(status.error().code, Code::kInvalidArgument);
      for (const size_t named : {count * 4, count * 4 + 4})
        EXPECT_NE(status.error().message.find(std::to_string(named)), std::string::npos)
            << status.error().message;
    });
  }
}

TEST_P(PointToPointTest, MessagesNobodyTakesDoNotStopTheOthers) {
  run([](Group& group) {
    // More than may lie at the receiver, which takes them last.
    constexpr int kMessages = 200;
    std::vector<int32_t> data = pattern(16'000, 1);
    if (group.rank() == 0) {
      std::vector<std::unique_ptr<Work>> works;
      for (int i = 0; i < kMessages; ++i) works.push_back(group.send(bytes_of(data), 1, 1));
      std::vector<int32_t> last(5, 5);
      ASSERT_TRUE(group.send(bytes_of(last), 1, 2)->wait());
      for (auto& work : works) ASSERT_TRUE(work->wait());
    } else if (group.rank() == 1) {
      std::vector<int32_t> last(5);
      ASSERT_TRUE(group.receive(bytes_of(last), 0, 2)->wait());
      for (int i = 0; i < kMessages; ++i) {
        std::vector<int32_t> received(data.size());
        ASSERT_TRUE(group.receive(bytes_of(received), 0, 1)->wait());
        ASSERT_EQ(received, data);
      }
    }
    ASSERT_TRUE(group.barrier()->wait());
  });
}

TEST_P(PointToPointTest, AReceiveEndsWhenItsPeerLeaves) {
  std::latch sent(1);
  run([&](Group& group) {
    std::vector<int32_t> data(4);
    if (group.rank() == 0) {
      ASSERT_TRUE(group.send(bytes_of(data), 1, 0)->wait());
    } else if (group.rank() == 1) {
      ASSERT_TRUE(group.receive(bytes_of(data), 0, 0)->wait());
      auto status = group.receive(bytes_of(data), 0, 0)->wait();
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().code, Code::kUnavailable);
      EXPECT_NE(status.error().message.find("rank 0"), std::string::npos);
    }
  });
}

TEST(PointToPointAloneTest, ARankDoesNotTalkToItself) {
  on_ranks(options_for(one_host(2)), [](Group& group) {
    std::vector<int32_t> data(4);
    EXPECT_EQ(group.send(bytes_of(data), group.rank(), 0)->wait().error().code,
              Code::kInvalidArgument);
    EXPECT_TRUE(group.barrier()->wait());
  });
}

TEST(PointToPointAloneTest, AReceiveThatNobodyAnswersNamesTheRankAfterTheTimeout) {
  with_patience(std::chrono::milliseconds(200), [](std::chrono::milliseconds timeout) {
    auto options = options_for(one_host(2));
    options[0].operation_timeout = timeout;
    return complaints_of(options, [](Group& group) -> std::string {
      std::vector<int32_t> data(4);
      const auto status =
          group.rank() == 0 ? group.receive(bytes_of(data), 1, 0)->wait() : group.barrier()->wait();
      if (status) return "an operation without the other rank";
      return complaint_unless(status.error(), Code::kDeadlineExceeded, "for rank 1");
    });
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, PointToPointTest,
                         ::testing::Values(Hosts(2, "a"), Hosts(4, "a"), Hosts{"a", "b"},
                                           Hosts{"a", "b", "a"}),
                         [](const auto& param_info) { return joined(param_info.param); });

}  // namespace
}  // namespace yard::collective
