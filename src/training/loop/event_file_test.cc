#include "loop/event_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/crc32c.h"
#include "loop/metrics_writer.h"

namespace yard::loop {
namespace {

namespace fs = std::filesystem;

// A message's fields by number: numbers as they lie, others as bytes.
struct Message {
  std::multimap<uint32_t, std::string> fields;
  const std::string& at(uint32_t field) const { return fields.find(field)->second; }
  bool has(uint32_t field) const { return fields.contains(field); }
  template <typename T>
  T raw(uint32_t field) const {
    T value{};
    EXPECT_EQ(at(field).size(), sizeof value);
    std::memcpy(&value, at(field).data(), sizeof value);
    return value;
  }
};

uint64_t take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    EXPECT_FALSE(bytes.empty());
    const auto byte = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    value |= uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) break;
  }
  return value;
}

Message parse(std::string_view bytes) {
  Message out;
  while (!bytes.empty()) {
    const uint64_t key = take_varint(bytes);
    size_t size = 0;
    switch (key & 7) {
      case 0: {
        const uint64_t value = take_varint(bytes);
        out.fields.emplace(key >> 3, std::string(reinterpret_cast<const char*>(&value), 8));
        continue;
      }
      case 1:
        size = 8;
        break;
      case 2:
        size = take_varint(bytes);
        break;
      case 5:
        size = 4;
        break;
      default:
        ADD_FAILURE() << "wire type " << (key & 7);
    }
    EXPECT_LE(size, bytes.size());
    out.fields.emplace(key >> 3, std::string(bytes.substr(0, size)));
    bytes.remove_prefix(size);
  }
  return out;
}

uint32_t masked(std::string_view bytes) {
  const uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

// Checks the framing of each record.
std::vector<Message> events_of(std::string_view file) {
  std::vector<Message> out;
  while (file.size() >= 16) {
    uint64_t size = 0;
    uint32_t crc = 0;
    std::memcpy(&size, file.data(), 8);
    std::memcpy(&crc, file.data() + 8, 4);
    EXPECT_EQ(crc, masked(file.substr(0, 8)));
    const std::string_view event = file.substr(12, size);
    std::memcpy(&crc, file.data() + 12 + size, 4);
    EXPECT_EQ(crc, masked(event));
    out.push_back(parse(event));
    file.remove_prefix(16 + size);
  }
  EXPECT_TRUE(file.empty());
  return out;
}

std::string only_file_in(const std::string& folder) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder)) found.push_back(entry.path());
  EXPECT_EQ(found.size(), 1u);
  return found.front();
}

class EventFileTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = testing::TempDir() + "yard_event_file_test." + std::to_string(getpid());
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  std::string dir_;
};

TEST_F(EventFileTest, HoldsVersionSessionScalarsAndImages) {
  {
    auto file = EventFile::create(dir_, Clock::real(), 41);
    ASSERT_TRUE(file) << file.error().message;
    ASSERT_TRUE(file->add_scalars(300, {{"train/loss", 0.25}, {"train/lr", 1e-4}}));
    ASSERT_TRUE(file->add_image(300, "samples/a", 7, 5, std::string(200, 'p')));
  }
  const std::string path = only_file_in(dir_);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "events.out.tfevents.", path);
  const std::vector<Message> events = events_of(*read_file(path));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].at(3), "brain.Event:2");
  EXPECT_GT(events[0].raw<double>(1), 1e9);
  EXPECT_EQ(events[1].raw<int64_t>(2), 41);
  EXPECT_EQ(parse(events[1].at(7)).raw<int64_t>(1), 1);
  EXPECT_EQ(events[2].raw<int64_t>(2), 300);
  const Message summary = parse(events[2].at(5));
  ASSERT_EQ(summary.fields.count(1), 2u);
  const Message loss = parse(summary.fields.begin()->second);
  EXPECT_EQ(loss.at(1), "train/loss");
  EXPECT_EQ(loss.raw<float>(2), 0.25F);
  const Message value = parse(parse(events[3].at(5)).at(1));
  EXPECT_EQ(value.at(1), "samples/a");
  const Message image = parse(value.at(4));
  EXPECT_EQ(image.raw<int64_t>(1), 5);
  EXPECT_EQ(image.raw<int64_t>(2), 7);
  EXPECT_EQ(image.at(4).size(), 200u);
}

TEST_F(EventFileTest, AFolderThatCannotBeMadeIsAnError) {
  ASSERT_TRUE(write_file_atomic(dir_ + "/file", "x"));
  EXPECT_FALSE(EventFile::create(dir_ + "/file/below", Clock::real(), 0));
}

TEST_F(EventFileTest, MetricsGoToLinesAndEventsAndNumbersThatAreNoneToNull) {
  {
    MetricsWriter metrics = MetricsWriter::open(dir_, Clock::real(), 0);
    metrics.tell("train", 3, {{"loss", 0.5}, {"stage", "low"}, {"grad_norm", std::nan("")}});
  }
  const std::string text = *read_file(dir_ + "/metrics.jsonl");
  ASSERT_EQ(text.back(), '\n');
  const Json line = *parse_json(text.substr(0, text.size() - 1), "line");
  EXPECT_EQ(line["event"], "train");
  EXPECT_EQ(line["global_step"], 3);
  EXPECT_EQ(line["loss"], 0.5);
  EXPECT_EQ(line["stage"], "low");
  EXPECT_TRUE(line["grad_norm"].is_null());
  const auto events = events_of(*read_file(only_file_in(dir_ + "/tensorboard")));
  EXPECT_EQ(parse(events.back().at(5)).fields.count(1), 2u) << "words are no points";
}

TEST_F(EventFileTest, MetricsThatCannotBeWrittenStopNothing) {
  MetricsWriter metrics = MetricsWriter::open(dir_ + "/missing", Clock::real(), 0);
  metrics.tell("train", 1, {{"loss", 0.5}});
  MetricsWriter().tell("train", 1, {{"loss", 0.5}});
}

}  // namespace
}  // namespace yard::loop
