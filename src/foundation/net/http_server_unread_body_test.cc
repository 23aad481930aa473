// Bodies that the handler leaves unread, in whole or in part.
#include <gtest/gtest.h>

#include "net/http_server.h"
#include "net/testing/raw_client.h"

namespace yard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::string_view kGet = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::unique_ptr<HttpServer> serve(ServerOptions options, HttpHandler handler) {
  auto server = HttpServer::start(options, std::move(handler));
  EXPECT_TRUE(server) << server.error().message;
  return *std::move(server);
}

TEST(HttpServerUnreadBody, IsReadAwayUpToItsLimit) {
  const auto server = serve({.drain_bytes_max = 1000}, [](Request&, ResponseWriter& response) {
    (void)response.send(200, "unread");
  });
  RawClient client(server->port());
  client.say("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n" + std::string(1000, 'x'));
  EXPECT_FALSE(has(client.response(), "Connection: close"));
  client.say("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" +
             std::string(100'000, 'x'));
  EXPECT_TRUE(has(client.rest(), "Connection: close"));
  EXPECT_TRUE(client.ended());  // the answer is not overtaken by a reset
}

TEST(HttpServerUnreadBody, HoldsNoWorkerWhenItDoesNotComeAndWhatFollowsItIsServed) {
  const auto server = serve({.worker_count_max = 2, .progress_timeout = seconds(3600)},
                            [](Request& request, ResponseWriter& response) {
                              (void)response.send(200, std::string(request.target()));
                            });
  std::vector<RawClient> slow;
  for (int i = 0; i < 16; ++i) {
    slow.emplace_back(server->port());
    slow.back().say(i % 2 == 0 ? "PUT /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\nab"
                               : "PUT /slow HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
                                 "\r\n5\r\nab");
    EXPECT_TRUE(slow.back().response().ends_with("/slow"));
  }
  RawClient other(server->port());
  other.say(kGet);
  EXPECT_TRUE(other.response().ends_with("/hello"));
  for (int i = 0; i < 16; ++i) {
    slow[size_t(i)].say(i % 2 == 0 ? "cde" : "cde\r\n");
    slow[size_t(i)].say((i % 2 == 0 ? "fg" : "0\r\n\r\n") + std::string(kGet).substr(0, 9));
    slow[size_t(i)].say(kGet.substr(9));
    EXPECT_TRUE(slow[size_t(i)].response().ends_with("/hello")) << i;
  }
}

TEST(HttpServerUnreadBody, EndsTheConnectionWhenMalformedOrTooLong) {
  const auto server = serve({.drain_bytes_max = 8}, [](Request&, ResponseWriter& response) {
    (void)response.send(200, "unread");
  });
  for (const auto& [body, status] :
       {std::pair("zz\r\n", "400"), std::pair("9\r\n123456789\r\n0\r\n\r\n", "413")}) {
    RawClient client(server->port());
    client.say("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    EXPECT_TRUE(client.response().ends_with("unread"));
    client.say(body);
    EXPECT_TRUE(client.rest().starts_with(std::string("HTTP/1.1 ") + status));
  }
}

TEST(HttpServerUnreadBody, EndsTheConnectionWhenItDoesNotEndInTime) {
  const auto server = serve({.header_timeout = milliseconds(20)},
                            [](Request&, ResponseWriter& response) { (void)response.send(200); });
  RawClient client(server->port());
  client.say("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
  (void)client.response();
  client.say("ab");
  EXPECT_EQ(client.rest(), "");
  EXPECT_TRUE(client.ended());
}

}  // namespace
}  // namespace yard
