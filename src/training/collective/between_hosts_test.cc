// What lies between hosts: several connections for one message, bytes that are late or lost,
// connections that are reset.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <mutex>
#include <numeric>

#include "collective/collective.h"
#include "collective/host_algorithms_internal.h"
#include "collective/testing/ranks.h"
#include "collective/testing/tcp_proxy.h"

namespace yard::collective {
namespace {

using namespace std::chrono_literals;

std::vector<float> noise(size_t count, int rank) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = 1.0f / static_cast<float>(i * 7919 % 10'007 + static_cast<size_t>(rank) + 1);
  return values;
}

// ---- several connections

std::vector<RendezvousOptions> with_streams(const Hosts& hosts, int count) {
  auto options = options_for(hosts);
  for (auto& each : options) each.streams_between_hosts = count;
  return options;
}

TEST(StreamsTest, HoweverManyThereAreTheResultHasTheSameBits) {
  constexpr size_t kCount = 300'001;
  std::mutex mutex;
  std::vector<std::vector<float>> sums;
  for (const int streams : {1, 2, 5, 16, 0}) {
    on_ranks(with_streams({"a", "b", "c"}, streams), [&](Group& group) {
      std::vector<float> sum = noise(kCount, group.rank());
      ASSERT_TRUE(group.all_reduce(bytes_of(sum), DType::kF32, ReduceOp::kSum)->wait());
      std::vector<int64_t> sent(kCount, group.rank());
      std::iota(sent.begin(), sent.end(), group.rank());
      ASSERT_TRUE(group.broadcast(bytes_of(sent), 1)->wait());
      std::vector<int64_t> wanted(kCount);
      std::iota(wanted.begin(), wanted.end(), 1);
      EXPECT_TRUE(sent == wanted);
      std::lock_guard lock(mutex);
      sums.push_back(std::move(sum));
    });
  }
  ASSERT_EQ(sums.size(), 15u);
  for (const auto& sum : sums) EXPECT_TRUE(sum == sums[0]);
}

TEST(StreamsTest, ACallThatDiffersIsFoundWhateverItIsSpreadOver) {
  on_ranks(with_streams({"a", "b"}, 4), [](Group& group) {
    std::vector<float> data(group.rank() == 0 ? 500'000 : 500'001);
    const auto status = group.all_reduce(bytes_of(data), DType::kF32, ReduceOp::kSum)->wait();
    ASSERT_FALSE(status);
    EXPECT_EQ(complaint_unless(status.error(), Code::kInvalidArgument, "2000004 bytes"), "");
  });
}

TEST(StreamsTest, RanksThatWantDifferentNumbersSaySo) {
  auto options = with_streams({"a", "b"}, 2);
  options[1].streams_between_hosts = 3;
  for (const auto& group : connect_all(options)) {
    ASSERT_FALSE(group);
    EXPECT_EQ(complaint_unless(group.error(), Code::kInvalidArgument, "over 3 connections"), "");
    EXPECT_EQ(complaint_unless(group.error(), Code::kInvalidArgument, "over 2"), "");
  }
  options[0].streams_between_hosts = 17;
  EXPECT_EQ(connect(options[0], StopToken()).error().code, Code::kInvalidArgument);
}

TEST(StreamsTest, TheFewestThatAreAboutAsFastAsTheFastestAreChosen) {
  const auto chosen = [](const std::vector<double>& times_us) { return fewest_streams(times_us); };
  EXPECT_EQ(chosen({100, 95, 92}), 1u);
  EXPECT_EQ(chosen({100, 60, 58}), 2u);
  EXPECT_EQ(chosen({100, 60, 40}), 4u);
  EXPECT_EQ(chosen({100, 200, 300}), 1u);
  EXPECT_EQ(chosen({100}), 1u);
}

// ---- a proxy between them

struct Proxied {
  std::vector<RendezvousOptions> options;
  std::unique_ptr<TcpProxy> proxy;
};

Proxied proxied(const Hosts& hosts, int streams, std::chrono::milliseconds delay_max) {
  Proxied made{with_streams(hosts, streams), nullptr};
  made.proxy = std::make_unique<TcpProxy>(made.options[0].master_port, delay_max, 5);
  for (size_t rank = 1; rank < hosts.size(); ++rank)
    made.options[rank].master_port = made.proxy->port();
  return made;
}

void all_operations_are_right(Group& group, size_t count) {
  const auto size = static_cast<size_t>(group.size());
  const auto rank = static_cast<size_t>(group.rank());
  const auto everyone = static_cast<int64_t>(size * (size + 1) / 2);
  const int64_t mine = group.rank() + 1;
  std::vector<int64_t> part(count, mine), whole(count * size, mine), other(count * size);
  ASSERT_TRUE(group.all_reduce(bytes_of(part), DType::kI64, ReduceOp::kSum)->wait());
  EXPECT_TRUE(part == std::vector<int64_t>(count, everyone));
  ASSERT_TRUE(
      group.reduce_scatter(bytes_of(whole), bytes_of(part), DType::kI64, ReduceOp::kMax)->wait());
  EXPECT_TRUE(part == std::vector<int64_t>(count, group.size()));
  part.assign(count, mine);
  ASSERT_TRUE(group.all_gather(bytes_of(part), bytes_of(whole))->wait());
  for (size_t i = 0; i < size; ++i)
    EXPECT_EQ(whole[i * count + count / 2], static_cast<int64_t>(i + 1));
  ASSERT_TRUE(group.broadcast(bytes_of(part), 2)->wait());
  EXPECT_TRUE(part == std::vector<int64_t>(count, 3));
  part.assign(count, mine);
  ASSERT_TRUE(group.reduce(bytes_of(part), DType::kI64, ReduceOp::kMin, 1)->wait());
  EXPECT_TRUE(part == std::vector<int64_t>(count, rank == 1 ? 1 : mine));
  std::vector<std::span<const std::byte>> ins;
  std::vector<std::span<std::byte>> outs;
  for (size_t i = 0; i < size; ++i) {
    ins.push_back(bytes_of(whole).subspan(i * count * 8, count * 8));
    outs.push_back(bytes_of(other).subspan(i * count * 8, count * 8));
  }
  ASSERT_TRUE(group.all_to_all(ins, outs)->wait());
  EXPECT_TRUE(other == std::vector<int64_t>(count * size, mine));
  const int next = (group.rank() + 1) % group.size();
  const int previous = (group.rank() + group.size() - 1) % group.size();
  std::vector<int64_t> received(count);
  part.assign(count, mine);
  auto sending = group.send(bytes_of(part), next, 3);
  ASSERT_TRUE(group.receive(bytes_of(received), previous, 3)->wait());
  ASSERT_TRUE(sending->wait());
  EXPECT_TRUE(received == std::vector<int64_t>(count, previous + 1));
  ASSERT_TRUE(group.barrier()->wait());
}

TEST(ProxiedTest, WhenBytesAreUpToFiftyMillisecondsLateAllIsRightAndNobodyIsCalledDead) {
  for (const int streams : {0, 3}) {
    const Proxied hosts = proxied({"a", "b", "a", "b"}, streams, 50ms);
    on_ranks(hosts.options, [](Group& group) {
      all_operations_are_right(group, 7);
      all_operations_are_right(group, 60'001);
    });
    // Two pairs of ranks each over so many, and messages.
    EXPECT_GE(hosts.proxy->data_connection_count(), streams == 0 ? 8u : 6u);
  }
}

TEST(ProxiedTest, OneConnectionThatIsResetIsAnErrorOnAllThatNamesARank) {
  const Proxied hosts = proxied({"a", "b", "a"}, 3, 0ms);
  on_ranks(hosts.options, [&](Group& group) {
    std::vector<float> data(300'000, 1);
    EXPECT_TRUE(group.all_reduce(bytes_of(data), DType::kF32, ReduceOp::kMax)->wait());
    Status status = group.barrier()->wait();
    if (group.rank() == 0) hosts.proxy->reset_newest_data_connection();
    while (status) status = group.all_reduce(bytes_of(data), DType::kF32, ReduceOp::kMax)->wait();
    EXPECT_EQ(complaint_unless(status.error(), Code::kUnavailable, "is gone"), "");
    EXPECT_EQ(complaint_unless(status.error(), Code::kUnavailable, "rank "), "");
  });
}

TEST(ProxiedTest, ConnectionsThatStayOpenAndCarryNothingAreTimedOutByName) {
  with_patience(300ms, [](std::chrono::milliseconds timeout) {
    Proxied hosts = proxied({"a", "b"}, 0, 0ms);
    for (auto& each : hosts.options) each.operation_timeout = timeout;
    return complaints_of(hosts.options, [&](Group& group) -> std::string {
      Status status = group.barrier()->wait();
      if (group.rank() == 0) hosts.proxy->silence_data_connections();
      while (status) status = group.barrier()->wait();
      return complaint_unless(status.error(), Code::kDeadlineExceeded, "for rank ");
    });
  });
}

}  // namespace
}  // namespace yard::collective
