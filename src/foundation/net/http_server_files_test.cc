#include <gtest/gtest.h>
#include <sys/resource.h>

#include "net/http_server.h"

namespace yard {
namespace {

// The process's limit of open files while it lives.
class OpenFilesLimit {
 public:
  explicit OpenFilesLimit(rlim_t count) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit low{count, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  }
  ~OpenFilesLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_ = {};
};

TEST(HttpServerFiles, TakesAsManyConnectionsAsTheProcessMayOpenFilesFor) {
  const auto start = [](size_t connections_max) {
    return HttpServer::start({.worker_count_max = 8, .connections_max = connections_max},
                             [](Request&, ResponseWriter&) {});
  };
  {
    const OpenFilesLimit few(500);
    EXPECT_EQ((*start(8192))->connections_max(), 500u - 64 - 64 - 8 * 4);
    EXPECT_EQ((*start(100))->connections_max(), 100u);
  }
  const OpenFilesLimit none(170);
  const auto refused = start(8192);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  EXPECT_NE(refused.error().message.find("ulimit -n"), std::string::npos);
}

}  // namespace
}  // namespace yard
