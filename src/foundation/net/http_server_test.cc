#include "net/http_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <semaphore>
#include <stdexcept>
#include <thread>

#include "net/testing/raw_client.h"

namespace yard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::string_view kGet = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// A temporary file that has no name.
UniqueFd sparse_file(uint64_t size_bytes) {
  std::string path = ::testing::TempDir() + "net_test_XXXXXX";
  UniqueFd fd(::mkstemp(path.data()));
  ::unlink(path.c_str());
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size_bytes)), 0);
  return fd;
}

// Says what it was asked: method, target and body.
void echo(Request& request, ResponseWriter& response) {
  auto body = request.read_all(1 << 20);
  if (!body) return;
  (void)response.send(200, std::string(request.method()) + " " + std::string(request.target()) +
                               " [" + *body + "]");
}

std::unique_ptr<HttpServer> serve(ServerOptions options, HttpHandler handler) {
  auto server = HttpServer::start(options, std::move(handler));
  EXPECT_TRUE(server) << server.error().message;
  return *std::move(server);
}

// What a server with these options says to bytes that are no request it takes, and that it closes.
std::string refusal(std::string_view bytes, ServerOptions options = {}) {
  const auto server = serve(options, [](Request&, ResponseWriter& response) {
    ADD_FAILURE() << "the handler was asked";
    (void)response.send(200);
  });
  RawClient client(server->port());
  client.say(bytes);
  const std::string answer = client.rest();
  EXPECT_TRUE(client.ended());
  EXPECT_TRUE(has(answer, "Connection: close\r\n")) << answer;
  return answer.substr(0, 12);
}

TEST(HttpServer, ASmallResponseCarriesItsLengthAndDate) {
  const auto server = serve({}, echo);
  RawClient client(server->port());
  client.say("PUT /a%20b?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
  const std::string answer = client.response();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\nDate: ")) << answer;
  EXPECT_TRUE(has(answer, "\r\nServer: trainyard\r\n"));
  EXPECT_TRUE(answer.ends_with("\r\n\r\nPUT /a%20b?x=1 [abc]"));
}

TEST(HttpServer, AConnectionServesRequestAfterRequest) {
  const auto server = serve({}, echo);
  RawClient client(server->port());
  for (int i = 0; i < 100; ++i) {
    client.say("GET /" + std::to_string(i) + " HTTP/1.1\r\nHost: a\r\n\r\n");
    EXPECT_TRUE(client.response().ends_with("GET /" + std::to_string(i) + " []"));
  }
}

TEST(HttpServer, AConnectionThatWentBackToTheEventThreadStillServes) {
  const auto server = serve({.linger_timeout = milliseconds(0)}, echo);
  RawClient client(server->port());
  for (int i = 0; i < 100; ++i) {
    client.say("GET /hel");
    client.say("lo HTTP/1.1\r\nHost: a\r\n\r\n");
    EXPECT_TRUE(client.response().ends_with("GET /hello []"));
  }
}

TEST(HttpServer, PipelinedRequestsAreAnsweredInOrder) {
  const auto server = serve({}, echo);
  RawClient client(server->port());
  std::string all;
  for (int i = 0; i < 50; ++i)
    all += "POST /" + std::to_string(i) + " HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
  client.say(all);
  for (int i = 0; i < 50; ++i)
    EXPECT_TRUE(client.response().ends_with("POST /" + std::to_string(i) + " [hi]"));
}

TEST(HttpServer, ClosesAfterTheResponseWhenAsked) {
  const auto server = serve({}, echo);
  for (const std::string_view request :
       {"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "GET / HTTP/1.0\r\n\r\n"}) {
    RawClient client(server->port());
    client.say(request);
    EXPECT_TRUE(has(client.rest(), "Connection: close\r\n"));
    EXPECT_TRUE(client.ended());
  }
}

TEST(HttpServer, ManyConnectionsAreServedAtOnce) {
  const auto server = serve({.io_thread_count = 2, .worker_count_max = 4}, echo);
  std::vector<RawClient> clients;
  for (int i = 0; i < 100; ++i) clients.emplace_back(server->port());
  for (int round = 0; round < 3; ++round) {
    for (RawClient& client : clients) client.say(kGet);
    for (RawClient& client : clients) EXPECT_TRUE(client.response().ends_with("GET /hello []"));
  }
}

TEST(HttpServer, ARequestThatCameWhileOthersWaitedIsNotForgotten) {
  std::binary_semaphore begun(0);
  std::binary_semaphore may_end(0);
  const auto server =
      serve({.worker_count_max = 1}, [&](Request& request, ResponseWriter& response) {
        if (request.path() == "/first") {
          begun.release();
          may_end.acquire();
        }
        (void)response.send(200, "done");
      });
  RawClient busy(server->port());
  std::vector<RawClient> waiting;
  for (int i = 0; i < 8; ++i) waiting.emplace_back(server->port());
  busy.say("GET /first HTTP/1.1\r\nHost: a\r\n\r\n");
  begun.acquire();
  for (RawClient& client : waiting) client.say(kGet);
  busy.say(kGet);
  may_end.release();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(busy.response().ends_with("done"));
  for (RawClient& client : waiting) EXPECT_TRUE(client.response().ends_with("done"));
}

// ---- what is refused

TEST(HttpServer, MalformedRequestsAreRefusedWith400) {
  for (const std::string_view bytes :
       {"\x16\x03\x01\x02", " GET / HTTP/1.1\r\n", "GET / HTTP/1.1\nHost: a\n\n",
        "GET /\r\nHost: a\r\n\r\n", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: a\r\n\r\n", "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"})
    EXPECT_EQ(refusal(bytes), "HTTP/1.1 400") << bytes;
  EXPECT_EQ(refusal(std::string_view("GET / HTTP/1.1\r\nHost: a\r\nA: b\0c\r\n\r\n", 36)),
            "HTTP/1.1 400");
  EXPECT_EQ(refusal("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), "HTTP/1.1 505");
}

TEST(HttpServer, BodiesWhoseLengthIsInDoubtAreRefused) {
  const std::string start = "POST / HTTP/1.1\r\nHost: a\r\n";
  for (const std::string_view fields :
       {"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
        "Content-Length: 3\r\nContent-Length: 4\r\n", "Content-Length: 3, 4\r\n",
        "Content-Length: 3,3\r\n", "Content-Length: -1\r\n", "Content-Length: +1\r\n",
        "Content-Length: 0x1\r\n", "Content-Length: \r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"})
    EXPECT_EQ(refusal(start + std::string(fields) + "\r\nabc"), "HTTP/1.1 400") << fields;
  EXPECT_EQ(refusal("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), "HTTP/1.1 400");
  for (const std::string_view coding : {"gzip", "gzip, chunked", "chunked, identity", "xchunked"})
    EXPECT_EQ(refusal(start + "Transfer-Encoding: " + std::string(coding) + "\r\n\r\n"),
              "HTTP/1.1 501");
}

TEST(HttpServer, OversizedHeadsAndBodiesAreRefused) {
  const std::string big(5000, 'x');
  const ServerOptions options{
      .header_bytes_max = 4096, .target_bytes_max = 1024, .body_bytes_max = 10};
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\nHost: a\r\nA: " + big + "\r\n\r\n", options),
            "HTTP/1.1 431");
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\nHost: a\r\nA: " + big, options), "HTTP/1.1 431");
  EXPECT_EQ(refusal("GET /" + big + " HTTP/1.1\r\n", options), "HTTP/1.1 414");
  EXPECT_EQ(refusal("GET /" + big, options), "HTTP/1.1 414");
  EXPECT_EQ(refusal("GET /" + big.substr(0, 1024) + " HTTP/1.1\r\nHost: a\r\n\r\n", options),
            "HTTP/1.1 414");
  EXPECT_EQ(refusal("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n", options),
            "HTTP/1.1 413");
  EXPECT_EQ(refusal("PUT / HTTP/1.1\r\nHost: a\r\nExpect: wonders\r\n\r\n"), "HTTP/1.1 417");
}

TEST(HttpServer, TheLargestHeadThatIsAllowedIsTaken) {
  const auto server = serve({.header_bytes_max = 4096, .target_bytes_max = 1024}, echo);
  RawClient client(server->port());
  const std::string start = "GET /" + std::string(1023, 'x') + " HTTP/1.1\r\nHost: a\r\nA: ";
  client.say(start + std::string(4096 - 4 - start.size(), 'y') + "\r\n\r\n");
  EXPECT_TRUE(client.response().starts_with("HTTP/1.1 200"));
}

TEST(HttpServer, AHeadThatComesTooSlowlyIsAnswered408) {
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\nHos", {.header_timeout = milliseconds(20)}), "HTTP/1.1 408");
}

TEST(HttpServer, AConnectionThatSaysNothingIsClosedWithoutAWord) {
  const auto server =
      serve({.header_timeout = milliseconds(20), .idle_timeout = milliseconds(20)}, echo);
  RawClient silent(server->port());
  EXPECT_EQ(silent.rest(), "");
  RawClient idle(server->port());
  idle.say(kGet);
  EXPECT_TRUE(idle.response().ends_with("GET /hello []"));
  EXPECT_EQ(idle.rest(), "");
  EXPECT_TRUE(idle.ended());
}

TEST(HttpServer, ConnectionsBeyondTheLimitAreAnswered503) {
  CounterRegistry counters;
  const auto server = serve({.connections_max = 2, .counters = &counters}, echo);
  RawClient first(server->port());
  RawClient second(server->port());
  for (RawClient* client : {&first, &second}) {
    client->say(kGet);
    EXPECT_TRUE(client->response().starts_with("HTTP/1.1 200"));
  }
  RawClient third(server->port());
  third.say(kGet);
  EXPECT_TRUE(third.rest().starts_with("HTTP/1.1 503"));
  first.say(kGet);
  EXPECT_TRUE(first.response().starts_with("HTTP/1.1 200"));
  EXPECT_EQ(counters.snapshot()["http_server_refused_connections"], 1);
  EXPECT_EQ(counters.snapshot()["http_server_requests"], 3);
}

// ---- bodies

TEST(HttpServer, AChunkedBodyIsDecodedWhateverItsPieces) {
  const auto server = serve({}, echo);
  RawClient client(server->port());
  client.say("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (const char c : std::string_view("3;ext=1\r\nabc\r\n00A\r\n0123456789\r\n0\r\nT: x\r\n\r\n"))
    client.say(std::string_view(&c, 1));
  EXPECT_TRUE(client.response().ends_with("PUT / [abc0123456789]"));
  client.say(kGet);
  EXPECT_TRUE(client.response().ends_with("GET /hello []"));
}

TEST(HttpServer, AMalformedOrEndlessChunkIsAnswered400) {
  const auto server = serve({}, echo);
  for (const std::string& body : {std::string("x\r\n"), std::string("3\r\nabcd\r\n\r\n"),
                                  std::string("-1\r\n"), std::string("11111111111111111\r\n"),
                                  "1;" + std::string(100'000, 'e'), std::string("3\nabc\r\n")}) {
    RawClient client(server->port());
    client.say("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + body);
    EXPECT_TRUE(client.rest().starts_with("HTTP/1.1 400")) << body.substr(0, 20);
  }
}

TEST(HttpServer, AChunkedBodyBeyondTheLimitIsAnswered413) {
  const auto server = serve({.body_bytes_max = 5}, echo);
  RawClient client(server->port());
  client.say("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n");
  EXPECT_TRUE(client.rest().starts_with("HTTP/1.1 413"));
}

TEST(HttpServer, ABodyThatEndsEarlyIsAnErrorOfTheReader) {
  std::promise<Error> seen;
  const auto server = serve({}, [&](Request& request, ResponseWriter&) {
    auto body = request.read_all(100);
    if (!body) seen.set_value(body.error());
  });
  RawClient client(server->port());
  client.say("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
  client.end_writing();
  EXPECT_TRUE(client.rest().starts_with("HTTP/1.1 400"));
  EXPECT_EQ(seen.get_future().get().code, Code::kUnavailable);
}

TEST(HttpServer, ABodyThatComesTooSlowlyIsAnswered408) {
  const auto server = serve({.progress_timeout = milliseconds(20)}, echo);
  RawClient client(server->port());
  client.say("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_TRUE(client.rest().starts_with("HTTP/1.1 408"));
}

TEST(HttpServer, ABodyLongerThanTheHandlerTakesIsAnswered413) {
  const auto server = serve({}, [](Request& request, ResponseWriter&) {
    EXPECT_EQ(request.read_all(3).error().code, Code::kExhausted);
  });
  for (const std::string_view body :
       {"Content-Length: 4\r\n\r\nabcd", "Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n"}) {
    RawClient client(server->port());
    client.say("PUT / HTTP/1.1\r\nHost: a\r\n" + std::string(body));
    EXPECT_TRUE(client.rest().starts_with("HTTP/1.1 413")) << body;
  }
}

TEST(HttpServer, ContinueIsSaidWhenTheHandlerReads) {
  const auto server = serve({}, echo);
  RawClient client(server->port());
  client.say("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.say("hi");
  EXPECT_TRUE(client.response().ends_with("PUT / [hi]"));
  client.say(kGet);
  EXPECT_TRUE(client.response().ends_with("GET /hello []"));
}

TEST(HttpServer, ContinueIsSaidForABodyWithoutBytesToo) {
  const auto server = serve({}, echo);
  RawClient client(server->port());
  for (int i = 0; i < 2; ++i) {
    client.say("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n");
    EXPECT_EQ(client.until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    EXPECT_TRUE(client.response().ends_with("PUT / []"));
  }
}

TEST(HttpServer, ContinueIsNotSaidWhenTheHandlerRefuses) {
  const auto server =
      serve({}, [](Request&, ResponseWriter& response) { (void)response.send(403, "no"); });
  RawClient client(server->port());
  client.say("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  const std::string answer = client.rest();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 403")) << answer;
  EXPECT_TRUE(has(answer, "Connection: close\r\n"));
  EXPECT_TRUE(client.ended());
}

// ---- responses

TEST(HttpServer, AHeadRequestHasTheLengthButNoBody) {
  const auto server = serve({}, [](Request& request, ResponseWriter& response) {
    if (request.path() == "/sent") {
      (void)response.send(200, "12345");
    } else {
      (void)response.start(200, 5);  // and nothing written
    }
  });
  RawClient client(server->port());
  for (const std::string path : {"/sent", "/started"}) {
    client.say("HEAD " + path + " HTTP/1.1\r\nHost: a\r\n\r\n");
    EXPECT_TRUE(has(client.response(false), "Content-Length: 5\r\n"));
  }
}

TEST(HttpServer, StatusesWithoutBodyHaveNone) {
  const auto server = serve({}, [](Request& request, ResponseWriter& response) {
    (void)response.send(request.path() == "/204" ? 204 : 304, "not sent");
  });
  RawClient client(server->port());
  for (const std::string path : {"/204", "/304", "/204"}) {
    client.say("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n");
    const std::string answer = client.response(false);
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 " + path.substr(1))) << answer;
    EXPECT_FALSE(has(answer, "Content-Length"));
  }
}

TEST(HttpServer, AResponseOfUnknownLengthIsChunked) {
  const auto server = serve({}, [](Request&, ResponseWriter& response) {
    (void)response.start(200, std::nullopt);
    (void)response.write("abc");
    (void)response.write("");
    (void)response.write("0123456789abcdef");
  });
  RawClient client(server->port());
  client.say(kGet);
  EXPECT_TRUE(has(client.response(false), "Transfer-Encoding: chunked\r\n"));
  EXPECT_EQ(client.until("0\r\n\r\n"), "3\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n");
  client.say("GET / HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(client.rest().ends_with("\r\n\r\nabc0123456789abcdef"));
}

TEST(HttpServer, ARangeOfAFileBeyondFourGigabytesIsSent) {
  const UniqueFd file = sparse_file((uint64_t{5} << 30) + 10);
  const std::string mark = "the mark";
  const uint64_t offset = uint64_t{5} << 30;
  ASSERT_EQ(::pwrite(file.get(), mark.data(), mark.size(), static_cast<off_t>(offset)), 8);
  const auto server = serve({}, [&](Request& request, ResponseWriter& response) {
    if (request.path() == "/pieces") {
      (void)response.start(200, std::nullopt);
      (void)response.write_file(file.get(), offset, 8);
      return;
    }
    (void)response.send_file(206, file.get(), offset - 1'000'000, 1'000'010);
  });
  RawClient client(server->port());
  client.say(kGet);
  const std::string answer = client.response();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 206"));
  EXPECT_TRUE(answer.ends_with(mark + std::string(2, '\0')));
  EXPECT_EQ(answer.size() - answer.find("\r\n\r\n") - 4, 1'000'010U);
  client.say("GET /pieces HTTP/1.1\r\nHost: a\r\n\r\n");
  client.response(false);
  EXPECT_EQ(client.until("0\r\n\r\n"), "8\r\nthe mark\r\n0\r\n\r\n");
}

TEST(HttpServer, AFileThatIsShorterThanPromisedBreaksTheConnection) {
  const UniqueFd file = sparse_file(1000);
  std::promise<Code> seen;
  const auto server = serve({}, [&](Request&, ResponseWriter& response) {
    seen.set_value(response.send_file(200, file.get(), 0, 1001).error().code);
  });
  RawClient client(server->port());
  client.say(kGet);
  EXPECT_TRUE(client.was_reset());
  EXPECT_EQ(seen.get_future().get(), Code::kCorrupt);
}

TEST(HttpServer, AResponseThatIsNotWhatItPromisedBreaksTheConnection) {
  const auto server = serve({}, [](Request& request, ResponseWriter& response) {
    if (request.path() == "/short") {
      (void)response.start(200, 5);
      (void)response.write("1234");
    } else if (request.path() == "/long") {
      (void)response.start(200, 5);
      (void)response.write("1234");
      EXPECT_EQ(response.write("56").error().code, Code::kInternal);
    } else if (request.path() == "/abort") {
      (void)response.start(200, std::nullopt);
      (void)response.write("1234");
      response.abort();
    } else {
      (void)response.start(200, 5);
      throw std::runtime_error("on purpose");
    }
  });
  for (const std::string path : {"/short", "/long", "/abort", "/throw"}) {
    RawClient client(server->port());
    client.say("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n");
    EXPECT_TRUE(client.was_reset()) << path;
  }
}

TEST(HttpServer, AHandlerThatFailsIsA500) {
  const auto server = serve({}, [](Request& request, ResponseWriter& response) {
    if (request.path() == "/throw") throw std::runtime_error("on purpose");
    if (request.path() != "/header") return;
    response.headers().set("A", "b\r\nSet-Cookie: c");
    EXPECT_EQ(response.send(200, "x").error().code, Code::kInvalidArgument);
  });
  for (const std::string path : {"/throw", "/nothing", "/header"}) {
    RawClient client(server->port());
    client.say("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n");
    const std::string answer = client.response();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 500")) << path << answer;
    EXPECT_FALSE(has(answer, "Set-Cookie"));
  }
}

TEST(HttpServer, HeadersOfTheHandlerAreSentButForTheServersOwn) {
  const auto server = serve({}, [](Request&, ResponseWriter& response) {
    response.headers().add("X-A", "1");
    response.headers().add("X-A", "2");
    response.headers().add("Content-Length", "99");
    response.headers().add("Server", "mine");
    (void)response.send(200, "ok");
  });
  RawClient client(server->port());
  client.say(kGet);
  const std::string answer = client.response();
  EXPECT_TRUE(has(answer, "X-A: 1\r\nX-A: 2\r\n"));
  EXPECT_TRUE(has(answer, "Content-Length: 2\r\n"));
  EXPECT_FALSE(has(answer, "99"));
  EXPECT_FALSE(has(answer, "trainyard"));
}

TEST(HttpServer, AClientThatLeavesInTheMiddleIsAnErrorOfTheWriter) {
  const UniqueFd file = sparse_file(uint64_t{1} << 30);
  for (const bool as_file : {true, false}) {
    std::promise<Code> seen;
    const auto server = serve({}, [&](Request&, ResponseWriter& response) {
      (void)response.start(200, uint64_t{1} << 30);
      const std::string piece(1 << 20, 'x');
      Status status = as_file ? response.write_file(file.get(), 0, uint64_t{1} << 30) : Ok{};
      for (int i = 0; i < 1024 && status && !as_file; ++i) status = response.write(piece);
      seen.set_value(status ? Code::kInternal : status.error().code);
    });
    RawClient client(server->port());
    client.say(kGet);
    client.exactly(1000);
    client.close();
    EXPECT_EQ(seen.get_future().get(), Code::kUnavailable);
  }
}

TEST(HttpServer, AClientThatDoesNotReadIsGivenUp) {
  std::promise<Code> seen;
  const auto server =
      serve({.progress_timeout = milliseconds(20)}, [&](Request&, ResponseWriter& response) {
        (void)response.start(200, uint64_t{1} << 30);
        const std::string piece(1 << 20, 'x');
        Status status = Ok{};
        for (int i = 0; i < 1024 && status; ++i) status = response.write(piece);
        seen.set_value(status ? Code::kInternal : status.error().code);
      });
  RawClient client(server->port(), 4096);
  client.say(kGet);
  EXPECT_EQ(seen.get_future().get(), Code::kDeadlineExceeded);
}

// ---- start and stop

TEST(HttpServer, ATakenPortIsAnErrorThatSaysWhatToDo) {
  const auto first = serve({}, echo);
  const auto second = HttpServer::start({.port = first->port()}, echo);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kUnavailable);
  EXPECT_TRUE(has(second.error().message, "127.0.0.1:" + std::to_string(first->port())));
  EXPECT_TRUE(has(second.error().message, "choose another port"));
}

TEST(HttpServer, AHostThatIsNotOursIsAnInvalidArgument) {
  for (const std::string host : {"no-such-host.invalid", "192.0.2.1"}) {
    const auto server = HttpServer::start({.host = host}, echo);
    ASSERT_FALSE(server);
    EXPECT_EQ(server.error().code, Code::kInvalidArgument) << server.error().message;
  }
}

TEST(HttpServer, ListensOnEveryAddressOfAHost) {
  for (const std::string host : {"localhost", "", "0.0.0.0"}) {
    const auto server = serve({.host = host}, echo);
    RawClient client(server->port());
    client.say(kGet);
    EXPECT_TRUE(client.response().starts_with("HTTP/1.1 200"));
  }
}

TEST(HttpServer, StopLetsRunningRequestsEndAndRefusesNewOnes) {
  std::binary_semaphore begun(0);
  std::binary_semaphore may_end(0);
  const auto server = serve({}, [&](Request&, ResponseWriter& response) {
    begun.release();
    may_end.acquire();
    (void)response.send(200, "whole");
  });
  RawClient idle(server->port());
  RawClient client(server->port());
  client.say(kGet);
  begun.acquire();
  std::thread stopper([&] { server->stop(seconds(30)); });
  EXPECT_EQ(idle.rest(), "");  // closed at once
  may_end.release();
  const std::string answer = client.rest();
  EXPECT_TRUE(answer.ends_with("whole")) << answer;
  EXPECT_TRUE(has(answer, "Connection: close\r\n"));
  client.close();
  stopper.join();
  const auto again = HttpServer::start({.port = server->port()}, echo);
  EXPECT_TRUE(again) << "the port is not free";
}

TEST(HttpServer, StopBreaksOffWhatOutlivesItsGrace) {
  std::binary_semaphore begun(0);
  std::promise<Code> seen;
  const auto server = serve({}, [&](Request& request, ResponseWriter&) {
    begun.release();
    EXPECT_TRUE(request.stop_token().wait_for(seconds(30)));
    std::byte space[10];
    seen.set_value(request.read(space).error().code);
  });
  RawClient client(server->port());
  client.say("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n");
  begun.acquire();
  server->stop(milliseconds(1));
  EXPECT_EQ(seen.get_future().get(), Code::kUnavailable);
}

TEST(HttpServer, AByteStreamCanBeServedWithoutThreads) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  UniqueFd ours(ends[0]);
  const std::string requests = std::string(kGet) + std::string(kGet) + "nonsense\r\n\r\n";
  ASSERT_EQ(::send(ours.get(), requests.data(), requests.size(), 0),
            static_cast<ssize_t>(requests.size()));
  ::shutdown(ours.get(), SHUT_WR);
  serve_connection(UniqueFd(ends[1]), {}, echo);
  std::string answers(4096, '\0');
  answers.resize(static_cast<size_t>(
      std::max<ssize_t>(0, ::recv(ours.get(), answers.data(), answers.size(), MSG_WAITALL))));
  EXPECT_EQ(answers.find("GET /hello []"), answers.find("\r\n\r\n") + 4);
  EXPECT_TRUE(has(answers.substr(answers.find("GET /hello []") + 13), "GET /hello []"));
  EXPECT_TRUE(has(answers, "HTTP/1.1 400"));
}

}  // namespace
}  // namespace yard
