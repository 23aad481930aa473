#include "collective/flight.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "collective/flight_recorder_internal.h"

namespace yard::collective {
namespace {

class FlightFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = testing::TempDir() + "yard-flight-" + std::to_string(::getpid());
    std::filesystem::create_directories(dir_ + "/flight");
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::shared_ptr<FlightRecorder> recorder(int rank, uint64_t generation = 0) {
    auto made = FlightRecorder::create(flight_path(dir_, rank), rank, 3, generation);
    EXPECT_TRUE(made) << made.error().message;
    return *made;
  }

  std::string dir_;
};

CallRecord barrier(uint64_t sequence) {
  return {.sequence = sequence, .kind = CallKind::kBarrier};
}

TEST_F(FlightFileTest, WhatARankRecordsIsReadWhileItLivesAndAfterwards) {
  auto writer = recorder(1, 4);
  const FlightEntry first = writer->issued(barrier(1));
  writer->started(first);
  writer->ended(first, Error{Code::kUnavailable, "rank 2 died"}, 2);
  writer->started(writer->issued(barrier(2)));
  writer->issued(barrier(3));
  writer->waited_rank() = 0;
  for (const bool lives : {true, false}) {
    if (!lives) writer.reset();
    const auto log = read_flight(flight_path(dir_, 1));
    ASSERT_TRUE(log) << log.error().message;
    EXPECT_EQ(log->rank, 1);
    EXPECT_EQ(log->world_size, 3);
    EXPECT_EQ(log->generation, 4u);
    ASSERT_EQ(log->records.size(), 3u);
    EXPECT_EQ(log->records[0].call, "barrier #1");
    EXPECT_EQ(log->records[0].error, "rank 2 died");
    EXPECT_EQ(log->records[0].waited_rank, 2);
    EXPECT_EQ(log->records[1].waited_rank, 0);
    EXPECT_EQ(log->records[1].ended_after_us, -1);
    EXPECT_EQ(log->records[2].started_after_us, -1);
  }
}

TEST_F(FlightFileTest, OnlyTheLastOperationsAreKept) {
  auto writer = recorder(0);
  for (uint64_t i = 1; i <= 1000; ++i) writer->issued(barrier(i));
  writer->started(0);  // long overwritten
  const auto records = writer->records();
  ASSERT_EQ(records.size(), kFlightSlots);
  EXPECT_EQ(records.front().call, "barrier #489");
  EXPECT_EQ(records.back().call, "barrier #1000");
}

TEST_F(FlightFileTest, AFileOfSomethingElseIsCorrupt) {
  ASSERT_TRUE(write_file_atomic(flight_path(dir_, 0), "not this"));
  EXPECT_EQ(read_flight(flight_path(dir_, 0)).error().code, Code::kCorrupt);
  ASSERT_TRUE(write_file_atomic(flight_path(dir_, 0), std::string(sizeof(FlightPages), 'x')));
  EXPECT_EQ(read_flight(flight_path(dir_, 0)).error().code, Code::kCorrupt);
  EXPECT_EQ(read_flight(dir_ + "/none").error().code, Code::kNotFound);
  EXPECT_EQ(read_flights(dir_ + "/none").error().code, Code::kNotFound);
}

TEST_F(FlightFileTest, TheRankThatAllWaitForIsNamedWithWhatItDidLast) {
  auto old = FlightRecorder::create(dir_ + "/flight/old.flight", 0, 3, 0);
  ASSERT_TRUE(old);
  std::vector<std::shared_ptr<FlightRecorder>> writers;
  for (int rank = 0; rank < 3; ++rank) {
    writers.push_back(recorder(rank, 1));
    const FlightEntry first = writers.back()->issued(barrier(6));
    writers.back()->started(first);
    writers.back()->ended(first, Ok{}, -1);
    if (rank == 2) continue;
    writers.back()->started(writers.back()->issued(barrier(7)));
    writers.back()->waited_rank() = 2;
  }
  const auto logs = read_flights(dir_);
  ASSERT_TRUE(logs);
  const std::string text = diagnose(*logs);
  EXPECT_NE(text.find("ranks 0 and 1 wait in barrier #7 for rank 2, which has ended barrier #6"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace yard::collective
