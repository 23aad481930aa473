#include "logs/log_stream.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/random.h"

namespace yard::logs {
namespace {

class LogStreamTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(::mkdtemp(folder_.data()), nullptr); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/algo-1.log"; }
  LogWriter writer(uint64_t segment_bytes = 1 << 20, uint64_t total = 1 << 30) {
    auto opened =
        LogWriter::open({.path = path(), .segment_bytes = segment_bytes, .total_bytes_max = total});
    if (!opened) ADD_FAILURE() << opened.error().message;
    return *std::move(opened);
  }
  LogPage read(const LogQuery& query) {
    auto page = LogReader(path()).read(query);
    if (!page) ADD_FAILURE() << page.error().message;
    return page ? *page : LogPage{};
  }
  std::vector<std::string> texts(const LogQuery& query = {}) {
    std::vector<std::string> all;
    for (const LogEvent& event : read(query).events) all.push_back(event.text);
    return all;
  }
  void write_numbers(LogWriter& writer, int from, int until) {
    for (int i = from; i < until; ++i) {
      const std::string line = fmt::format("line {}", i);
      ASSERT_TRUE(writer.append_at(1000 + i, {line}));
    }
  }

  std::string folder_ = testing::TempDir() + "yard_logs_XXXXXX";
};

using Texts = std::vector<std::string>;

TEST_F(LogStreamTest, WhatWasAppendedIsReadWithItsTime) {
  LogWriter log = writer();
  ASSERT_TRUE(log.append_at(5, {"a", "", "c d"}));
  ASSERT_TRUE(log.append_at(7, {std::string_view("nul\0byte \xff", 10)}));
  const LogPage page = read({});
  ASSERT_EQ(page.events.size(), 4u);
  EXPECT_EQ(page.events[1].text, "");
  EXPECT_EQ(page.events[2].t_ms, 5);
  EXPECT_EQ(page.events[3].text, std::string("nul\0byte \xff", 10));
  EXPECT_EQ(page.events[3].t_ms, 7);
  EXPECT_EQ(page.end_offset, log.end_offset());
}

TEST_F(LogStreamTest, TimesNeverGoBack) {
  {
    LogWriter log = writer();
    ASSERT_TRUE(log.append_at(100, {"a"}));
    ASSERT_TRUE(log.append_at(50, {"b"}));
  }
  LogWriter again = writer();
  ASSERT_TRUE(again.append_at(1, {"c"}));
  for (const LogEvent& event : read({}).events) EXPECT_EQ(event.t_ms, 100);
}

TEST_F(LogStreamTest, AReaderThatIsUpToDateGoesOnFromItsOffset) {
  LogWriter log = writer();
  write_numbers(log, 0, 3);
  const LogPage first = read({});
  const LogPage none = read({.offset = first.end_offset});
  EXPECT_TRUE(none.events.empty());
  EXPECT_EQ(none.end_offset, first.end_offset);
  write_numbers(log, 3, 5);
  EXPECT_EQ(texts({.offset = first.end_offset}), (Texts{"line 3", "line 4"}));
}

TEST_F(LogStreamTest, ALineWithoutItsNewlineIsNotThereYet) {
  LogWriter log = writer();
  ASSERT_TRUE(log.append_at(1, {"whole"}));
  std::ofstream(path(), std::ios::app) << "2 half";
  EXPECT_EQ(texts(), Texts{"whole"});
}

TEST_F(LogStreamTest, ALineThatACrashCutOffIsEndedByTheNextWriter) {
  std::ofstream(path()) << "10 whole\n20 ha";
  LogWriter log = writer();
  ASSERT_TRUE(log.append_at(30, {"after"}));
  EXPECT_EQ(texts(), (Texts{"whole", "ha", "after"}));
}

TEST_F(LogStreamTest, ALineWhoseTimeACrashCutOffTakesTheTimeBefore) {
  std::ofstream(path()) << "10 whole\n2";
  LogWriter log = writer();
  ASSERT_TRUE(log.append_at(30, {"after"}));
  const LogPage page = read({});
  ASSERT_EQ(page.events.size(), 3u);
  EXPECT_EQ(page.events[1].t_ms, 10);
}

TEST_F(LogStreamTest, PagesForwardAndBackwardGiveEveryEventOnce) {
  LogWriter log = writer(300);
  write_numbers(log, 0, 200);
  Texts forward;
  LogQuery query{.offset = 0, .events_max = 7};
  while (true) {
    const LogPage page = read(query);
    if (page.events.empty()) break;
    for (const auto& event : page.events) forward.push_back(event.text);
    query.offset = page.end_offset;
  }
  Texts backward;
  query = {.backward = true, .events_max = 7};
  while (true) {
    const LogPage page = read(query);
    if (page.events.empty()) break;
    Texts texts;
    for (const auto& event : page.events) texts.push_back(event.text);
    backward.insert(backward.begin(), texts.begin(), texts.end());
    query.offset = page.begin_offset;
  }
  ASSERT_EQ(forward.size(), 200u);
  EXPECT_EQ(forward, backward);
  EXPECT_EQ(forward[199], "line 199");
}

TEST_F(LogStreamTest, ARangeOfTimeIsFoundAmongLongAndShortLines) {
  LogWriter log = writer(200'000);
  uint64_t draws = 0;
  std::vector<int64_t> times;
  int64_t t = 1000;
  for (int i = 0; i < 600; ++i) {
    t += static_cast<int64_t>(random_u64(7, 0, draws++) % 3);
    const std::string line(random_u64(7, 0, draws++) % (i % 50 == 0 ? 200'000 : 60), 'x');
    ASSERT_TRUE(log.append_at(t, {line}));
    times.push_back(t);
  }
  for (int64_t start = 998; start < t + 3; start += 7) {
    const int64_t end = start + 40;
    size_t expected = 0;
    for (int64_t each : times) expected += each >= start && each < end;
    LogQuery query{.start_ms = start, .end_ms = end, .bytes_max = 1 << 30};
    const LogPage forward = read(query);
    ASSERT_EQ(forward.events.size(), expected) << start;
    query.backward = true;
    const LogPage backward = read(query);
    ASSERT_EQ(backward.events.size(), expected) << start;
    for (size_t i = 0; i < expected; ++i)
      EXPECT_EQ(forward.events[i].offset, backward.events[i].offset);
  }
}

TEST_F(LogStreamTest, AnOffsetInsideALineMeansTheNextOne) {
  LogWriter log = writer();
  write_numbers(log, 0, 3);
  const LogPage page = read({});
  EXPECT_EQ(texts({.offset = page.events[1].offset + 2}), Texts{"line 2"});
  EXPECT_EQ(texts({.offset = page.events[1].offset}), (Texts{"line 1", "line 2"}));
  EXPECT_TRUE(texts({.offset = 1 << 20}).empty());
}

TEST_F(LogStreamTest, OffsetsStayWhenTheStreamIsRotatedAndOldSegmentsGo) {
  LogWriter log = writer(100, 500);
  write_numbers(log, 0, 3);
  const uint64_t second = read({}).events[1].offset;
  write_numbers(log, 3, 200);
  const auto summary = LogReader(path()).summary();
  ASSERT_TRUE(summary);
  EXPECT_GT(summary->begin_offset, second);
  EXPECT_EQ(summary->end_offset, log.end_offset());
  EXPECT_EQ(summary->last_ms, 1199);
  const LogPage rest = read({.offset = second});  // gone: from what is left on
  ASSERT_FALSE(rest.events.empty());
  EXPECT_EQ(rest.events.front().offset, summary->begin_offset);
  EXPECT_EQ(rest.events.back().text, "line 199");
  LogWriter* const same = &log;
  write_numbers(*same, 200, 201);
  EXPECT_EQ(texts({.offset = rest.end_offset}), Texts{"line 200"});
}

TEST_F(LogStreamTest, AWriterThatComesAgainGoesOnWhereTheLastOneEnded) {
  uint64_t end = 0;
  {
    LogWriter log = writer(100);
    write_numbers(log, 0, 50);
    end = log.end_offset();
  }
  LogWriter log = writer(100);
  EXPECT_EQ(log.end_offset(), end);
  write_numbers(log, 50, 60);
  EXPECT_EQ(texts({.offset = 0}).size(), 60u);
}

TEST_F(LogStreamTest, AReaderBesideAFastRotatingWriterMissesAndDoublesNothing) {
  LogWriter log = writer(2000, 1 << 30);
  std::atomic<bool> done = false;
  std::jthread writing([&] {
    for (int i = 0; i < 20'000; ++i) {
      const std::string line = fmt::format("line {}", i);
      if (!log.append_at(i, {line})) break;
    }
    done = true;
  });
  LogQuery query{.offset = 0};
  int next = 0;
  while (true) {
    const bool last = done;
    auto page = LogReader(path()).read(query);
    if (!page) {
      ASSERT_EQ(page.error().code, Code::kUnavailable) << page.error().message;
      continue;
    }
    for (const LogEvent& event : page->events)
      ASSERT_EQ(event.text, fmt::format("line {}", next++));
    query.offset = page->end_offset;
    if (last && page->events.empty()) break;
  }
  writing.join();
  EXPECT_EQ(next, 20'000);
}

TEST_F(LogStreamTest, AReaderBesideTheFirstRotationsFindsTheStream) {
  for (int stream = 0; stream < 40; ++stream) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    LogWriter log = writer(100, 1 << 30);
    std::atomic<bool> done = false;
    std::jthread writing([&] {
      for (int i = 0; i < 10; ++i) (void)log.append_at(i, {std::string(60, 'x')});
      done = true;
    });
    while (!done) {
      const auto page = LogReader(path()).read({.offset = 0});
      if (page) continue;
      ASSERT_EQ(page.error().code, Code::kUnavailable) << page.error().message;
    }
  }
}

TEST_F(LogStreamTest, ALineThatIsTooLongIsBroken) {
  LogWriter log = writer();
  const std::string line(2 * kLineBytesMax + 5, 'y');
  ASSERT_TRUE(log.append_at(1, {line}));
  const Texts all = texts({.bytes_max = 1 << 30});
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0] + all[1] + all[2], line);
}

TEST_F(LogStreamTest, TwoWritersOfOneStreamAreRefused) {
  LogWriter log = writer();
  const auto second = LogWriter::open({.path = path()});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kUnavailable);
}

TEST_F(LogStreamTest, AStreamThatIsNotThereIsNotFound) {
  EXPECT_EQ(LogReader(path()).read({}).error().code, Code::kNotFound);
  EXPECT_EQ(LogReader(path()).summary().error().code, Code::kNotFound);
  EXPECT_EQ(LogWriter::open({.path = folder_ + "/none/x.log"}).error().code, Code::kNotFound);
}

TEST_F(LogStreamTest, LinesLostForWantOfSpaceAreSaidOnceThereIsSpace) {
  LogWriter log = writer();
  ASSERT_TRUE(log.append_at(1, {"before"}));
  struct rlimit before {};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { .rlim_cur = log.end_offset() + 4, .rlim_max = before.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status lost = log.append_at(2, {"one", "two"});
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_FALSE(lost);
  ASSERT_TRUE(log.append_at(3, {"after"}));
  EXPECT_EQ(texts(), (Texts{"before", "[2 lines were lost: no space]", "after"}));
}

}  // namespace
}  // namespace yard::logs
