// What S3Store::get_range_to() gives to its sink when the server or the network misbehaves.
#include <gtest/gtest.h>

#include <future>

#include "storage/s3_store.h"
#include "storage/testing/s3_faults.h"

namespace yard::storage {
namespace {

using namespace std::chrono_literals;
using testing::answer;
using testing::Clocked;
using testing::FakeS3;
using testing::fault_at;
using testing::is_range;
using testing::S3Call;
using testing::S3Fault;
using testing::six_mib;

// Writes as into a file: by position.
class Target {
 public:
  explicit Target(size_t size_bytes) : content_(size_bytes, '?') {}
  Status get(S3Store& store, uint64_t offset, const std::string& etag = "") {
    return store.get_range_to(
        "k", etag, offset, content_.size(),
        [this](uint64_t position, std::span<const std::byte> bytes) -> Status {
          EXPECT_LE(position + bytes.size(), content_.size());
          start_count_ += position == 0 ? 1 : 0;
          content_.replace(position, bytes.size(), reinterpret_cast<const char*>(bytes.data()),
                           bytes.size());
          return Ok{};
        });
  }
  const std::string& content() const { return content_; }
  int start_count() const { return start_count_; }

 private:
  std::string content_;
  int start_count_ = 0;
};

TEST(S3StoreSinkTest, ABodyThatIsResetComesAgainFromItsStart) {
  Clocked s3(fault_at(0, {.reset_after_bytes = 700'000}, is_range));
  s3.server.put("k", six_mib());
  S3Store store = s3.store();
  Target target(3 << 20);
  const auto got = target.get(store, 1 << 20);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_TRUE(target.content() == six_mib().substr(1 << 20, 3 << 20));
  EXPECT_EQ(target.start_count(), 2);
}

TEST(S3StoreSinkTest, AnErrorPageIsNeverGivenToTheSink) {
  for (const int status : {500, 503, 404, 403, 302}) {
    Clocked s3([&](const S3Call& call) -> S3Fault {
      return is_range(call) ? S3Fault{.status = status, .body = std::string(10, 'E')} : S3Fault();
    });
    s3.server.put("k", "0123456789");
    S3Store store = s3.store();
    Target target(10);
    EXPECT_FALSE(target.get(store, 0)) << status;
    EXPECT_EQ(target.start_count(), 0) << status;
  }
}

TEST(S3StoreSinkTest, ABodyOfAnotherLengthIsCorrupt) {
  for (const char* body : {"01234", "0123456789abcdef"}) {
    Clocked s3([&](const S3Call&) -> S3Fault {
      return {.status = 206, .body = body, .headers = {{"Content-Range", "bytes 0-9/10"}}};
    });
    S3Store store = s3.store();
    Target target(10);
    const auto got = target.get(store, 0);
    ASSERT_FALSE(got) << body;
    EXPECT_EQ(got.error().code, Code::kCorrupt) << got.error().message;
  }
}

TEST(S3StoreSinkTest, AnotherVersionIsCorruptBeforeAnyByte) {
  Clocked s3;
  s3.server.put("k", "0123456789");
  S3Store store = s3.store();
  Target target(10);
  EXPECT_EQ(target.get(store, 0, "another").error().code, Code::kCorrupt);
  EXPECT_EQ(target.start_count(), 0);
}

TEST(S3StoreSinkTest, TheSinksErrorEndsItWithoutAnotherAttempt) {
  Clocked s3;
  s3.server.put("k", six_mib());
  S3Store store = s3.store();
  const auto got = store.get_range_to(
      "k", "", 0, 6 << 20, [](uint64_t position, std::span<const std::byte>) -> Status {
        if (position < 1'000'000) return Ok{};
        return Error{Code::kExhausted, "/disk/k: No space left on device"};
      });
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kExhausted);
  EXPECT_EQ(got.error().message, "/disk/k: No space left on device");
  EXPECT_EQ(s3.server.call_count(), 1);
}

TEST(S3StoreSinkTest, OfTwoRequestsForASlowRangeOneIsTakenWhole) {
  std::promise<void> over;
  const std::shared_future<void> is_over = over.get_future();
  FakeS3 s3(fault_at(4, {.before = [is_over] { is_over.wait_for(60s); }}, is_range));
  s3.put("k", six_mib());
  S3Options options = s3.options();
  options.hedge = {.enabled = true, .delay_min = 20ms};
  options.stall_timeout = 60s;
  S3Store store = s3.store(options);
  Target target(1 << 20);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(target.get(store, uint64_t(i) << 20));
  const auto got = target.get(store, 4 << 20);
  over.set_value();
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_TRUE(target.content() == six_mib().substr(4 << 20, 1 << 20));
  EXPECT_GE(s3.call_count(), 6);
}

}  // namespace
}  // namespace yard::storage
