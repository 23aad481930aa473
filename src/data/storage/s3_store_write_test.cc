// How S3Store writes, signs and names things when the server or the network misbehaves.
#include <gtest/gtest.h>

#include <atomic>
#include <set>

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
using testing::S3Call;
using testing::S3Fault;

// ---- writing

TEST(S3StoreTest, APutWhoseBytesBrokeOnTheWayIsTriedAgain) {
  for (const char* code : {"BadDigest", "IncompleteBody"}) {
    Clocked s3(fault_at(0, answer(400, code), [](const S3Call&) { return true; }));
    S3Store store = s3.store();
    EXPECT_TRUE(put_text(store, "k", "x")) << code;
    EXPECT_EQ(s3.server.content("k"), "x");
    EXPECT_EQ(s3.server.call_count(), 2);
  }
}

TEST(S3StoreTest, AConditionalPutWhoseAnswerWasLostIsStillOurs) {
  Clocked s3(fault_at(0, {.lose_answer = true}, [](const S3Call&) { return true; }));
  S3Store store = s3.store();
  const auto info = put_text(store, "lock", "mine", {.if_absent = true});
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(s3.server.content("lock"), "mine");
}

TEST(S3StoreTest, AConditionalPutThatAnotherWonIsNotOursAlthoughTriedTwice) {
  Clocked s3(fault_at(0, answer(503, "SlowDown"), [](const S3Call&) { return true; }));
  s3.server.put("lock", "mine");  // of another writer, with the same content
  S3Store store = s3.store();
  const auto info = put_text(store, "lock", "mine", {.if_absent = true});
  ASSERT_FALSE(info);
  EXPECT_EQ(info.error().code, Code::kInvalidArgument);
}

S3Options small_parts(const FakeS3& server) {
  S3Options options = server.options();
  options.part_bytes = 1000;
  options.upload_memory_bytes = 5000;
  return options;
}

TEST(S3StoreTest, AnUploadOfManyPartsArrivesWhole) {
  FakeS3 s3;
  S3Store store = s3.store(small_parts(s3));
  const std::string content = bytes_text(61'234);
  for (const size_t step : {1UL, 999UL, 1000UL, 1001UL, 100'000UL}) {
    auto upload = store.upload("k");
    ASSERT_TRUE(upload);
    for (size_t at = 0; at < content.size(); at += step)
      ASSERT_TRUE(
          (*upload)->write(bytes(content).subspan(at, std::min(step, content.size() - at))));
    const auto info = (*upload)->commit();
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_EQ(info->size_bytes, content.size());
    EXPECT_TRUE(info->etag.ends_with("-62")) << info->etag;
    EXPECT_EQ(s3.content("k"), content);
    EXPECT_EQ(*get_all(store, "k"), content);
  }
  EXPECT_EQ(s3.open_upload_count(), 0U);
}

TEST(S3StoreTest, ManyUploadsShareALittleMemoryWithoutWaitingForEachOther) {
  FakeS3 s3;
  S3Store store = s3.store(small_parts(s3));
  const std::string content = bytes_text(10'000);
  // All are begun before any goes on, each with its first part full.
  std::vector<std::unique_ptr<Upload>> uploads;
  for (int i = 0; i < 20; ++i) {
    uploads.push_back(*store.upload("k" + std::to_string(i)));
    ASSERT_TRUE(uploads.back()->write(bytes(content).first(1000)));
  }
  for (auto& upload : uploads) ASSERT_TRUE(upload->write(bytes(content).subspan(1000)));
  for (auto& upload : uploads) ASSERT_TRUE(upload->commit());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(s3.content("k" + std::to_string(i)), content);
}

bool is_part(const S3Call& call) {
  return call.query.find("partNumber") != call.query.npos;
}

TEST(S3StoreTest, APartThatFailsOnceIsSentAgain) {
  FakeClock clock;
  for (const S3Fault& fault : {answer(503, "SlowDown"), S3Fault{.lose_answer = true}}) {
    FakeS3 s3(fault_at(3, fault, is_part), clock);
    S3Store store = s3.store(small_parts(s3), clock);
    auto upload = store.upload("k");
    const std::string content = bytes_text(10'500);
    ASSERT_TRUE((*upload)->write(bytes(content)));
    ASSERT_TRUE((*upload)->commit());
    EXPECT_EQ(s3.content("k"), content);
  }
}

RangeReader reader_of(const std::string& content, size_t start = 0) {
  return [&content, start](uint64_t offset, std::span<std::byte> into) -> Status {
    std::ranges::copy(bytes(content).subspan(start + offset, into.size()), into.begin());
    return Ok{};
  };
}

TEST(S3StoreTest, AnUploadThatReadsForItselfArrivesWholeWhereverItsPartsBegin) {
  for (const auto& [signing, takes_trailers] :
       {std::pair(S3BodySigning::kNever, false), std::pair(S3BodySigning::kNever, true),
        std::pair(S3BodySigning::kAlways, true)})
    for (const size_t size : {1UL, 999UL, 1000UL, 1001UL, 2000UL, 41'234UL})
      for (const size_t written_before : {0UL, 1UL, 999UL, 1000UL}) {
        if (written_before > size) continue;
        FakeS3 s3;
        if (takes_trailers) s3.take_trailers();
        S3Options options = small_parts(s3);
        options.body_signing = signing;
        S3Store store = s3.store(options);
        const std::string content = bytes_text(size);
        auto upload = store.upload("k");
        ASSERT_TRUE((*upload)->write(bytes(content).first(written_before)));
        ASSERT_TRUE((*upload)->write_from(size - written_before, reader_of(content, written_before),
                                          nullptr));
        const auto info = (*upload)->commit();
        ASSERT_TRUE(info) << info.error().message;
        EXPECT_EQ(info->size_bytes, size);
        EXPECT_TRUE(s3.content("k") == content) << size << " " << written_before;
        // What fits into a part costs one request.
        EXPECT_EQ(s3.call_count() == 1, size <= 1000);
      }
}

TEST(S3StoreTest, APartSentFromWhereItIsReadIsReadAgainWhenItIsSentAgain) {
  FakeClock clock;
  for (const auto& [fault, takes_trailers] :
       {std::pair(answer(503, "SlowDown"), false), std::pair(answer(503, "SlowDown"), true),
        std::pair(S3Fault{.lose_answer = true}, false),
        std::pair(S3Fault{.lose_answer = true}, true)}) {
    FakeS3 s3(fault_at(3, fault, is_part), clock);
    if (takes_trailers) s3.take_trailers();
    S3Store store = s3.store(small_parts(s3), clock);
    auto upload = store.upload("k");
    const std::string content = bytes_text(10'500);
    ASSERT_TRUE((*upload)->write_from(content.size(), reader_of(content), nullptr));
    ASSERT_TRUE((*upload)->commit());
    EXPECT_TRUE(s3.content("k") == content);
  }
}

// A byte of the fourth part is another one each time that it is read.
TEST(S3StoreTest, APartThatChangesBetweenSumAndSendingIsNeverStored) {
  FakeClock clock;
  FakeS3 s3(nullptr, clock);
  std::atomic<int> times_read = 0;
  {
    S3Store store = s3.store(small_parts(s3), clock);
    const std::string content = bytes_text(10'000);
    const RangeReader read = [&](uint64_t offset, std::span<std::byte> into) -> Status {
      YARD_TRY(reader_of(content)(offset, into));
      if (offset <= 3500 && offset + into.size() > 3500)
        into[3500 - offset] = std::byte(++times_read);
      return Ok{};
    };
    auto upload = store.upload("k");
    Status sent = (*upload)->write_from(content.size(), read, nullptr);
    if (sent) {
      if (auto info = (*upload)->commit(); !info) sent = std::move(info).error();
    }
    ASSERT_FALSE(sent);
    EXPECT_EQ(sent.error().code, Code::kCorrupt) << sent.error().message;
  }
  EXPECT_GE(times_read, 2);
  EXPECT_EQ(s3.content("k"), "");
  EXPECT_EQ(s3.open_upload_count(), 0U);
}

TEST(S3StoreTest, WhereTheServerTakesTrailersAPartIsReadOnce) {
  FakeS3 s3;
  s3.take_trailers();
  S3Store store = s3.store(small_parts(s3));
  const std::string content = bytes_text(10'000);
  std::atomic<uint64_t> read_bytes = 0;
  const RangeReader read = [&](uint64_t offset, std::span<std::byte> into) {
    read_bytes += into.size();
    return reader_of(content)(offset, into);
  };
  auto upload = store.upload("k");
  ASSERT_TRUE((*upload)->write_from(content.size(), read, nullptr));
  ASSERT_TRUE((*upload)->commit());
  EXPECT_TRUE(s3.content("k") == content);
  EXPECT_EQ(read_bytes, content.size());
}

// Its part is summed, and then cannot be read: that is no fault of the network.
TEST(S3StoreTest, AReaderThatFailsWhileItsPartIsSentEndsTheUploadAtOnce) {
  FakeClock clock;
  FakeS3 s3(nullptr, clock);
  std::atomic<int> times_read = 0;
  {
    S3Store store = s3.store(small_parts(s3), clock);
    const std::string content = bytes_text(1500);
    const RangeReader read = [&](uint64_t offset, std::span<std::byte> into) -> Status {
      if (offset == 0 && ++times_read > 1)
        return Error{Code::kCorrupt, "the file changed while it was read"};
      return reader_of(content)(offset, into);
    };
    auto upload = store.upload("k");
    ASSERT_TRUE((*upload)->write_from(content.size(), read, nullptr));
    const auto info = (*upload)->commit();
    ASSERT_FALSE(info);
    EXPECT_NE(info.error().message.find("the file changed"), std::string::npos)
        << info.error().message;
  }
  EXPECT_EQ(times_read, 2);
  EXPECT_EQ(s3.content("k"), "");
  EXPECT_EQ(s3.open_upload_count(), 0U);
}

TEST(S3StoreTest, AnUploadWithAPartThatIsRefusedFailsAndLeavesNothing) {
  FakeS3 s3(fault_at(3, answer(403, "AccessDenied"), is_part, true));
  {
    S3Store store = s3.store(small_parts(s3));
    auto upload = store.upload("k");
    const std::string content = bytes_text(50'000);
    auto written = (*upload)->write(bytes(content));
    if (written)
      written = (*upload)->commit() ? Status(Ok{}) : Status(Error{Code::kInvalidArgument, ""});
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().code, Code::kInvalidArgument);
  }
  EXPECT_EQ(s3.content("k"), "");
  EXPECT_EQ(s3.open_upload_count(), 0U);
}

TEST(S3StoreTest, ADroppedUploadIsAbortedOnTheServer) {
  FakeS3 s3;
  {
    S3Store store = s3.store(small_parts(s3));
    auto upload = store.upload("k");
    ASSERT_TRUE((*upload)->write(bytes(bytes_text(5000))));
  }
  EXPECT_EQ(s3.open_upload_count(), 0U);
  EXPECT_EQ(s3.content("k"), "");
}

TEST(S3StoreTest, AnUploadThatCannotBeAbortedIsToldWithWhatRemovesIt) {
  const auto is_abort = [](const S3Call& call) { return call.method == "DELETE"; };
  FakeS3 s3(fault_at(0, answer(403, "AccessDenied"), is_abort, true));
  ::testing::internal::CaptureStderr();
  {
    S3Store store = s3.store(small_parts(s3));
    auto upload = store.upload("dir/k");
    ASSERT_TRUE((*upload)->write(bytes(bytes_text(5000))));
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(s3.open_upload_count(), 1U);
  EXPECT_NE(log.find("yard s3 uploads 's3://bucket/dir/k'"), std::string::npos) << log;
}

TEST(S3StoreTest, TheEndOfAnUploadWhoseAnswerWasLostIsFoundOut) {
  const auto is_end = [](const S3Call& call) {
    return call.method == "POST" && call.query.starts_with("uploadId");
  };
  FakeClock clock;
  FakeS3 s3(fault_at(0, {.lose_answer = true}, is_end), clock);
  S3Store store = s3.store(small_parts(s3), clock);
  auto upload = store.upload("k");
  const std::string content = bytes_text(5000);
  ASSERT_TRUE((*upload)->write(bytes(content)));
  const auto info = (*upload)->commit();
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(s3.content("k"), content);
}

TEST(S3StoreTest, AnErrorWithStatus200IsAnError) {
  const auto is_end = [](const S3Call& call) {
    return call.method == "POST" && call.query.starts_with("uploadId");
  };
  FakeClock clock;
  FakeS3 once(fault_at(0, answer(200, "InternalError"), is_end), clock);
  S3Store store = once.store(small_parts(once), clock);
  auto upload = store.upload("k");
  ASSERT_TRUE((*upload)->write(bytes(bytes_text(5000))));
  EXPECT_TRUE((*upload)->commit());

  FakeS3 copy(fault_at(
                  0, answer(200, "InternalError"),
                  [](const S3Call& call) { return call.method == "PUT"; }, true),
              clock);
  copy.put("a", "x");
  const auto copied = copy.store(copy.options(), clock).copy("a", "b", {});
  ASSERT_FALSE(copied);
  EXPECT_EQ(copied.error().code, Code::kUnavailable);
}

// ---- credentials, time, regions, retries

TEST(S3StoreTest, AClockThatIsWrongIsPutRightByTheServersDate) {
  FakeS3 s3;        // of today
  FakeClock clock;  // of another month
  S3Store store = s3.store(s3.options(), clock);
  ASSERT_TRUE(put_text(store, "k", "x"));
  EXPECT_EQ(s3.call_count(), 2);
  EXPECT_TRUE(store.head("k"));  // by a method whose refusals have no body
  EXPECT_EQ(s3.call_count(), 3);
  FakeClock other;
  EXPECT_TRUE(s3.store(s3.options(), other).head("k"));
}

TEST(S3StoreTest, AWrongKeyIsRefusedAtOnce) {
  FakeS3 s3;
  S3Options options = s3.options();
  options.credentials->secret_key = "wrong";
  options.local_advice.refused_keys = "; the right ones";
  const auto put = put_text(*std::make_unique<S3Store>(s3.store(options)), "k", "x");
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, Code::kInvalidArgument);
  EXPECT_NE(put.error().message.find("SignatureDoesNotMatch"), std::string::npos);
  EXPECT_TRUE(put.error().message.ends_with("; the right ones")) << put.error().message;
  EXPECT_EQ(s3.call_count(), 1);
}

TEST(S3StoreTest, ExpiredCredentialsAreFetchedAnewOnce) {
  for (const bool forever : {false, true}) {
    Clocked s3(fault_at(
        0, answer(400, "ExpiredToken"), [](const S3Call&) { return true; }, forever));
    S3Store store = s3.store();
    EXPECT_EQ(put_text(store, "k", "x").has_value(), !forever);
    EXPECT_EQ(s3.server.call_count(), 2);
  }
}

TEST(S3StoreTest, TheRegionOfTheBucketIsToldWhenItIsAnother) {
  for (const S3Fault& fault :
       {S3Fault{.status = 301, .headers = {{"x-amz-bucket-region", "eu-west-1"}}},
        S3Fault{.status = 400,
        .body = "<Error><Code>AuthorizationHeaderMalformed</Code>"
                "<Region>eu-west-1</Region></Error>"}}) {
    Clocked s3([&](const S3Call&) { return fault; });
    const auto list = s3.store().list({});
    ASSERT_FALSE(list);
    EXPECT_EQ(list.error().code, Code::kInvalidArgument);
    EXPECT_NE(list.error().message.find("AWS_REGION=eu-west-1"), std::string::npos)
        << list.error().message;
  }
}

TEST(S3StoreTest, RetryAfterIsWaitedFor) {
  S3Fault busy = answer(503, "SlowDown");
  busy.headers = {{"Retry-After", "7"}};
  Clocked s3(fault_at(0, busy, [](const S3Call&) { return true; }));
  s3.server.put("k", "x");
  EXPECT_TRUE(s3.store().head("k"));
  EXPECT_GE(s3.clock.elapsed(), 7s);
  EXPECT_LT(s3.clock.elapsed(), 8s);
}

TEST(S3StoreTest, TheBudgetOfRetriesIsOfAllRequestsTogether) {
  FakeClock clock;
  FakeS3 s3([](const S3Call&) { return answer(503, "SlowDown"); }, clock);
  S3Options options = s3.options();
  options.retry = {.attempts_max = 4, .budget_max = 20, .retry_cost = 5};
  S3Store store = s3.store(options, clock);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(store.head("k"));
  EXPECT_EQ(s3.call_count(), 10 + 4);
}

TEST(S3StoreTest, AnonymousRequestsAreNotSigned) {
  bool was_signed = true;
  FakeS3 s3([&](const S3Call& call) -> S3Fault {
    was_signed = call.headers->contains("Authorization");
    return {.status = 200, .body = "x"};
  });
  S3Options options = s3.options();
  options.anonymous = true;
  std::string out(1, '?');
  EXPECT_TRUE(s3.store(options).get_range("k", "", 0, std::as_writable_bytes(std::span(out))));
  EXPECT_FALSE(was_signed);
}

TEST(S3StoreTest, BodiesAreSignedWhenAsked) {
  for (const auto& [signing, is_signed] :
       {std::pair(S3BodySigning::kAlways, true), std::pair(S3BodySigning::kAuto, false)}) {
    std::string hash;
    FakeS3 s3([&](const S3Call& call) -> S3Fault {
      hash = call.headers->value_or("x-amz-content-sha256", "");
      return {};
    });
    S3Options options = s3.options();
    options.body_signing = signing;
    EXPECT_TRUE(put_text(*std::make_unique<S3Store>(s3.store(options)), "k", "x"));
    EXPECT_EQ(hash, is_signed ? sha256_hex("x") : std::string(kUnsignedPayload));
  }
}

TEST(S3StoreTest, AStopEndsRequestsAndRetries) {
  StopSource stop;
  FakeClock clock;
  FakeS3 s3(
      [&](const S3Call&) -> S3Fault {
        stop.request();
        return answer(503, "SlowDown");
      },
      clock);
  S3Options options = s3.options();
  options.stop = stop.token();
  S3Store store = s3.store(options, clock);
  EXPECT_FALSE(store.head("k"));
  EXPECT_EQ(store.head("k").error().code, Code::kCancelled);
  EXPECT_EQ(s3.call_count(), 1);
}

// ---- keys

TEST(S3StoreTest, OddKeysAreListedReadAndRemovedRight) {
  FakeS3 s3;
  S3Options options = s3.options();
  options.any_key = true;
  S3Store store = s3.store(options);
  const std::vector<std::string> keys = {
      " ",   "a b+c",  "a%20b",  "a&b<c>\"'",      "a/",       "a//b",           "../x",
      "./y", "=?#;:@", "é/漢字", "ends with dot.", "\x01\x1f", "tab\tnew\nline", "~-._!*()"};
  std::set<std::string> wanted;
  for (const std::string& key : keys) {
    ASSERT_TRUE(put_text(store, key, key)) << key;
    EXPECT_EQ(s3.content(key), key);
    EXPECT_EQ(*get_all(store, key), key);
    wanted.insert(key);
  }
  const auto list = list_all(store, "");
  ASSERT_TRUE(list) << list.error().message;
  std::set<std::string> listed;
  for (const ObjectInfo& info : *list) listed.insert(info.key);
  EXPECT_EQ(listed, wanted);
  EXPECT_TRUE(store.copy("a b+c", "copy of é+", {}));
  EXPECT_EQ(s3.content("copy of é+"), "a b+c");
  std::vector<std::string> all = keys;
  all.push_back("copy of é+");
  EXPECT_TRUE(store.remove_all(all));
  EXPECT_TRUE(list_all(store, "")->empty());
}

TEST(S3StoreTest, ElevenHundredObjectsAreListedAndRemoved) {
  FakeS3 s3;
  std::vector<std::string> keys;
  for (int i = 0; i < 1100; ++i) {
    keys.push_back("p/" + std::to_string(10'000 + i));
    s3.put(keys.back(), "");
  }
  S3Store store = s3.store();
  const auto list = list_all(store, "p/");
  ASSERT_TRUE(list);
  ASSERT_EQ(list->size(), 1100U);
  for (size_t i = 0; i < 1100; ++i) EXPECT_EQ((*list)[i].key, keys[i]);
  EXPECT_TRUE(store.remove_all(keys));
  EXPECT_TRUE(list_all(store, "")->empty());
}

TEST(S3StoreTest, APartListOfAServersThatIsNoXmlIsCorrupt) {
  for (const char* body : {"", "<html></html>", "{}", "<ListBucketResult><Contents></Contents>",
                           "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
                           "<ListBucketResult><Contents><Key>a</Key><Size>-1</Size></Contents>"
                           "</ListBucketResult>"}) {
    Clocked s3([&](const S3Call&) -> S3Fault { return {.status = 200, .body = body}; });
    const auto list = s3.store().list({});
    ASSERT_FALSE(list) << body;
    EXPECT_EQ(list.error().code, Code::kCorrupt) << body;
  }
}

TEST(S3StoreTest, BucketsAreListedAndAMissingOneIsNotFound) {
  FakeS3 s3;
  auto service = S3Service::open(s3.options());
  ASSERT_TRUE(service);
  EXPECT_EQ(*(*service)->list_buckets(), std::vector<std::string>{"bucket"});
  EXPECT_EQ(S3Store(*service, "other").list({}).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace yard::storage
