// Groups whose hosts talk under TLS, and those who do not have the key.
#include "collective/tls_tunnels_internal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <numeric>
#include <thread>

#include "base/file.h"
#include "collective/rendezvous.h"
#include "collective/testing/rank_processes.h"
#include "collective/testing/ranks.h"

namespace yard::collective {
namespace {

using namespace std::chrono_literals;

const std::string kKey = "a secret of twenty-one";

std::vector<RendezvousOptions> with_key(const Hosts& hosts, const std::string& key) {
  auto options = options_for(hosts);
  for (auto& each : options) each.tls_key = key;
  return options;
}

TEST(TlsTest, AllOperationsBetweenHostsAreRight) {
  on_ranks(with_key({"a", "b", "a"}, kKey), [](Group& group) {
    for (const size_t count : {size_t{1}, size_t{1001}, size_t{700'000}}) {
      std::vector<float> values(count, static_cast<float>(group.rank() + 1));
      ASSERT_TRUE(group.all_reduce(bytes_of(values), DType::kF32, ReduceOp::kSum)->wait());
      EXPECT_EQ(std::accumulate(values.begin(), values.end(), 0.0), 6.0 * double(count));
      std::vector<int64_t> from_two(count, group.rank());
      ASSERT_TRUE(group.broadcast(bytes_of(from_two), 2)->wait());
      EXPECT_EQ(from_two.back(), 2);
    }
    int64_t token = group.rank();
    if (group.rank() == 0) {
      ASSERT_TRUE(group.send(std::as_writable_bytes(std::span(&token, 1)), 1, 7)->wait());
    } else if (group.rank() == 1) {
      ASSERT_TRUE(
          group.receive(std::as_writable_bytes(std::span(&token, 1)), 0, 7, nullptr)->wait());
      EXPECT_EQ(token, 0);
    }
    ASSERT_TRUE(group.barrier()->wait());
  });
}

TEST(TlsTest, AKeyThatIsTooShortIsRefusedWithItsLength) {
  auto options = with_key(one_host(2), "short");
  for (auto& result : connect_all(options)) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, Code::kInvalidArgument);
    EXPECT_NE(result.error().message.find("5 bytes"), std::string::npos) << result.error().message;
  }
}

TEST(TlsTest, AKeyFileIsReadWithoutItsNewlineAndOnlyIfItIsTheOwnersAlone) {
  const std::string path = ::testing::TempDir() + "tls-key-" + std::to_string(::getpid());
  ASSERT_TRUE(write_file_atomic(path, kKey + "\n"));
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  auto open_to_others = read_tls_key(path);
  ASSERT_FALSE(open_to_others);
  EXPECT_NE(open_to_others.error().message.find("chmod 600 " + path), std::string::npos);
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  auto key = read_tls_key(path);
  ASSERT_TRUE(key) << key.error().message;
  EXPECT_EQ(*key, kKey);
  ASSERT_TRUE(write_file_atomic(path, "short\n"));
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(read_tls_key(path).error().code, Code::kInvalidArgument);
  ::unlink(path.c_str());
  EXPECT_EQ(read_tls_key(path).error().code, Code::kNotFound);
}

// What rank 1 is told when rank 0 has `key` and it has `other`.
std::string told_with(const std::string& key, const std::string& other) {
  auto options = with_key({"a", "b"}, key);
  options[1].tls_key = other;
  StopSource stop;
  std::jthread rank_zero([&] { EXPECT_FALSE(connect(options[0], stop.token())); });
  const auto result = connect(options[1], StopToken());
  stop.request();
  if (result) {
    ADD_FAILURE() << "rank 1 has come in";
    return "";
  }
  return result.error().message;
}

TEST(TlsTest, ARankWithAnotherKeyIsTurnedAwayAndToldSo) {
  const std::string told = told_with(kKey, "quite another secret");
  EXPECT_NE(told.find("another key"), std::string::npos) << told;
}

TEST(TlsTest, ARankWithoutAKeyIsTurnedAwayAndToldSo) {
  const std::string told = told_with(kKey, "");
  EXPECT_NE(told.find("no key"), std::string::npos) << told;
}

TEST(TlsTest, WhereTheOthersHaveNoKeyARankWithOneDoesNotComeIn) {
  const std::string told = told_with("", kKey);
  EXPECT_NE(told.find("without TLS"), std::string::npos) << told;
}

TEST(TlsTest, AKilledRankIsToldByItsName) {
  RankProcesses processes(with_key({"a", "b", "c"}, kKey), [](Group& group) -> Status {
    std::vector<float> data(50'000, 1);
    return group.all_reduce(bytes_of(data), DType::kF32, ReduceOp::kSum)->wait();
  });
  ASSERT_TRUE(processes.all_run());
  processes.signal(1, SIGKILL);
  for (int i = 0; i < 2; ++i) {
    const Told told = processes.next();
    EXPECT_NE(std::string(told.message).find("rank 1"), std::string::npos) << told.message;
  }
}

struct Ends {
  UniqueFd tunnel;  // does not block, as the collectives' connections
  UniqueFd wire;
};

Ends connection() {
  std::array<int, 2> pair{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()), 0);
  EXPECT_EQ(::fcntl(pair[0], F_SETFL, O_NONBLOCK), 0);
  return {UniqueFd(pair[0]), UniqueFd(pair[1])};
}

std::string read_all(int fd) {
  std::string text;
  std::array<char, 4096> piece{};
  pollfd polled{.fd = fd, .events = POLLIN, .revents = 0};
  while (::poll(&polled, 1, 10'000) == 1) {
    const ssize_t got = ::recv(fd, piece.data(), piece.size(), 0);
    if (got <= 0) break;
    text.append(piece.data(), static_cast<size_t>(got));
  }
  return text;
}

TEST(TlsTest, WhatIsWrittenIsNotOnTheWireAndArrivesWholeBeforeTheEnd) {
  auto tunnels = TlsTunnels::create(kKey);
  ASSERT_TRUE(tunnels);
  Ends near = connection(), far = connection();
  auto client = (*tunnels)->open(std::move(near.tunnel), TlsSide::kClient, "peer");
  auto server = (*tunnels)->open(std::move(far.tunnel), TlsSide::kServer, "peer");
  ASSERT_TRUE(client && server);
  std::string wire;
  std::thread carrier([&] {
    std::array<pollfd, 2> polled{{{.fd = near.wire.get(), .events = POLLIN, .revents = 0},
                                  {.fd = far.wire.get(), .events = POLLIN, .revents = 0}}};
    std::array<char, 4096> piece{};
    while (::poll(polled.data(), 2, 10'000) > 0) {
      for (size_t i = 0; i < 2; ++i) {
        if (polled[i].revents == 0) continue;
        const ssize_t got = ::recv(polled[i].fd, piece.data(), piece.size(), 0);
        if (got <= 0) {
          ::shutdown(polled[1 - i].fd, SHUT_WR);
          polled[i].fd = -1;
          if (polled[1 - i].fd == -1) return;
          continue;
        }
        wire.append(piece.data(), static_cast<size_t>(got));
        ::send(polled[1 - i].fd, piece.data(), static_cast<size_t>(got), MSG_NOSIGNAL);
      }
    }
  });
  const std::string secret(50'000, 'q');
  ASSERT_EQ(::send(client->get(), secret.data(), secret.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(secret.size()));
  client->reset();
  EXPECT_TRUE(read_all(server->get()) == secret);
  server->reset();
  tunnels->reset();
  carrier.join();
  EXPECT_GT(wire.size(), secret.size());
  EXPECT_EQ(wire.find("qqqqqqqq"), std::string::npos);
}

}  // namespace
}  // namespace yard::collective
