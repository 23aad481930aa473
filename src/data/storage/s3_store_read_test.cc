// How S3Store reads when the server or the network misbehaves: storage/testing/fake_s3.h fails on
// command, by the number of the call.
#include <gtest/gtest.h>

#include <future>

#include "storage/parallel_get.h"
#include "storage/request_deadline.h"
#include "storage/s3_store.h"
#include "storage/testing/s3_faults.h"

namespace yard::storage {
namespace {

using namespace std::chrono_literals;
using testing::answer;
using testing::bytes;
using testing::bytes_text;
using testing::Clocked;
using testing::FakeS3;
using testing::fault_at;
using testing::is_range;
using testing::S3Call;
using testing::S3Fault;
using testing::six_mib;

Result<std::string> read_by_parts(S3Store& store, const std::string& key) {
  YARD_ASSIGN(const ObjectInfo info, store.head(key));
  std::string out(info.size_bytes, '?');
  YARD_TRY(parallel_get(store, info, 0, std::as_writable_bytes(std::span(out))));
  return out;
}

TEST(S3StoreTest, AnErrorInTheNthRangeNeverBecomesContent) {
  for (const S3Fault& fault :
       {answer(500, "InternalError"), answer(503, "SlowDown"), answer(429, "TooManyRequests"),
        answer(503, "ServiceUnavailable"), answer(400, "RequestTimeout")})
    for (int number = 0; number < 6; number += 2) {
      Clocked s3(fault_at(number, fault, is_range));
      s3.server.put("k", six_mib());
      S3Store store = s3.store();
      const auto content = read_by_parts(store, "k");
      ASSERT_TRUE(content) << content.error().message;
      EXPECT_TRUE(*content == six_mib());
    }
}

TEST(S3StoreTest, AnErrorThatStaysIsToldWithTheObjectAndTheServersWords) {
  Clocked s3(fault_at(3, answer(503, "SlowDown"), is_range, true));
  s3.server.put("folder/k", six_mib());
  S3Store store = s3.store();
  const auto content = read_by_parts(store, "folder/k");
  ASSERT_FALSE(content);
  EXPECT_EQ(content.error().code, Code::kUnavailable);
  EXPECT_NE(content.error().message.find("s3://bucket/folder/k: SlowDown"), std::string::npos)
      << content.error().message;
}

TEST(S3StoreTest, AnErrorPageAsLongAsTheRangeIsNotContent) {
  for (const int status : {500, 403, 404, 302}) {
    Clocked s3([&](const S3Call& call) -> S3Fault {
      return is_range(call) ? S3Fault{.status = status, .body = std::string(10, 'E')} : S3Fault();
    });
    s3.server.put("k", "0123456789");
    std::string out(10, '?');
    const auto got = s3.store().get_range("k", "", 0, std::as_writable_bytes(std::span(out)));
    EXPECT_FALSE(got) << status;
    EXPECT_EQ(out.find('E'), out.npos) << status;
  }
}

TEST(S3StoreTest, ARangeThatNobodyAskedForIsNotTheObject) {
  Clocked s3([](const S3Call& call) -> S3Fault {
    if (call.method != "GET") return {};
    return {.status = 206, .body = "56789abcde", .headers = {{"Content-Range", "bytes 5-14/20"}}};
  });
  std::string out(10, '?');
  const auto got =
      s3.store().get_object({.key = "k", .size_bytes = 10}, std::as_writable_bytes(std::span(out)));
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kCorrupt);
}

TEST(S3StoreTest, AListingThatNamesTheSameNextPageForEverIsCorrupt) {
  Clocked s3([](const S3Call& call) -> S3Fault {
    if (call.query.find("list-type") == std::string::npos) return {};
    return {.status = 200,
            .body =
                "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t"
                "</NextContinuationToken><Contents><Key>a</Key><Size>1</Size></Contents>"
                "</ListBucketResult>"};
  });
  const auto page = s3.store().list({});
  ASSERT_FALSE(page);
  EXPECT_EQ(page.error().code, Code::kCorrupt);
}

TEST(S3StoreTest, AConnectionResetInTheBodyIsTriedAgain) {
  for (const uint64_t after : {0, 1, 700'000}) {
    Clocked s3(fault_at(2, {.reset_after_bytes = after}, is_range));
    s3.server.put("k", six_mib());
    S3Store store = s3.store();
    const auto content = read_by_parts(store, "k");
    ASSERT_TRUE(content) << content.error().message;
    EXPECT_TRUE(*content == six_mib());
  }
}

TEST(S3StoreTest, ABodyThatIsAlwaysCutShortIsAnError) {
  Clocked s3(fault_at(0, {.reset_after_bytes = 4}, is_range, true));
  s3.server.put("k", "0123456789");
  std::string out(10, '?');
  const auto got = s3.store().get_range("k", "", 0, std::as_writable_bytes(std::span(out)));
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kUnavailable) << got.error().message;
  EXPECT_EQ(s3.server.call_count(), 4);  // attempts_max
}

TEST(S3StoreTest, ABodyOfAnotherLengthIsCorrupt) {
  Clocked s3([](const S3Call&) -> S3Fault {
    return {.status = 206, .body = "01234", .headers = {{"Content-Range", "bytes 0-9/10"}}};
  });
  std::string out(10, '?');
  const auto got = s3.store().get_range("k", "", 0, std::as_writable_bytes(std::span(out)));
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kCorrupt);
}

TEST(S3StoreTest, AnotherRangeThanAskedForIsCorrupt) {
  for (const char* range : {"bytes 10-19/100", "bytes 1-10/100", "pages 0-9/100", "bytes 0-9"}) {
    Clocked s3([&](const S3Call&) -> S3Fault {
      return {.status = 206, .body = "0123456789", .headers = {{"Content-Range", range}}};
    });
    std::string out(10, '?');
    const auto got = s3.store().get_range("k", "", 0, std::as_writable_bytes(std::span(out)));
    ASSERT_FALSE(got) << range;
    EXPECT_EQ(got.error().code, Code::kCorrupt) << range;
    EXPECT_EQ(s3.server.call_count(), 1) << range;
  }
}

TEST(S3StoreTest, AServerThatIgnoresRangesIsCorruptUnlessTheRangeIsTheWhole) {
  Clocked s3([](const S3Call&) -> S3Fault { return {.status = 200, .body = "0123456789"}; });
  std::string out(10, '?');
  const auto bytes = std::as_writable_bytes(std::span(out));
  EXPECT_TRUE(s3.store().get_range("k", "", 0, bytes));
  EXPECT_EQ(out, "0123456789");
  EXPECT_EQ(s3.store().get_range("k", "", 5, bytes).error().code, Code::kCorrupt);
  EXPECT_EQ(s3.store().get_range("k", "", 0, bytes.first(4)).error().code, Code::kCorrupt);
}

TEST(S3StoreTest, AWrongChecksumIsTriedAgainAndCorruptWhenItStays) {
  const auto is_whole = [](const S3Call& call) { return call.method == "GET"; };
  for (const bool forever : {false, true}) {
    Clocked s3(fault_at(0, {.flip_a_byte = true}, is_whole, forever));
    S3Store store = s3.store();
    ASSERT_TRUE(put_text(store, "k", "what was put"));
    const auto content = get_all(store, "k");
    ASSERT_EQ(content.has_value(), !forever);
    if (content) {
      EXPECT_EQ(*content, "what was put");
    } else {
      EXPECT_EQ(content.error().code, Code::kCorrupt) << content.error().message;
    }
  }
}

TEST(S3StoreTest, EveryChecksumThatAServerNamesIsVerified) {
  for (const auto algorithm :
       {ChecksumAlgorithm::kCrc32, ChecksumAlgorithm::kCrc32c, ChecksumAlgorithm::kCrc64Nvme,
        ChecksumAlgorithm::kSha1, ChecksumAlgorithm::kSha256}) {
    for (const std::string content : {"right", "wrong"}) {
      const auto sum = checksum_base64(algorithm, bytes("right"));
      Clocked s3([&](const S3Call&) -> S3Fault {
        return {.status = 200,
                .body = content,
                .headers = {{std::string(checksum_header(algorithm)), sum}}};
      });
      std::string out(5, '?');
      const auto got = s3.store().get_object({"k", 5, ""}, std::as_writable_bytes(std::span(out)));
      EXPECT_EQ(got.has_value(), content == "right") << to_string(algorithm);
    }
  }
}

TEST(S3StoreTest, AFlippedByteInARangeIsFoundByTheChecksumOfTheWhole) {
  Clocked s3(fault_at(4, {.flip_a_byte = true}, is_range));
  S3Store store = s3.store();
  ASSERT_TRUE(put_text(store, "k", six_mib()));
  const auto content = read_by_parts(store, "k");
  ASSERT_FALSE(content);
  EXPECT_EQ(content.error().code, Code::kCorrupt);
  EXPECT_NE(content.error().message.find("CRC64NVME"), std::string::npos);
}

TEST(S3StoreTest, AnObjectReplacedBetweenTwoRangesIsCorrupt) {
  FakeClock clock;
  FakeS3* server = nullptr;
  FakeS3 s3(fault_at(3, {.before = [&] { server->put("k", bytes_text(6 << 20, 99)); }}, is_range),
            clock);
  server = &s3;
  s3.put("k", six_mib());
  S3Store store = s3.store(s3.options(), clock);
  const auto content = read_by_parts(store, "k");
  ASSERT_FALSE(content);
  EXPECT_EQ(content.error().code, Code::kCorrupt) << content.error().message;
}

TEST(S3StoreTest, AServerThatIgnoresIfMatchCannotMixVersions) {
  Clocked s3([](const S3Call&) -> S3Fault {
    return {.status = 206,
            .body = "0123456789",
            .headers = {{"Content-Range", "bytes 0-9/10"}, {"ETag", "\"new\""}}};
  });
  std::string out(10, '?');
  const auto got = s3.store().get_range("k", "old", 0, std::as_writable_bytes(std::span(out)));
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kCorrupt);
}

TEST(S3StoreTest, ASlowRangeIsAskedForTwiceAndTheSecondAnswerIsTaken) {
  std::promise<void> over;
  const std::shared_future<void> is_over = over.get_future();
  // The first request for the range has its answer only after the test has its bytes.
  FakeS3 s3(fault_at(4, {.before = [is_over] { is_over.wait_for(60s); }}, is_range));
  s3.put("k", six_mib());
  S3Options options = s3.options();
  options.hedge = {.enabled = true, .delay_min = 20ms};
  options.stall_timeout = 60s;
  S3Store store = s3.store(options);
  std::string out(1 << 20, '?');
  const auto out_bytes = std::as_writable_bytes(std::span(out));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(store.get_range("k", "", uint64_t(i) << 20, out_bytes));
  const auto got = store.get_range("k", "", 4 << 20, out_bytes);
  over.set_value();
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_TRUE(out == six_mib().substr(4 << 20, 1 << 20));
  EXPECT_GE(s3.call_count(), 6);
}

TEST(S3StoreTest, AStalledConnectionIsGivenUpAndTriedAgain) {
  std::promise<void> over;
  const std::shared_future<void> is_over = over.get_future();
  FakeS3 s3(fault_at(0, {.before = [is_over] { is_over.wait_for(60s); }}, is_range));
  s3.put("k", "0123456789");
  S3Options options = s3.options();
  options.stall_timeout = 1s;
  std::string out(10, '?');
  ::testing::internal::CaptureStderr();
  const auto got = s3.store(options).get_range("k", "", 0, std::as_writable_bytes(std::span(out)));
  over.set_value();
  const std::string log = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(out, "0123456789");
  // Nobody should have to guess for minutes what it waits for.
  EXPECT_NE(log.find("/k: "), std::string::npos) << log;
  EXPECT_NE(log.find("asking again"), std::string::npos) << log;
}

TEST(S3StoreTest, ALocalServerThatNeverAnsweredIsAskedAFewTimesOnly) {
  const auto any = [](const S3Call&) { return true; };
  for (const bool has_answered : {false, true}) {
    Clocked s3(fault_at(has_answered ? 1 : 0, {.lose_answer = true}, any, true));
    S3Options options = s3.server.options();
    options.local_attempts_max = 2;
    options.local_advice.unreachable = "; start it";
    S3Store store = s3.server.store(options, s3.clock);
    EXPECT_EQ(bool(store.head("k")), false);
    EXPECT_EQ(s3.server.call_count(), has_answered ? 1 : 2);
    const int before = s3.server.call_count();
    const auto head = store.head("k");
    ASSERT_FALSE(head);
    EXPECT_EQ(head.error().code, Code::kUnavailable);
    EXPECT_TRUE(head.error().message.ends_with("; start it")) << head.error().message;
    // libcurl asks once more by itself where a kept connection ended.
    const int asked = s3.server.call_count() - before;
    EXPECT_EQ(asked, has_answered ? 5 : 2);
  }
}

TEST(S3StoreTest, WhatIsAskedForAgainAndAgainIsToldOnce) {
  const auto any = [](const S3Call&) { return true; };
  Clocked s3(fault_at(0, answer(503, "SlowDown"), any, true));
  S3Store store = s3.store();
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(put_text(store, "k", "x"));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(log, '\n'), 1) << log;
  EXPECT_NE(log.find("s3://bucket/k: SlowDown"), std::string::npos) << log;
  EXPECT_NE(log.find("asking again"), std::string::npos) << log;
}

TEST(S3StoreTest, NothingIsRepeatedPastTheDeadlineOfItsThread) {
  for (const std::chrono::seconds time : {0s, 3s, 20s}) {
    Clocked s3(fault_at(0, answer(503, "SlowDown"), is_range, true));
    s3.server.put("k", "0123456789");
    S3Store store = s3.store();
    std::string out(10, '?');
    {
      const RequestDeadline deadline(s3.clock.now() + time);
      const RequestDeadline later(s3.clock.now() + 1h);  // takes nothing back
      const auto got = store.get_range("k", "", 0, std::as_writable_bytes(std::span(out)));
      ASSERT_FALSE(got);
      EXPECT_EQ(got.error().code, Code::kUnavailable);
      EXPECT_LE(s3.clock.elapsed(), time);
      EXPECT_TRUE(time > 0s || s3.server.call_count() == 1) << s3.server.call_count();
    }
    EXPECT_EQ(RequestDeadline::current(), Clock::Monotonic::max());
  }
}

TEST(S3StoreTest, ASilentServerIsNotWaitedForPastTheDeadlineOfTheThread) {
  std::promise<void> over;
  const std::shared_future<void> is_over = over.get_future();
  FakeS3 s3(fault_at(0, {.before = [is_over] { is_over.wait_for(60s); }}, is_range, true));
  s3.put("k", "0123456789");
  S3Options options = s3.options();
  options.stall_timeout = 60s;
  std::string out(10, '?');
  const RequestDeadline deadline(Clock::real().now());
  const auto got = s3.store(options).get_range("k", "", 0, std::as_writable_bytes(std::span(out)));
  over.set_value();
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kDeadlineExceeded) << got.error().message;
}

TEST(S3StoreTest, AServerThatIsNotThereIsUnavailable) {
  S3Options options;
  {
    FakeS3 s3;
    options = s3.options();
  }
  FakeClock clock;
  auto service = S3Service::open(options, clock);
  ASSERT_TRUE(service);
  const auto head = S3Store(*service, "bucket").head("k");
  ASSERT_FALSE(head);
  EXPECT_EQ(head.error().code, Code::kUnavailable);
  EXPECT_NE(head.error().message.find("s3://bucket/k"), std::string::npos);
}

}  // namespace
}  // namespace yard::storage
