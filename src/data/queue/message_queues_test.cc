#include "queue/message_queues.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "base/testing/fake_clock.h"
#include "sqlite/sqlite.h"

namespace yard::queue {
namespace {

using namespace std::chrono_literals;

class MessageQueuesTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    ASSERT_TRUE(queues().create("dead", {}));
    QueueAttributes attributes;
    attributes.dead_letter_queue = "dead";
    attributes.receive_count_max = 3;
    ASSERT_TRUE(queues().create("work", attributes));
  }
  void TearDown() override {
    queues_.reset();
    std::filesystem::remove_all(folder_);
  }

  std::string path() const { return folder_ + "/queues.db"; }
  MessageQueues& queues() {
    if (!queues_) {
      auto opened = MessageQueues::open({.path = path(), .power_safe = false, .clock = &clock_});
      YARD_CHECK(opened.has_value());
      queues_ = std::make_unique<MessageQueues>(*std::move(opened));
    }
    return *queues_;
  }
  void close() { queues_.reset(); }

  void send(const std::string& body, const std::string& key = "") {
    const auto sent = queues().send("work", {{.body = body, .dedupe_key = key}});
    ASSERT_TRUE(sent) << sent.error().message;
  }
  std::vector<ReceivedMessage> receive(int64_t count = 10, const std::string& name = "work") {
    auto messages = queues().receive(name, {.count_max = count});
    if (!messages) ADD_FAILURE() << messages.error().message;
    return messages ? *std::move(messages) : std::vector<ReceivedMessage>{};
  }
  ReceivedMessage receive_one(const std::string& name = "work") {
    auto messages = receive(1, name);
    if (messages.empty()) ADD_FAILURE() << "no message in " << name;
    return messages.empty() ? ReceivedMessage{} : messages.front();
  }
  bool remove(const std::string& receipt, const std::string& name = "work") {
    const auto removed = queues().remove(name, {receipt});
    return removed && removed->front();
  }
  QueueCounts counts(const std::string& name = "work") { return queues().info(name)->counts; }

  FakeClock clock_;
  std::string folder_ = testing::TempDir() + "yard_queue_XXXXXX";
  std::unique_ptr<MessageQueues> queues_;
};

TEST_F(MessageQueuesTest, AMessageIsInvisibleUntilItsTimeIsOverAndThenComesBack) {
  send("hello");
  const auto first = receive_one();
  EXPECT_EQ(first.body, "hello");
  EXPECT_EQ(first.receive_count, 1);
  EXPECT_TRUE(receive().empty());
  clock_.advance(29s);
  EXPECT_TRUE(receive().empty());
  clock_.advance(1s);
  const auto second = receive_one();
  EXPECT_EQ(second.id, first.id);
  EXPECT_EQ(second.receive_count, 2);
  EXPECT_EQ(second.first_received_ms, first.first_received_ms);
  EXPECT_NE(second.receipt, first.receipt);
}

TEST_F(MessageQueuesTest, AReceiptOfAnEarlierDeliveryRemovesNothing) {
  send("hello");
  const auto first = receive_one();
  clock_.advance(30s);
  const auto second = receive_one();
  EXPECT_FALSE(remove(first.receipt));
  EXPECT_EQ(counts().in_flight, 1);
  EXPECT_TRUE(remove(second.receipt));
  EXPECT_FALSE(remove(second.receipt));
  EXPECT_EQ(counts().in_flight, 0);
  for (const char* wrong : {"", "1", "1-x", "-", "x-y", "99999999999999999999-abc"})
    EXPECT_FALSE(remove(wrong)) << wrong;
}

TEST_F(MessageQueuesTest, AReceiptOfAnotherQueueRemovesNothing) {
  send("hello");
  EXPECT_FALSE(remove(receive_one().receipt, "dead"));
}

TEST_F(MessageQueuesTest, MessagesComeInTheOrderInWhichTheyBecameVisible) {
  for (const char* body : {"a", "b", "c"}) send(body);
  EXPECT_EQ(receive_one().body, "a");
  clock_.advance(30s);
  send("d");
  std::string order;
  for (const auto& message : receive()) order += message.body;
  EXPECT_EQ(order, "bcad");
}

TEST_F(MessageQueuesTest, AMessageThatIsNeverRemovedBecomesADeadLetterWithTheReason) {
  send("bad");
  for (int i = 0; i < 3; ++i) {
    receive_one();
    clock_.advance(30s);
  }
  send("good");
  EXPECT_EQ(receive_one().body, "good");
  const auto dead = receive_one("dead");
  EXPECT_EQ(dead.body, "bad");
  EXPECT_EQ(dead.dead_letter_source, "work");
  EXPECT_EQ(dead.dead_letter_reason, "received 3 times");
  EXPECT_EQ(dead.receive_count, 1);
}

TEST_F(MessageQueuesTest, ManyExhaustedMessagesDoNotHideTheGoodOnesBehindThem) {
  for (int i = 0; i < 25; ++i) send("bad");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(receive(25).size(), 25u);
    clock_.advance(30s);
  }
  send("good");
  EXPECT_EQ(receive_one().body, "good");
  EXPECT_EQ(counts("dead").visible, 25);
}

TEST_F(MessageQueuesTest, ARejectedMessageIsADeadLetterAtOnce) {
  send("bad");
  const auto message = receive_one();
  EXPECT_TRUE(*queues().reject("work", message.receipt, "not an image"));
  EXPECT_FALSE(*queues().reject("work", message.receipt, "again"));
  EXPECT_EQ(receive_one("dead").dead_letter_reason, "not an image");
  const auto refused = queues().reject("dead", "1-x", "no grave");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
}

TEST_F(MessageQueuesTest, DeadLettersGoBackFreshToWhereTheyCameFrom) {
  send("bad");
  ASSERT_TRUE(*queues().reject("work", receive_one().receipt, "x"));
  EXPECT_EQ(*queues().redrive("dead"), 1);
  EXPECT_EQ(counts("dead").visible, 0);
  const auto again = receive_one();
  EXPECT_EQ(again.receive_count, 1);
  EXPECT_EQ(again.dead_letter_reason, "");
}

TEST_F(MessageQueuesTest, ADedupeKeyIsAcceptedOnceAlsoAfterItsMessageIsGone) {
  const auto first = queues().send("work", {{.body = "a", .dedupe_key = "k"}});
  const auto second = queues().send("work", {{.body = "b", .dedupe_key = "k"}});
  ASSERT_TRUE(first && second);
  EXPECT_TRUE(first->front().is_new);
  EXPECT_FALSE(second->front().is_new);
  EXPECT_EQ(first->front().id, second->front().id);
  ASSERT_TRUE(remove(receive_one().receipt));
  send("c", "k");
  EXPECT_TRUE(receive().empty());
  ASSERT_TRUE(queues().purge("work"));
  send("d", "k");
  EXPECT_EQ(receive_one().body, "d");
}

TEST_F(MessageQueuesTest, ABatchIsSentWholeOrNotAtAll) {
  const auto sent = queues().send("work", {{.body = "a", .dedupe_key = "a"}, {.body = ""}});
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, Code::kInvalidArgument);
  EXPECT_TRUE(receive().empty());
  send("a", "a");  // its key was not kept either
  EXPECT_EQ(receive_one().body, "a");
}

TEST_F(MessageQueuesTest, ADelayedMessageComesWhenItsDelayIsOver) {
  ASSERT_TRUE(queues().send("work", {{.body = "later", .delay_s = 5}}));
  EXPECT_EQ(counts().delayed, 1);
  EXPECT_TRUE(receive().empty());
  clock_.advance(5s);
  EXPECT_EQ(receive_one().body, "later");
}

TEST_F(MessageQueuesTest, VisibilityCanBeProlongedAndGivenUpWhileItLasts) {
  send("x");
  const auto message = receive_one();
  EXPECT_TRUE(*queues().change_visibility("work", message.receipt, 100));
  clock_.advance(99s);
  EXPECT_TRUE(receive().empty());
  EXPECT_TRUE(*queues().change_visibility("work", message.receipt, 0));
  const auto again = receive_one();
  EXPECT_FALSE(*queues().change_visibility("work", message.receipt, 10));
  clock_.advance(30s);
  EXPECT_FALSE(*queues().change_visibility("work", again.receipt, 10));
  EXPECT_FALSE(queues().change_visibility("work", again.receipt, 43'201));
}

TEST_F(MessageQueuesTest, AVisibilityOfNothingGivesAMessageOncePerCall) {
  send("x");
  const auto messages = queues().receive("work", {.count_max = 10, .visibility_timeout_s = 0});
  ASSERT_TRUE(messages);
  EXPECT_EQ(messages->size(), 1u);
}

TEST_F(MessageQueuesTest, MessagesOlderThanTheRetentionAreDropped) {
  send("old");
  clock_.advance(std::chrono::hours(96) + 1s);
  send("young");
  EXPECT_EQ(receive_one().body, "young");
  EXPECT_EQ(counts().visible, 0);
}

TEST_F(MessageQueuesTest, EverythingIsThereAfterTheFileWasClosed) {
  send("a", "k");
  const auto message = receive_one();
  close();
  EXPECT_EQ(counts().in_flight, 1);
  EXPECT_TRUE(remove(message.receipt));
  send("b", "k");
  EXPECT_EQ(counts().visible, 0);
}

TEST_F(MessageQueuesTest, AttributesAreKeptCheckedAndChanged) {
  EXPECT_FALSE(*queues().create("dead", {}));  // the same: not new
  QueueAttributes other;
  other.delay_s = 3;
  EXPECT_EQ(queues().create("dead", other).error().code, Code::kInvalidArgument);
  ASSERT_TRUE(queues().set_attributes("dead", other));
  EXPECT_EQ(queues().info("dead")->attributes, other);
  other.delay_s = 901;
  EXPECT_EQ(queues().set_attributes("dead", other).error().code, Code::kInvalidArgument);
  other = {.dead_letter_queue = "none", .receive_count_max = 1};
  EXPECT_EQ(queues().create("q", other).error().code, Code::kInvalidArgument);
  other = {.dead_letter_queue = "dead", .receive_count_max = 0};
  EXPECT_EQ(queues().create("q", other).error().code, Code::kInvalidArgument);
  other = {.dead_letter_queue = "q", .receive_count_max = 1};
  EXPECT_EQ(queues().create("q", other).error().code, Code::kInvalidArgument);
  for (const std::string name : {"", "a b", "q.fifo", "../x"})
    EXPECT_EQ(queues().create(name, {}).error().code, Code::kInvalidArgument) << name;
}

TEST_F(MessageQueuesTest, WhatIsNotThereIsNotFound) {
  EXPECT_EQ(queues().info("none").error().code, Code::kNotFound);
  EXPECT_EQ(queues().send("none", {{.body = "a"}}).error().code, Code::kNotFound);
  EXPECT_EQ(queues().receive("none", {}).error().code, Code::kNotFound);
  EXPECT_EQ(queues().remove("none", {"1-x"}).error().code, Code::kNotFound);
  EXPECT_EQ(queues().remove_queue("none").error().code, Code::kNotFound);
  EXPECT_EQ(queues().purge("none").error().code, Code::kNotFound);
}

TEST_F(MessageQueuesTest, AQueueThatIsRemovedTakesItsMessagesWithIt) {
  send("a", "k");
  ASSERT_TRUE(queues().remove_queue("work"));
  EXPECT_EQ(*queues().names(), std::vector<std::string>{"dead"});
  ASSERT_TRUE(queues().create("work", {}));
  EXPECT_TRUE(receive().empty());
  send("b", "k");
  EXPECT_EQ(receive_one().body, "b");
}

TEST_F(MessageQueuesTest, AFileOfSomethingElseIsCorrupt) {
  const std::string other = folder_ + "/other.db";
  auto connection = sqlite::Connection::open(other);
  ASSERT_TRUE(connection->execute("CREATE TABLE x (y)"));
  const auto opened = MessageQueues::open({.path = other});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::kCorrupt);
}

TEST_F(MessageQueuesTest, AWaitingReceiverGetsWhatIsSentMeanwhile) {
  auto real = MessageQueues::open({.path = path(), .power_safe = false});
  ASSERT_TRUE(real);
  std::thread sending([&] { EXPECT_TRUE(real->send("work", {{.body = "late"}})); });
  const auto messages = real->receive("work", {.wait = 60s});
  sending.join();
  ASSERT_TRUE(messages);
  ASSERT_EQ(messages->size(), 1u);
  StopSource stop;
  stop.request();
  EXPECT_TRUE(real->receive("work", {.wait = 60s}, stop.token())->empty());
}

// Workers on two connections, some of which drop what they took: all is done in the end, and a
// removal counts once.
TEST_F(MessageQueuesTest, ManyWorkersRemoveEveryMessageExactlyOnce) {
  constexpr int kMessages = 400;
  std::vector<NewMessage> batch;
  for (int i = 0; i < kMessages; ++i) batch.push_back({.body = std::to_string(i)});
  ASSERT_TRUE(queues().send("work", batch));
  std::atomic<int> done = 0;
  std::vector<std::thread> workers;
  for (int i = 0; i < 4; ++i)
    workers.emplace_back([&, i] {
      auto own = MessageQueues::open({.path = path(), .power_safe = false, .clock = &clock_});
      ASSERT_TRUE(own);
      for (int round = 0; done < kMessages && round < 2000; ++round) {
        const auto messages = own->receive("work", {.count_max = 7});
        ASSERT_TRUE(messages) << messages.error().message;
        for (const auto& message : *messages) {
          const bool drops = (round + i) % 5 == 0;
          if (drops) {
            ASSERT_TRUE(own->change_visibility("work", message.receipt, 0));
            continue;
          }
          const auto removed = own->remove("work", {message.receipt});
          ASSERT_TRUE(removed) << removed.error().message;
          done += removed->front();
        }
      }
    });
  for (auto& worker : workers) worker.join();
  const int64_t dead = counts("dead").visible;  // dropped three times
  EXPECT_EQ(done + dead, kMessages);
  EXPECT_EQ(counts().visible + counts().in_flight, 0);
}

// A sender that is killed at any moment has sent what it was told it had sent.
TEST_F(MessageQueuesTest, WhatAKilledSenderWasToldIsThere) {
  close();
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(told[0]);
    auto own = MessageQueues::open({.path = path(), .power_safe = false});
    for (int i = 0; own && i < 100'000; ++i) {
      if (!own->send("work", {{.body = std::to_string(i)}})) break;
      if (::write(told[1], &i, sizeof i) != sizeof i) break;
    }
    ::_exit(1);
  }
  ::close(told[1]);
  int last = -1;
  for (int count = 0; count < 300; ++count) ASSERT_EQ(::read(told[0], &last, sizeof last), 4);
  ::kill(child, SIGKILL);
  while (::read(told[0], &last, sizeof last) == sizeof last) {
  }
  ::close(told[0]);
  ::waitpid(child, nullptr, 0);
  const int64_t there = counts().visible + counts().delayed;  // two clocks
  EXPECT_GE(there, last + 1);
  EXPECT_LE(there, last + 2);
}

}  // namespace
}  // namespace yard::queue
