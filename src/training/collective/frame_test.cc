#include "collective/frame_internal.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <string>

#include "base/file.h"
#include "collective/membership_internal.h"

namespace yard::collective {
namespace {

class FrameTest : public ::testing::Test {
 protected:
  FrameTest() {
    std::array<int, 2> fds{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds.data()), 0);
    ours_.reset(fds[0]);
    theirs_.reset(fds[1]);
  }
  void arrive(std::string_view bytes) {
    ASSERT_EQ(::send(theirs_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  UniqueFd ours_;
  UniqueFd theirs_;
  FrameReader reader_{kSmallPayloadBytesMax};
};

TEST_F(FrameTest, ByteByByteAFrameArrivesWhole) {
  const std::string bytes =
      FrameWriter(FrameType::kAbort).error({Code::kUnavailable, "rank 3 died"}).bytes();
  for (size_t i = 0; i + 1 < bytes.size(); ++i) {
    arrive(bytes.substr(i, 1));
    auto frame = reader_.read(ours_.get());
    ASSERT_TRUE(frame);
    EXPECT_FALSE(frame->has_value());
  }
  arrive(bytes.substr(bytes.size() - 1));
  auto frame = reader_.read(ours_.get());
  ASSERT_TRUE(frame);
  ASSERT_TRUE(frame->has_value());
  FrameFields fields((*frame)->payload);
  const Error error = fields.error();
  EXPECT_TRUE(fields.complete());
  EXPECT_EQ(error.code, Code::kUnavailable);
  EXPECT_EQ(error.message, "rank 3 died");
}

TEST_F(FrameTest, TwoFramesAtOnceAreTakenOneByOne) {
  arrive(FrameWriter(FrameType::kReady).bytes() + FrameWriter(FrameType::kGoodbye).bytes());
  auto first = reader_.read(ours_.get());
  auto second = reader_.read(ours_.get());
  ASSERT_TRUE(first && *first && second && *second);
  EXPECT_EQ((*first)->type, FrameType::kReady);
  EXPECT_EQ((*second)->type, FrameType::kGoodbye);
}

TEST_F(FrameTest, BytesOfAnotherProtocolAreCorrupt) {
  arrive("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  auto frame = reader_.read(ours_.get());
  ASSERT_FALSE(frame);
  EXPECT_EQ(frame.error().code, Code::kCorrupt);
}

TEST_F(FrameTest, ASizeOverTheLimitIsRefusedBeforeItIsReserved) {
  std::string bytes = FrameWriter(FrameType::kHello).bytes();
  bytes.replace(5, 4, "\xff\xff\xff\xff");
  arrive(bytes);
  auto frame = reader_.read(ours_.get());
  ASSERT_FALSE(frame);
  EXPECT_EQ(frame.error().code, Code::kCorrupt);
}

TEST_F(FrameTest, AConnectionThatClosesInTheMiddleIsUnavailable) {
  arrive(FrameWriter(FrameType::kHello).u64(1).bytes().substr(0, 12));
  theirs_.reset();
  auto frame = reader_.read(ours_.get());
  ASSERT_FALSE(frame);
  EXPECT_EQ(frame.error().code, Code::kUnavailable);
}

Frame frame_of(const std::string& bytes, FrameType type) {
  return {type, bytes.substr(9)};
}

TEST(MembershipTest, EveryTruncationOfAHelloIsRefused) {
  const std::string bytes = encode_hello({.rank = 3,
                                          .world_size = 8,
                                          .generation = 2,
                                          .run_id = "run",
                                          .host_identity = "host",
                                          .data_port = 4000,
                                          .team_name = "team"});
  Frame frame = frame_of(bytes, FrameType::kHello);
  ASSERT_TRUE(decode_hello(frame));
  EXPECT_EQ(decode_hello(frame)->team_name, "team");
  while (!frame.payload.empty()) {
    frame.payload.pop_back();
    EXPECT_FALSE(decode_hello(frame));
  }
  EXPECT_FALSE(decode_hello(frame_of(bytes + "x", FrameType::kHello)));
}

TEST(MembershipTest, EveryTruncationOfAWelcomeIsRefused) {
  const Welcome welcome{.session = "secret",
                        .hosts = {{0, 2}, {1}},
                        .doors = {{.address = "10.0.0.1", .port = 5000, .team_name = "a"},
                                  {.address = "10.0.0.2", .port = 5001, .team_name = "b"},
                                  {.address = "10.0.0.1", .port = 5002, .team_name = "c"}}};
  Frame frame = frame_of(encode_welcome(welcome, 3), FrameType::kWelcome);
  auto read = decode_welcome(frame, 3);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->hosts[0], (std::vector<int>{0, 2}));
  EXPECT_EQ(read->doors[1].port, 5001);
  EXPECT_EQ(read->doors[2].team_name, "c");
  EXPECT_FALSE(decode_welcome(frame, 4));
  while (!frame.payload.empty()) {
    frame.payload.pop_back();
    EXPECT_FALSE(decode_welcome(frame, 3));
  }
}

TEST(MembershipTest, ManyRanksAreNamedInShort) {
  EXPECT_EQ(name_ranks({3}), "rank 3");
  EXPECT_EQ(name_ranks({3, 5}), "ranks 3 and 5");
  EXPECT_EQ(name_ranks({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 2 more");
}

}  // namespace
}  // namespace yard::collective
