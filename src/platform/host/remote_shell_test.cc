#include "host/remote_shell.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "base/ids.h"
#include "base/subprocess.h"

namespace yard::host {
namespace {

class RemoteShellTest : public testing::Test {
 protected:
  RemoteShellTest() {
    auto server = RemoteShellServer::listen("127.0.0.1", 0);
    YARD_CHECK(server.has_value());
    server_ = std::make_unique<RemoteShellServer>(*std::move(server));
    path_ = std::filesystem::temp_directory_path() / ("yard-remote-" + random_name(8));
  }
  ~RemoteShellTest() override { std::filesystem::remove(path_); }

  Result<int> call(const std::string& command, const std::string& key = "secret",
                   const StopToken& stop = {}) {
    return run_remotely({.host = "127.0.0.1",
                         .port = server_->port(),
                         .key = key,
                         .command = command,
                         .connect_max = std::chrono::seconds(60)},
                        stop);
  }
  // serve() on a thread of its own, with `calls` meanwhile.
  template <typename Calls>
  Result<int> serve(const Calls& calls) {
    Result<int> served = 0;
    std::thread thread([&] { served = server_->serve("secret", environment(), stop_.token()); });
    calls();
    thread.join();
    return served;
  }

  std::unique_ptr<RemoteShellServer> server_;
  StopSource stop_;
  std::string path_;
};

TEST_F(RemoteShellTest, BothSidesLearnTheExitCode) {
  const auto served = serve([&] {
    const auto code = call("echo ran > " + path_ + "; exit 7");
    ASSERT_TRUE(code) << code.error().message;
    EXPECT_EQ(*code, 7);
  });
  EXPECT_EQ(*served, 7);
  EXPECT_EQ(*read_file(path_), "ran\n");
}

TEST_F(RemoteShellTest, ACallerWithAnotherSecretRunsNothing) {
  const auto served = serve([&] {
    const auto refused = call("echo ran > " + path_, "guess");
    EXPECT_EQ(refused.error().code, Code::kUnavailable);
    EXPECT_EQ(*call("exit 0"), 0) << "the one that knows it is served yet";
  });
  EXPECT_EQ(*served, 0);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(RemoteShellTest, ACallerThatGoesEndsItsCommand) {
  const auto served = serve([&] {
    StopSource gone;
    std::thread caller([&] {
      EXPECT_EQ(
          call("echo ran > " + path_ + "; exec sleep 1000", "secret", gone.token()).error().code,
          Code::kCancelled);
    });
    while (!std::filesystem::exists(path_)) std::this_thread::yield();
    gone.request();
    caller.join();
  });
  EXPECT_EQ(*served, 128 + 15);
}

TEST_F(RemoteShellTest, AServerThatIsStoppedWaitsForNobody) {
  EXPECT_EQ(serve([&] { stop_.request(); }).error().code, Code::kCancelled);
}

TEST(RemoteShellKey, IsTheJobsOwn) {
  const std::map<std::string, std::string> env = {{"AWS_SECRET_ACCESS_KEY", "s"},
                                                  {"TRAINING_JOB_ARN", "arn:1"}};
  auto other = env;
  other["TRAINING_JOB_ARN"] = "arn:2";
  EXPECT_EQ(*remote_shell_key(env), *remote_shell_key(env));
  EXPECT_NE(*remote_shell_key(env), *remote_shell_key(other));
  EXPECT_FALSE(remote_shell_key({{"TRAINING_JOB_ARN", "arn:1"}}));
}

}  // namespace
}  // namespace yard::host
