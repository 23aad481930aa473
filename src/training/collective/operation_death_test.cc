// A rank that is killed, exits or stops in the middle of each operation, at random instants.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <ctime>

#include "base/random.h"
#include "collective/testing/rank_processes.h"
#include "collective/testing/ranks.h"

namespace yard::collective {
namespace {

constexpr int kRanks = 4;

// Large enough that most of the time passes inside of it.
constexpr size_t kBytes = size_t{kIsSlow ? 1 : 3} << 20;

struct NamedRound {
  const char* name;
  RankProcesses::Round round;
};

std::vector<std::byte>& buffer() {
  static std::vector<std::byte> bytes(kBytes);
  return bytes;
}
std::vector<std::byte>& other_buffer() {
  static std::vector<std::byte> bytes(kBytes);
  return bytes;
}
std::span<std::byte> part() {
  return std::span(other_buffer()).first(kBytes / kRanks);
}
std::span<std::byte> on_root(const Group& group, std::vector<std::byte>& bytes) {
  return group.rank() == 1 ? std::span(bytes) : std::span<std::byte>();
}

Status all_to_all_round(Group& group) {
  std::vector<std::span<const std::byte>> ins;
  std::vector<std::span<std::byte>> outs;
  for (size_t i = 0; i < kRanks; ++i) {
    ins.push_back(std::span(buffer()).subspan(i * kBytes / kRanks, kBytes / kRanks));
    outs.push_back(std::span(other_buffer()).subspan(i * kBytes / kRanks, kBytes / kRanks));
  }
  return group.all_to_all(std::move(ins), std::move(outs))->wait();
}

Status messages_round(Group& group) {
  auto sent = group.send(buffer(), (group.rank() + 1) % kRanks, 0);
  auto received = group.receive(other_buffer(), (group.rank() + kRanks - 1) % kRanks, 0);
  YARD_TRY(sent->wait());
  return received->wait();
}

const NamedRound kRounds[] = {
    {"all_reduce",
     [](Group& group) { return group.all_reduce(buffer(), DType::kF32, ReduceOp::kSum)->wait(); }},
    {"reduce_scatter",
     [](Group& group) {
       return group.reduce_scatter(buffer(), part(), DType::kF32, ReduceOp::kSum)->wait();
     }},
    {"all_gather", [](Group& group) { return group.all_gather(part(), buffer())->wait(); }},
    {"broadcast", [](Group& group) { return group.broadcast(buffer(), 2)->wait(); }},
    {"reduce",
     [](Group& group) { return group.reduce(buffer(), DType::kF32, ReduceOp::kSum, 1)->wait(); }},
    {"gather",
     [](Group& group) { return group.gather(part(), on_root(group, buffer()), 1)->wait(); }},
    {"scatter",
     [](Group& group) { return group.scatter(on_root(group, buffer()), part(), 1)->wait(); }},
    {"all_to_all", all_to_all_round},
    {"messages", messages_round},
    {"barrier", [](Group& group) { return group.barrier()->wait(); }},
};

class OperationDeathTest : public ::testing::TestWithParam<Hosts> {
 protected:
  // Where all is slow, each of the two layouts has every second case.
  static bool is_the_other_layouts(uint64_t case_index) {
    const bool has_one_host = GetParam().front() == GetParam().back();
    return kIsSlow && case_index % 2 == (has_one_host ? 0u : 1u);
  }
};

TEST_P(OperationDeathTest, InTheMiddleOfAnyOperationADeathIsToldToAllByName) {
  uint64_t case_count = 0;
  for (const NamedRound& each : kRounds) {
    for (const int signal : {SIGKILL, SIGUSR1}) {
      if (is_the_other_layouts(++case_count)) continue;
      const int victim = static_cast<int>(random_below(kRanks, 11, 0, case_count));
      RankProcesses processes(options_for(GetParam()), each.round);
      ASSERT_TRUE(processes.all_run());
      const timespec instant{0, static_cast<long>(random_below(6'000'000, 11, 1, case_count))};
      ::nanosleep(&instant, nullptr);
      processes.signal(victim, signal);
      for (int i = 0; i + 1 < kRanks; ++i) {
        const Told told = processes.next();
        EXPECT_EQ(told.code, static_cast<int32_t>(Code::kUnavailable)) << told.message;
        EXPECT_NE(std::string(told.message).find(fmt::format("rank {}", victim)), std::string::npos)
            << each.name << ", rank " << told.rank << ": " << told.message;
      }
    }
  }
}

TEST_P(OperationDeathTest, AStoppedRankIsNamedWhateverTheOthersWaitIn) {
  int case_count = 0;
  for (const NamedRound& each : kRounds) {
    const int victim = case_count++ % kRanks;
    if (is_the_other_layouts(static_cast<uint64_t>(case_count))) continue;
    SCOPED_TRACE(each.name);
    with_patience(std::chrono::milliseconds(500), [&](std::chrono::milliseconds timeout) {
      return complaint_of_stopped(GetParam(), victim, timeout, each.round);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, OperationDeathTest,
                         ::testing::Values(Hosts(4, "a"), Hosts{"a", "a", "b", "b"}),
                         [](const auto& param_info) { return joined(param_info.param); });

}  // namespace
}  // namespace yard::collective
