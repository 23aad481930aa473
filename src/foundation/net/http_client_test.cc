#include "net/http_client.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <semaphore>
#include <vector>

#include "net/http_server.h"
#include "net/testing/raw_server.h"
#include "net/testing/self_signed.h"

namespace yard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string numbered_bytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(i * 7 + i / 256);
  return bytes;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::span<std::byte> space_of(std::string& text) {
  return std::as_writable_bytes(std::span(text));
}

// A server with a few fixed answers.
class HttpClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto started = HttpServer::start(
        {}, [this](Request& request, ResponseWriter& response) { answer(request, response); });
    ASSERT_TRUE(started) << started.error().message;
    server_ = *std::move(started);
    url_ = server_->url();
  }

  void answer(Request& request, ResponseWriter& response) {
    const std::string_view path = request.path();
    if (path == "/bytes") return (void)response.send(200, content_);
    if (path == "/chunked") {
      (void)response.start(200, std::nullopt);
      return (void)response.write(content_);
    }
    if (path == "/missing") return (void)response.send(404, "an error page");
    if (path == "/headers") {
      response.headers().set("X-Empty", request.headers().value_or("X-Empty", "absent"));
      response.headers().set("X-Host", request.headers().value_or("Host", ""));
      response.headers().set("X-Type", request.headers().value_or("Content-Type", "absent"));
      response.headers().set("X-Expect", request.headers().value_or("Expect", "absent"));
      response.headers().set("X-Target", request.target());
      return (void)response.send(200);
    }
    if (path == "/refuse") return (void)response.send(403, "not read");
    if (path == "/wait") {
      waiting_.release();
      (void)request.stop_token().wait_for(seconds(30));
      return response.abort();
    }
    auto body = request.read_all(64 << 20);
    if (body) (void)response.send(200, std::string(request.method()) + " " + *body);
  }

  const std::string content_ = numbered_bytes(3'000'000);
  std::unique_ptr<HttpServer> server_;
  std::string url_;
  std::counting_semaphore<64> waiting_{0};
  HttpClient client_{{}};
};

TEST_F(HttpClientTest, ABodyFillsTheCallersBuffer) {
  for (const std::string path : {"/bytes", "/chunked"}) {
    std::string content(content_.size(), 'x');
    const auto response = client_.send({.url = url_ + path, .into = space_of(content)});
    ASSERT_TRUE(response) << response.error().message;
    EXPECT_EQ(response->status, 200);
    EXPECT_EQ(response->body_bytes, content_.size());
    EXPECT_TRUE(response->body.empty());
    EXPECT_TRUE(content == content_);
    EXPECT_GT(response->total_time.count(), 0);
    EXPECT_LE(response->first_byte_time, response->total_time);
  }
}

TEST_F(HttpClientTest, ABodyOfAnotherLengthThanTheBufferIsCorrupt) {
  for (const std::string path : {"/bytes", "/chunked"}) {
    for (const size_t size : {content_.size() - 1, content_.size() + 1, size_t{0}}) {
      std::string content(size, 'x');
      const auto response = client_.send({.url = url_ + path, .into = space_of(content)});
      ASSERT_FALSE(response);
      EXPECT_EQ(response.error().code, Code::kCorrupt);
      EXPECT_TRUE(has(response.error().message, path)) << response.error().message;
    }
  }
}

TEST_F(HttpClientTest, AnErrorPageNeverBecomesContent) {
  std::string content(13, 'x');
  const auto response = client_.send({.url = url_ + "/missing", .into = space_of(content)});
  ASSERT_TRUE(response);
  EXPECT_EQ(response->status, 404);
  EXPECT_EQ(response->body, "an error page");
  EXPECT_EQ(content, std::string(13, 'x'));
  const auto to_sink = client_.send({.url = url_ + "/missing",
                                     .sink =
                                         [](std::span<const std::byte>) {
                                           ADD_FAILURE();
                                           return SinkReply::kAbort;
                                         },
                                     .body_bytes_max = 8});
  ASSERT_TRUE(to_sink);
  EXPECT_EQ(to_sink->body, "an error");
}

TEST_F(HttpClientTest, ABodyInAStringIsBounded) {
  const auto whole = client_.send({.url = url_ + "/bytes"});
  ASSERT_TRUE(whole);
  EXPECT_TRUE(whole->body == content_);
  const auto cut = client_.send({.url = url_ + "/bytes", .body_bytes_max = content_.size() - 1});
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code, Code::kExhausted);
}

TEST_F(HttpClientTest, ASinkMayPauseAndSeesEveryByteOnce) {
  std::string got;
  std::counting_semaphore<1024> paused(0);
  bool resumed = true;  // the sink's own, on one event thread
  HttpRequest request{.url = url_ + "/bytes", .sink = [&](std::span<const std::byte> bytes) {
                        resumed = !resumed;
                        if (!resumed) {
                          paused.release();
                          return SinkReply::kPause;
                        }
                        got.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
                        return SinkReply::kTaken;
                      }};
  std::promise<void> over;
  auto transfer = client_.start(std::move(request), [&](Result<HttpResponse> response) {
    EXPECT_TRUE(response && response->body_bytes == content_.size());
    over.set_value();
    paused.release();
  });
  while (!transfer.done()) {
    paused.acquire();
    transfer.resume();
  }
  over.get_future().get();
  EXPECT_TRUE(got == content_);
}

TEST_F(HttpClientTest, ASinkMayEndTheTransfer) {
  const auto response =
      client_.send({.url = url_ + "/bytes",
                    .sink = [](std::span<const std::byte>) { return SinkReply::kAbort; }});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().code, Code::kCancelled);
}

TEST_F(HttpClientTest, TheHeadIsSeenBeforeTheBodyAndMayEndIt) {
  std::string content(content_.size(), 'x');
  const auto response = client_.send({.url = url_ + "/bytes",
                                      .into = space_of(content),
                                      .on_head = [&](const ResponseHead& head) -> Status {
                                        EXPECT_EQ(head.status, 200);
                                        EXPECT_EQ(head.headers.find("content-length"), "3000000");
                                        return Error{Code::kCorrupt, "another object"};
                                      }});
  ASSERT_FALSE(response);
  EXPECT_TRUE(has(response.error().message, "another object"));
  EXPECT_EQ(content, std::string(content_.size(), 'x'));
}

TEST_F(HttpClientTest, BodiesOfEverySizeArrive) {
  for (const size_t size : {0, 1, 100, 16 << 10, (16 << 10) + 1, 5'000'000}) {
    const std::string body = numbered_bytes(size);
    for (const std::string method : {"PUT", "POST", "DELETE"}) {
      const auto response =
          client_.send({.method = method, .url = url_ + "/echo", .body = bytes_of(body)});
      ASSERT_TRUE(response) << response.error().message;
      EXPECT_TRUE(response->body == method + " " + body) << method << size;
    }
  }
}

TEST_F(HttpClientTest, AReaderGivesTheBody) {
  const std::string body = numbered_bytes(1'000'000);
  for (const bool expect_continue : {false, true}) {
    const auto response = client_.send(
        {.method = "PUT",
         .url = url_ + "/echo",
         .body_reader = [&](uint64_t offset, std::span<std::byte> into) -> Result<size_t> {
           const size_t bytes = std::min<size_t>({into.size(), body.size() - offset, 1000});
           std::memcpy(into.data(), body.data() + offset, bytes);
           return bytes;
         },
         .body_reader_bytes = body.size(),
         .expect_continue = expect_continue});
    ASSERT_TRUE(response) << response.error().message;
    EXPECT_TRUE(response->body == "PUT " + body);
  }
  for (const bool at_end : {false, true}) {
    const auto failed =
        client_.send({.method = "PUT",
                      .url = url_ + "/echo",
                      .body_reader = [&](uint64_t, std::span<std::byte>) -> Result<size_t> {
                        if (at_end) return size_t{0};
                        return Error{Code::kNotFound, "the file is gone"};
                      },
                      .body_reader_bytes = 10});
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, at_end ? Code::kCorrupt : Code::kNotFound);
  }
}

TEST_F(HttpClientTest, ARefusalWithoutContinueSparesTheBody) {
  const std::string body(5'000'000, 'x');
  const auto response = client_.send(
      {.method = "PUT", .url = url_ + "/refuse", .body = bytes_of(body), .expect_continue = true});
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(response->status, 403);
  EXPECT_EQ(response->body, "not read");
}

TEST_F(HttpClientTest, HeadersAndTargetGoOutAsGiven) {
  const auto plain =
      client_.send({.method = "PUT",
                    .url = url_ + "/headers?a=%2F",
                    .headers = {{"X-Empty", ""}, {"Host", "elsewhere"}, {"Content-Length", "7"}},
                    .body = bytes_of("x")});
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->headers.find("X-Empty"), "");
  EXPECT_EQ(plain->headers.find("X-Host"), "elsewhere");
  EXPECT_EQ(plain->headers.find("X-Type"), "absent");
  EXPECT_EQ(plain->headers.find("X-Expect"), "absent");
  EXPECT_EQ(plain->headers.find("X-Target"), "/headers?a=%2F");
}

TEST_F(HttpClientTest, DotsInAPathAreSentAsTheyAre) {
  const auto response = client_.send({.method = "PUT", .url = url_ + "/bytes/../echo"});
  ASSERT_TRUE(response);
  EXPECT_EQ(response->body, "PUT ");  // not content, which /bytes would have been
}

TEST_F(HttpClientTest, WhatCannotBeSentIsAnInvalidArgument) {
  const HttpRequest bad[] = {
      {.url = "ftp://host/"},
      {.url = "file:///etc/passwd"},
      {.url = ""},
      {.url = "http://"},
      {.method = "GE T", .url = url_},
      {.url = url_, .headers = {{"A", "b\r\nC: d"}}},
      {.url = url_, .headers = {{"A b", "c"}}},
      {.url = url_, .headers = {{"Transfer-Encoding", "chunked"}}},
  };
  for (const HttpRequest& request : bad) {
    const auto response = client_.send(request);
    ASSERT_FALSE(response) << request.url;
    EXPECT_EQ(response.error().code, Code::kInvalidArgument) << response.error().message;
  }
}

TEST_F(HttpClientTest, AHeadRequestHasNoBody) {
  const auto response = client_.send({.method = "HEAD", .url = url_ + "/bytes"});
  ASSERT_TRUE(response);
  EXPECT_EQ(response->headers.find("Content-Length"), "3000000");
  EXPECT_EQ(response->body, "");
}

TEST_F(HttpClientTest, AConnectionIsUsedAgain) {
  EXPECT_FALSE(client_.send({.url = url_ + "/headers"})->reused_connection);
  for (int i = 0; i < 10; ++i)
    EXPECT_TRUE(client_.send({.url = url_ + "/headers"})->reused_connection);
}

TEST_F(HttpClientTest, HundredsOfTransfersRunAtOnce) {
  HttpClient client({.thread_count = 2, .connections_per_host_max = 32});
  std::vector<std::string> contents(300, std::string(content_.size() / 10, 'x'));
  std::vector<Transfer> transfers;
  const std::string body = content_.substr(0, content_.size() / 10 - 4);
  for (std::string& content : contents)
    transfers.push_back(client.start({.method = "PUT",
                                      .url = url_ + "/echo",
                                      .body = bytes_of(body),
                                      .into = space_of(content)}));
  for (Transfer& transfer : transfers) {
    const auto response = transfer.wait();
    EXPECT_TRUE(response) << response.error().message;
  }
  for (const std::string& content : contents) EXPECT_TRUE(content == "PUT " + body);
}

// ---- ends before the end

TEST_F(HttpClientTest, NobodyThereIsUnavailable) {
  std::string url = url_ + "/?secret=1";
  url.insert(std::strlen("http://"), "user:password@");
  server_->stop(milliseconds(0));
  const auto response = client_.send({.url = url});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().code, Code::kUnavailable);
  EXPECT_TRUE(has(response.error().message, "GET " + url_ + "/: ")) << response.error().message;
  EXPECT_FALSE(has(response.error().message, "secret"));
}

TEST_F(HttpClientTest, AStopTokenEndsTransfersBeforeAndWhileTheyRun) {
  StopSource stop;
  std::vector<Transfer> transfers;
  for (int i = 0; i < 3; ++i)
    transfers.push_back(client_.start({.url = url_ + "/wait", .stop = stop.token()}));
  for (int i = 0; i < 3; ++i) waiting_.acquire();
  stop.request();
  for (Transfer& transfer : transfers) EXPECT_EQ(transfer.wait().error().code, Code::kCancelled);
  const auto late = client_.send({.url = url_ + "/headers", .stop = stop.token()});
  EXPECT_EQ(late.error().code, Code::kCancelled);
}

TEST_F(HttpClientTest, ADroppedTransferLetsGoOfItsBufferAndIsNotCompleted) {
  {
    std::string content(10, 'x');
    auto transfer = client_.start({.url = url_ + "/wait", .into = space_of(content)},
                                  [](Result<HttpResponse>) { ADD_FAILURE(); });
    waiting_.acquire();
  }
  {
    std::string content(content_.size(), 'x');  // freed while bytes arrive
    auto transfer = client_.start({.url = url_ + "/bytes", .into = space_of(content)});
  }
  EXPECT_TRUE(client_.send({.url = url_ + "/headers"}));
}

TEST_F(HttpClientTest, CancelEndsATransferOnce) {
  auto transfer = client_.start({.url = url_ + "/wait"});
  waiting_.acquire();
  transfer.cancel();
  transfer.cancel();
  EXPECT_EQ(transfer.wait().error().code, Code::kCancelled);
  EXPECT_TRUE(transfer.done());
  transfer.cancel();
}

TEST_F(HttpClientTest, ACompletionMayDropItsOwnTransferAndStartAnother) {
  std::promise<int> second_status;
  Transfer second;
  auto first = std::make_unique<Transfer>();
  std::binary_semaphore stored(0);
  *first = client_.start({.url = url_ + "/headers"}, [&](Result<HttpResponse>) {
    stored.acquire();
    first.reset();
    second = client_.start({.url = url_ + "/missing"}, [&](Result<HttpResponse> response) {
      second_status.set_value(response ? response->status : 0);
    });
  });
  stored.release();
  EXPECT_EQ(second_status.get_future().get(), 404);
}

TEST_F(HttpClientTest, TheEndOfAClientEndsItsTransfers) {
  auto client = std::make_unique<HttpClient>(HttpClientOptions{});
  std::promise<Code> seen;
  auto transfer = client->start({.url = url_ + "/wait"}, [&](Result<HttpResponse> response) {
    seen.set_value(response ? Code::kInternal : response.error().code);
  });
  waiting_.acquire();
  client.reset();
  EXPECT_EQ(seen.get_future().get(), Code::kCancelled);
  EXPECT_TRUE(transfer.done());
}

TEST_F(HttpClientTest, ATransferThatTakesTooLongIsADeadline) {
  const auto response = client_.send({.url = url_ + "/wait", .total_timeout = milliseconds(30)});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().code, Code::kDeadlineExceeded) << response.error().message;
}

TEST_F(HttpClientTest, ATransferThatIsTooSlowIsADeadline) {
  const auto response = client_.send(
      {.url = url_ + "/wait", .low_speed_bytes_per_second = 1000, .low_speed_time = seconds(1)});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().code, Code::kDeadlineExceeded) << response.error().message;
}

// ---- servers that misbehave

TEST(HttpClientFaults, AResponseCutShortOrResetIsUnavailable) {
  for (const std::string_view answer :
       {"", "HTTP/1.1 200 OK\r\nContent-Le", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc"}) {
    for (const auto end : {RawServer::End::kClose, RawServer::End::kReset}) {
      RawServer server(answer, end);
      HttpClient client({});
      std::string content(10, 'x');
      const auto response = client.send({.url = server.url(), .into = space_of(content)});
      ASSERT_FALSE(response) << answer;
      EXPECT_EQ(response.error().code, Code::kUnavailable) << response.error().message;
    }
  }
}

TEST(HttpClientFaults, WhatIsNotHttpIsCorrupt) {
  RawServer server("220 mail ESMTP\r\n", RawServer::End::kClose);
  HttpClient client({});
  const auto response = client.send({.url = server.url()});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().code, Code::kCorrupt) << response.error().message;
}

TEST(HttpClientFaults, AnInterimHeadIsNotTheResponse) {
  RawServer server(
      "HTTP/1.1 103 Early Hints\r\nA: 1\r\n\r\n"
      "HTTP/1.1 200 OK\r\nB:  2 \r\nContent-Length: 2\r\n\r\nok",
      RawServer::End::kClose);
  HttpClient client({});
  const auto response = client.send({.url = server.url()});
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_FALSE(response->headers.contains("A"));
  EXPECT_EQ(response->headers.find("B"), "2");
  EXPECT_EQ(response->body, "ok");
}

// ---- TLS

TEST(HttpClientTls, ARoundTripIsVerifiedAgainstTheGivenCertificate) {
  const SelfSignedCertificate certificate(::testing::TempDir());
  const std::string content = numbered_bytes(1'000'000);
  auto server = HttpServer::start({.tls_certificate_path = certificate.certificate_path(),
                                   .tls_key_path = certificate.key_path()},
                                  [&](Request& request, ResponseWriter& response) {
                                    EXPECT_TRUE(request.is_tls());
                                    auto body = request.read_all(16 << 20);
                                    if (body) (void)response.send(200, *body);
                                  });
  ASSERT_TRUE(server) << server.error().message;
  HttpClient trusting({.ca_path = certificate.certificate_path()});
  for (int i = 0; i < 3; ++i) {
    std::string back(content.size(), 'x');
    const auto response = trusting.send({.method = "PUT",
                                         .url = (*server)->url(),
                                         .body = bytes_of(content),
                                         .into = space_of(back)});
    ASSERT_TRUE(response) << response.error().message;
    EXPECT_TRUE(back == content);
    EXPECT_EQ(response->reused_connection, i > 0);
  }
  HttpClient careful({});
  const auto refused = careful.send({.url = (*server)->url()});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument) << refused.error().message;
  HttpClient careless({.verify_tls = false});
  EXPECT_TRUE(careless.send({.url = (*server)->url()}));
}

TEST(HttpClientTls, AFileIsSentOverTls) {
  const SelfSignedCertificate certificate(::testing::TempDir());
  const UniqueFd file(::open(certificate.certificate_path().c_str(), O_RDONLY | O_CLOEXEC));
  const std::string content = *read_file(certificate.certificate_path());
  auto server =
      HttpServer::start({.tls_certificate_path = certificate.certificate_path(),
                         .tls_key_path = certificate.key_path()},
                        [&](Request&, ResponseWriter& response) {
                          (void)response.send_file(200, file.get(), 3, content.size() - 3);
                        });
  ASSERT_TRUE(server);
  HttpClient client({.ca_path = certificate.certificate_path()});
  const auto response = client.send({.url = (*server)->url()});
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(response->body, content.substr(3));
}

TEST(HttpClientTls, PlainHttpToATlsPortAndTheOtherWayRoundFail) {
  const SelfSignedCertificate certificate(::testing::TempDir());
  const auto ok = [](Request&, ResponseWriter& response) { (void)response.send(200); };
  auto tls = HttpServer::start({.tls_certificate_path = certificate.certificate_path(),
                                .tls_key_path = certificate.key_path()},
                               ok);
  auto plain = HttpServer::start({}, ok);
  ASSERT_TRUE(tls && plain);
  HttpClient client({.verify_tls = false});
  EXPECT_FALSE(client.send({.url = "http" + (*tls)->url().substr(5)}));
  EXPECT_FALSE(client.send({.url = "https" + (*plain)->url().substr(4)}));
}

TEST(HttpClientTls, KeyAndCertificateThatDoNotFitAreAnInvalidArgument) {
  const SelfSignedCertificate one(::testing::TempDir());
  const SelfSignedCertificate other(::testing::TempDir());
  const std::pair<std::string, std::string> pairs[] = {
      {one.certificate_path(), other.key_path()},
      {one.certificate_path(), ""},
      {"", one.key_path()},
      {one.key_path(), one.key_path()},
      {"/no/such/file", one.key_path()},
  };
  for (const auto& [certificate, key] : pairs) {
    const auto server =
        HttpServer::start({.tls_certificate_path = certificate, .tls_key_path = key},
                          [](Request&, ResponseWriter&) {});
    ASSERT_FALSE(server);
    EXPECT_EQ(server.error().code, Code::kInvalidArgument) << server.error().message;
  }
}

}  // namespace
}  // namespace yard
