#include "collective/rendezvous.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <future>
#include <thread>

#include "collective/membership_internal.h"
#include "collective/socket_internal.h"
#include "collective/testing/ranks.h"

namespace yard::collective {
namespace {

using namespace std::chrono_literals;

Patience patience_of(std::chrono::milliseconds timeout) {
  return {.deadline = std::chrono::steady_clock::now() + timeout};
}

// Connects as soon as somebody listens there.
UniqueFd dial(uint16_t port) {
  const Patience patience = patience_of(30s);
  while (std::chrono::steady_clock::now() < patience.deadline) {
    auto fd = connect_tcp("127.0.0.1", port, patience);
    if (fd) return *std::move(fd);
    std::this_thread::yield();
  }
  ADD_FAILURE() << "nobody listens on " << port;
  return {};
}

std::future<Result<std::unique_ptr<Group>>> start(const RendezvousOptions& options,
                                                  StopToken stop = {}) {
  return std::async(std::launch::async, [options, stop] { return connect(options, stop); });
}

TEST(RendezvousTest, ATakenPortIsAnErrorThatNamesIt) {
  auto taken = listen_tcp("127.0.0.1", 0);
  ASSERT_TRUE(taken);
  RendezvousOptions options = options_for(one_host(2))[0];
  options.master_port = local_port(taken->get());
  auto group = connect(options, StopToken());
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().code, Code::kInvalidArgument);
  EXPECT_NE(group.error().message.find(std::to_string(options.master_port)), std::string::npos);
}

TEST(RendezvousTest, OptionsThatCannotBeAreRefused) {
  const RendezvousOptions good = options_for(one_host(2))[1];
  const auto refused = [](const RendezvousOptions& options) {
    auto group = connect(options, StopToken());
    return !group && group.error().code == Code::kInvalidArgument;
  };
  RendezvousOptions bad = good;
  bad.rank = 2;
  EXPECT_TRUE(refused(bad));
  bad.rank = -1;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.world_size = 4097;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.master_port = 0;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.master_address = "no such host, surely";
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.run_id = std::string(300, 'x');
  EXPECT_TRUE(refused(bad));
}

TEST(RendezvousTest, AWorldOfOneNeedsNoPeers) {
  auto group = connect({}, StopToken());
  ASSERT_TRUE(group);
  EXPECT_EQ((*group)->size(), 1);
}

TEST(RendezvousTest, TheRankThatDidNotComeIsNamedOnAllOthers) {
  with_patience(500ms, [](std::chrono::milliseconds timeout) -> std::string {
    auto options = options_for(one_host(4));
    options.erase(options.begin() + 2);
    for (auto& each : options) each.connect_timeout = 4 * timeout;
    options[0].connect_timeout = timeout;
    std::string complaints;
    for (const auto& group : connect_all(options))
      complaints +=
          group ? "a group without rank 2"
                : complaint_unless(group.error(), Code::kDeadlineExceeded, "rank 2 did not come");
    return complaints;
  });
}

TEST(RendezvousTest, ARankThatIsTiredBeforeRankZeroNamesTheMissingToo) {
  with_patience(400ms, [](std::chrono::milliseconds timeout) -> std::string {
    auto options = options_for(one_host(3));
    options[1].connect_timeout = timeout;
    StopSource stop;
    auto hub = start(options[0], stop.token());
    auto group = connect(options[1], StopToken());
    stop.request();
    EXPECT_EQ(hub.get().error().code, Code::kCancelled);
    if (group) return "a group without rank 2";
    return complaint_unless(group.error(), Code::kDeadlineExceeded, "rank 2 did not come");
  });
}

TEST(RendezvousTest, ARankThatCameAndWentIsNotTakenForOneThatNeverCame) {
  with_patience(300ms, [](std::chrono::milliseconds timeout) -> std::string {
    auto options = options_for(one_host(3));
    options[0].connect_timeout = 3 * timeout;
    options[1].connect_timeout = timeout;
    auto hub = start(options[0], StopToken());
    EXPECT_FALSE(connect(options[1], StopToken()));
    const auto group = hub.get();
    if (group) return "a group without ranks";
    return complaint_unless(group.error(), Code::kDeadlineExceeded,
                            "rank 2 did not come within " + std::to_string(3 * timeout.count()) +
                                " ms; rank 1 came and went again");
  });
}

TEST(RendezvousTest, WithoutRankZeroItIsNamed) {
  auto options = options_for(one_host(2))[1];
  options.connect_timeout = 100ms;
  auto group = connect(options, StopToken());
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().code, Code::kDeadlineExceeded);
  EXPECT_NE(group.error().message.find("rank 0 did not come"), std::string::npos);
}

TEST(RendezvousTest, ARankGivenTwiceIsAnErrorOnAll) {
  auto options = options_for(one_host(3));
  options[2].rank = 1;
  for (const auto& group : connect_all(options)) {
    ASSERT_FALSE(group);
    EXPECT_EQ(group.error().code, Code::kInvalidArgument);
    EXPECT_NE(group.error().message.find("rank 1 was given twice"), std::string::npos)
        << group.error().message;
  }
}

TEST(RendezvousTest, DifferentWorldSizesAreAnErrorOnAll) {
  auto options = options_for(one_host(2));
  options[1].world_size = 3;
  for (const auto& group : connect_all(options)) {
    ASSERT_FALSE(group);
    EXPECT_EQ(group.error().code, Code::kInvalidArgument);
    EXPECT_NE(group.error().message.find("world sizes differ"), std::string::npos);
  }
}

TEST(RendezvousTest, AnOlderGenerationIsTurnedAwayAndTheOthersComeTogether) {
  auto options = options_for(one_host(2));
  for (auto& each : options) each.generation = 5;
  RendezvousOptions late = options[1];
  late.generation = 4;
  auto hub = start(options[0]);
  auto turned_away = connect(late, StopToken());
  ASSERT_FALSE(turned_away);
  EXPECT_EQ(turned_away.error().code, Code::kInvalidArgument);
  EXPECT_NE(turned_away.error().message.find("generation 5"), std::string::npos);
  late.generation = 5;
  late.run_id = "another run";
  auto stranger = connect(late, StopToken());
  ASSERT_FALSE(stranger);
  EXPECT_EQ(stranger.error().code, Code::kInvalidArgument);

  auto group = start(options[1]);
  auto first = hub.get();
  auto second = group.get();
  EXPECT_TRUE(first && second);
}

TEST(RendezvousTest, ANewerGenerationWaitsForTheOldRankZeroToGo) {
  auto options = options_for(one_host(2));
  StopSource stop;
  auto old_hub = start(options[0], stop.token());
  dial(options[0].master_port);
  for (auto& each : options) each.generation = 1;
  auto member = start(options[1]);
  stop.request();  // while the member is anywhere between connecting and being refused
  EXPECT_FALSE(old_hub.get());
  auto hub = start(options[0]);
  auto first = hub.get();
  auto second = member.get();
  EXPECT_TRUE(first) << first.error().message;
  EXPECT_TRUE(second) << second.error().message;
}

TEST(RendezvousTest, StopEndsTheWaitOfBothSides) {
  const auto options = options_for(one_host(3));
  StopSource stop;
  auto hub = start(options[0], stop.token());
  auto member = start(options[1], stop.token());
  dial(options[0].master_port);
  stop.request();
  EXPECT_EQ(hub.get().error().code, Code::kCancelled);
  EXPECT_EQ(member.get().error().code, Code::kCancelled);
}

TEST(RendezvousTest, StrangersWithAnyBytesDoNotDisturb) {
  const auto options = options_for(one_host(2));
  auto hub = start(options[0]);
  const std::string hello = encode_hello({.rank = 1, .world_size = 2, .run_id = "test"});
  std::vector<UniqueFd> silent;
  const auto say = [&](std::string_view bytes) {
    UniqueFd fd = dial(options[0].master_port);
    ASSERT_TRUE(send_all(fd.get(), bytes, patience_of(5s)));
    silent.push_back(std::move(fd));
  };
  say("GET / HTTP/1.1\r\n\r\n");
  say(std::string(100'000, '\xff'));
  say(hello.substr(0, hello.size() / 2));  // and then silence
  say(FrameWriter(FrameType::kAbort).error({Code::kInternal, "from a stranger"}).bytes());
  std::string huge = hello;
  huge.replace(5, 4, "\xff\xff\xff\x7f");
  say(huge);
  for (size_t i = 0; i < hello.size(); i += 7) dial(options[0].master_port);
  auto member = start(options[1]);
  auto first = hub.get();
  auto second = member.get();
  ASSERT_TRUE(first) << first.error().message;
  ASSERT_TRUE(second);
  std::vector<int64_t> data{1};
  auto work =
      (*first)->all_reduce(std::as_writable_bytes(std::span(data)), DType::kI64, ReduceOp::kSum);
  std::vector<int64_t> other{2};
  ASSERT_TRUE(
      (*second)
          ->all_reduce(std::as_writable_bytes(std::span(other)), DType::kI64, ReduceOp::kSum)
          ->wait());
  ASSERT_TRUE(work->wait());
  EXPECT_EQ(data[0], 3);
}

TEST(RendezvousTest, ARankThatDiedWhileWaitingMayComeAgain) {
  const auto options = options_for(one_host(3));
  auto hub = start(options[0]);
  {
    UniqueFd fd = dial(options[0].master_port);
    ASSERT_TRUE(send_all(fd.get(), encode_hello({.rank = 1, .world_size = 3, .run_id = "test"}),
                         patience_of(5s)));
    FrameReader reader(kSmallPayloadBytesMax);
    auto frame = receive_frame(fd.get(), reader, patience_of(5s));
    ASSERT_TRUE(frame);
    EXPECT_EQ(frame->type, FrameType::kWaiting);
  }
  auto first = start(options[1]);
  auto second = start(options[2]);
  auto a = hub.get(), b = first.get(), c = second.get();
  EXPECT_TRUE(a && b && c);
}

TEST(RendezvousTest, AnAddressOfAnotherHostIsRefusedByRankZero) {
  RendezvousOptions options = options_for(one_host(2))[0];
  options.master_address = "192.0.2.1";  // TEST-NET-1, RFC 5737
  auto group = connect(options, StopToken());
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().code, Code::kInvalidArgument);
}

TEST(RendezvousTest, WithoutAnIdentityRanksOfThisMachineShareIt) {
  auto options = options_for(one_host(2));
  for (auto& each : options) each.host_identity.clear();
  on_ranks(options, [](Group& group) {
    std::vector<int64_t> data{1};
    ASSERT_TRUE(
        group.all_reduce(std::as_writable_bytes(std::span(data)), DType::kI64, ReduceOp::kSum)
            ->wait());
    EXPECT_EQ(data[0], 2);
  });
}

}  // namespace
}  // namespace yard::collective
