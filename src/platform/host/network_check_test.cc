#include "host/network_check.h"

#include <gtest/gtest.h>

#include <thread>

#include "collective/rendezvous.h"

namespace yard::host {
namespace {

using Names = std::vector<std::string>;

// Each host's verdict; one of `absent` never comes.
std::vector<NetworkVerdict> meet(double floor, int absent = -1) {
  NetworkCheckOptions options{.hosts = {"algo-1", "algo-2", "algo-3"},
                              .port = *collective::free_loopback_port(),
                              .run_id = "test",
                              .bytes_per_second_min = floor,
                              .timeout = std::chrono::seconds(absent < 0 ? 60 : 1),
                              .master_address = "127.0.0.1",
                              .message_bytes = 64 << 10};
  std::vector<NetworkVerdict> verdicts(3);
  std::vector<std::thread> hosts;
  for (int rank = 0; rank < 3; ++rank) {
    options.rank = rank;
    if (rank != absent)
      hosts.emplace_back(
          [&verdict = verdicts[size_t(rank)], options] { verdict = check_network(options, {}); });
  }
  for (std::thread& host : hosts) host.join();
  return verdicts;
}

TEST(NetworkCheck, HostsThatReachEachOtherPass) {
  const auto verdicts = meet(1);
  for (const NetworkVerdict& verdict : verdicts) {
    EXPECT_TRUE(verdict.is_good) << verdict.error;
    EXPECT_TRUE(verdict.faulty.empty());
  }
  EXPECT_GT(verdicts[0].bytes_per_second, 1);
}

TEST(NetworkCheck, EveryHostHearsWhoIsTooSlow) {
  for (const NetworkVerdict& verdict : meet(1e18)) {
    EXPECT_FALSE(verdict.is_good);
    EXPECT_EQ(verdict.faulty, (Names{"algo-1", "algo-2", "algo-3"}));
    EXPECT_NE(verdict.error.find("bytes a second"), std::string::npos);
  }
}

TEST(NetworkCheck, WhoDoesNotReachTheFirstHostIsAtFaultTheOthersAreNot) {
  const auto missing_last = meet(1, 2);
  for (const int rank : {0, 1}) {
    EXPECT_FALSE(missing_last[size_t(rank)].is_good);
    EXPECT_TRUE(missing_last[size_t(rank)].faulty.empty()) << missing_last[size_t(rank)].error;
  }
  EXPECT_TRUE(missing_last[0].is_alone);
  const auto missing_first = meet(1, 0);
  EXPECT_EQ(missing_first[1].faulty, Names{"algo-2"}) << missing_first[1].error;
  EXPECT_EQ(missing_first[2].faulty, Names{"algo-3"});
}

TEST(NetworkCheck, AHostIsSlowWhenNoneOfItsLinksReachesTheFloor) {
  const Names hosts = {"a", "b", "c"};
  EXPECT_EQ(hosts_below({{0, 1, 1, 100}, {0, 2, 1, 5}, {1, 2, 1, 6}}, hosts, 10), Names{"c"});
  EXPECT_EQ(hosts_below({{0, 1, 1, 100}, {0, 2, 1, 5}, {1, 2, 1, 60}}, hosts, 10), Names{});
}

TEST(NetworkCheck, AVerdictIsReadAsItWasWritten) {
  const NetworkVerdict verdict{.faulty = {"algo-2"}, .bytes_per_second = 5, .error = "e"};
  const auto read = network_verdict_from_json(to_json(verdict), "v");
  ASSERT_TRUE(read);
  EXPECT_EQ(to_json(*read), to_json(verdict));
  EXPECT_FALSE(network_verdict_from_json(Json::object(), "v"));
  EXPECT_FALSE(network_verdict_from_json(Json::array(), "v"));
}

TEST(NetworkCheck, TheCommandNamesAllHostsInTheOrderOfTheirRanks) {
  jobs::HostPlan plan;
  plan.job = "j";
  plan.host = "algo-2";
  plan.hosts = {{.name = "algo-2"}, {.name = "algo-1"}};
  const auto command = network_check_command(plan, "/bin/yard");
  EXPECT_EQ(Names(command.end() - 2, command.end()), (Names{"algo-1", "algo-2"}));
  EXPECT_EQ(Names(command.begin(), command.begin() + 4),
            (Names{"/bin/yard", "host-network", "--rank", "1"}));
}

}  // namespace
}  // namespace yard::host
