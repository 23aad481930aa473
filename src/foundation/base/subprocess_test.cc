#include "base/subprocess.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/ids.h"

namespace yard {
namespace {

using namespace std::chrono_literals;
constexpr auto kLongEnough = 60s;  // a failure, not a wait: every child below ends by itself

struct Pipe {
  UniqueFd out, in;
  Pipe() {
    int fds[2];
    YARD_CHECK(::pipe2(fds, O_CLOEXEC) == 0);
    out.reset(fds[0]);
    in.reset(fds[1]);
  }
  std::string read_all() {
    in.reset();
    std::string text;
    char buffer[512];
    for (ssize_t got; (got = ::read(out.get(), buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<size_t>(got));
    return text;
  }
  char read_one() {
    char c = 0;
    return ::read(out.get(), &c, 1) == 1 ? c : '\0';
  }
};

SubprocessOptions shell(const std::string& script) {
  return {.argv = {"sh", "-c", script}, .env = {{"PATH", "/usr/bin:/bin"}}};
}

// Runs it to its end and returns what it wrote.
std::string output_of(SubprocessOptions options) {
  Pipe pipe;
  options.stdout_fd = pipe.in.get();
  auto child = Subprocess::spawn(options);
  EXPECT_TRUE(child) << child.error().message;
  if (!child) return "";
  const std::string text = pipe.read_all();
  EXPECT_TRUE(child->wait(kLongEnough));
  return text;
}

TEST(Subprocess, ReportsExitCodesAndSignals) {
  auto failed = Subprocess::spawn(shell("exit 7"));
  ASSERT_TRUE(failed);
  const auto exited = failed->wait(kLongEnough);
  ASSERT_TRUE(exited);
  EXPECT_EQ(exited->code, 7);
  EXPECT_EQ(exited->signal, 0);
  EXPECT_FALSE(exited->ok());

  auto killed = Subprocess::spawn(shell("kill -KILL $$"));
  ASSERT_TRUE(killed);
  const auto died = killed->wait(kLongEnough);
  ASSERT_TRUE(died);
  EXPECT_EQ(died->code, 128 + SIGKILL);
  EXPECT_EQ(died->signal, SIGKILL);
  EXPECT_EQ(killed->wait(0ms)->signal, SIGKILL);  // again, the same
  EXPECT_TRUE(killed->kill(SIGTERM));             // nothing left to kill is no error
  EXPECT_TRUE(killed->kill_group(SIGTERM));
}

TEST(Subprocess, GetsExactlyTheGivenEnvironmentAndDirectory) {
  EXPECT_EQ(output_of({.argv = {"/usr/bin/env"}, .env = {{"A", "1"}, {"B", "x y"}}}),
            "A=1\nB=x y\n");
  auto options = shell("pwd");
  options.cwd = "/usr";
  EXPECT_EQ(output_of(options), "/usr\n");
}

TEST(Subprocess, ReadsNothingFromOurStandardInput) {
  EXPECT_EQ(output_of(shell("cat")), "");
}

// Our own standard output, given as the child's error stream, is not what became the child's 1.
TEST(Subprocess, StreamsMayBeGivenAcrossEachOther) {
  Pipe pipe;
  auto options = shell("echo out; echo err >&2");
  options.stdout_fd = pipe.in.get();
  options.stderr_fd = STDOUT_FILENO;
  auto child = Subprocess::spawn(options);
  ASSERT_TRUE(child);
  EXPECT_EQ(pipe.read_all(), "out\n");
}

TEST(Subprocess, InheritsNoOtherDescriptor) {
  const UniqueFd leaky(::open("/dev/null", O_RDONLY));  // on purpose without O_CLOEXEC
  EXPECT_EQ(output_of(shell("ls /proc/$$/fd; true")), "0\n1\n2\n");
}

TEST(Subprocess, StartsWithDefaultSignals) {
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  // Signal 32 is the C library's own and can only be ignored behind its back.
  const unsigned long ignored[8] = {reinterpret_cast<unsigned long>(SIG_IGN)};
  unsigned long before_32[8] = {};
  ASSERT_EQ(::syscall(SYS_rt_sigaction, 32, ignored, before_32, (NSIG - 1) / 8), 0);
  sigset_t blocked, mask_before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &mask_before);
  const auto status = output_of({.argv = {"/bin/cat", "/proc/self/status"}});
  ::pthread_sigmask(SIG_SETMASK, &mask_before, nullptr);
  ::signal(SIGPIPE, before);
  ASSERT_EQ(::syscall(SYS_rt_sigaction, 32, before_32, nullptr, (NSIG - 1) / 8), 0);
  EXPECT_NE(status.find("SigBlk:\t0000000000000000"), std::string::npos) << status;
  EXPECT_NE(status.find("SigIgn:\t0000000000000000"), std::string::npos) << status;
}

TEST(Subprocess, RunsOnTheGivenCpus) {
  cpu_set_t ours;
  ASSERT_EQ(::sched_getaffinity(0, sizeof ours, &ours), 0);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &ours)) ++cpu;
  SubprocessOptions options{.argv = {"/bin/cat", "/proc/self/status"}};
  options.cpus = {cpu};
  EXPECT_NE(output_of(options).find("Cpus_allowed_list:\t" + std::to_string(cpu) + "\n"),
            std::string::npos);
  for (const int bad : {-1, 1023, 100'000}) {
    options.cpus = {bad};
    EXPECT_EQ(Subprocess::spawn(options).error().code, Code::kInvalidArgument) << bad;
  }
}

TEST(Subprocess, SaysWhyItCannotStart) {
  const auto code = [](SubprocessOptions options) {
    const auto child = Subprocess::spawn(options);
    return child.has_value() ? Code::kInternal : child.error().code;
  };
  EXPECT_EQ(code({.argv = {"/no/such/program"}}), Code::kNotFound);
  EXPECT_EQ(code({.argv = {"no-such-program"}, .env = {{"PATH", "/usr/bin"}}}), Code::kNotFound);
  EXPECT_EQ(code({.argv = {"sh"}, .env = {{"PATH", ""}}}), Code::kNotFound);
  EXPECT_EQ(code({.argv = {"/etc/passwd"}}), Code::kInvalidArgument);
  EXPECT_EQ(code({.argv = {"/bin/true"}, .cwd = "/no/such/dir"}), Code::kInvalidArgument);
  EXPECT_NE(
      Subprocess::spawn({.argv = {"/no/such/program"}}).error().message.find("/no/such/program"),
      std::string::npos);
}

TEST(Subprocess, SearchesThePathInOrder) {
  const std::string root = testing::TempDir() + "yard-path-" + random_name(8);
  ASSERT_TRUE(make_directories(root + "/first"));
  ASSERT_TRUE(make_directories(root + "/second"));
  ASSERT_TRUE(write_file_atomic(root + "/first/tool", "not executable"));
  ASSERT_TRUE(write_file_atomic(root + "/second/tool", "#!/bin/sh\necho second\n"));
  ASSERT_EQ(::chmod((root + "/second/tool").c_str(), 0755), 0);
  EXPECT_EQ(output_of({.argv = {"tool"}, .env = {{"PATH", root + "/first:" + root + "/second"}}}),
            "second\n");
  std::filesystem::remove_all(root);
}

TEST(Subprocess, WaitTimesOutWhileItRuns) {
  Pipe hold;
  auto options = shell("read line");
  options.stdin_fd = hold.out.get();
  auto child = Subprocess::spawn(options);
  ASSERT_TRUE(child);
  EXPECT_EQ(child->wait(1ms).error().code, Code::kDeadlineExceeded);
  EXPECT_TRUE(child->kill(SIGTERM));
  EXPECT_EQ(child->wait(kLongEnough)->signal, SIGTERM);
}

TEST(Subprocess, PidfdBecomesReadableWhenItEnds) {
  Pipe hold;
  auto options = shell("read line");
  options.stdin_fd = hold.out.get();
  auto child = Subprocess::spawn(options);
  ASSERT_TRUE(child);
  pollfd item{child->pidfd(), POLLIN, 0};
  EXPECT_EQ(::poll(&item, 1, 0), 0);
  hold.in.reset();
  EXPECT_EQ(::poll(&item, 1, 60'000), 1);
}

// A grandchild holds the pipe's write end: only its death ends read_all().
TEST(Subprocess, KillGroupReachesGrandchildrenEvenAfterTheChildEnded) {
  Pipe pipe;
  auto options = shell("sleep 1000 & exit 0");
  options.stdout_fd = pipe.in.get();
  auto child = Subprocess::spawn(options);
  ASSERT_TRUE(child);
  EXPECT_TRUE(child->wait(kLongEnough)->ok());
  EXPECT_EQ(::kill(child->pid(), 0), 0);  // its number is still taken
  EXPECT_TRUE(child->kill_group(SIGKILL));
  EXPECT_EQ(pipe.read_all(), "");
}

TEST(Subprocess, DestructorKillsTheGroupAndLeavesNoZombie) {
  Pipe pipe;
  pid_t pid = -1;
  {
    auto options = shell("sleep 1000 & echo x; wait");
    options.stdout_fd = pipe.in.get();
    auto child = Subprocess::spawn(options);
    ASSERT_TRUE(child);
    EXPECT_EQ(pipe.read_one(), 'x');
    pid = child->pid();
    Subprocess moved = *std::move(child);
    EXPECT_EQ(moved.pid(), pid);
  }
  EXPECT_EQ(pipe.read_all(), "\n");
  EXPECT_EQ(::waitpid(pid, nullptr, WNOHANG), -1);
}

TEST(Subprocess, DetachedChildOutlivesItsObject) {
  Pipe hold;
  pid_t pid = -1;
  {
    auto options = shell("read line");
    options.stdin_fd = hold.out.get();
    auto child = Subprocess::spawn(options);
    ASSERT_TRUE(child);
    pid = child->pid();
    child->detach();
    EXPECT_EQ(child->pid(), pid);
  }
  EXPECT_EQ(::kill(pid, 0), 0);
  hold.in.reset();
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status));
}

// The kernel takes the thread that spawned it for the parent, which lets a thread play that part.
TEST(Subprocess, DiesWithItsParentWhenAsked) {
  auto options = shell("sleep 1000");
  options.kill_with_parent = true;
  std::optional<Subprocess> child;
  std::thread([&] {
    auto spawned = Subprocess::spawn(options);
    if (spawned) child = *std::move(spawned);
  }).join();
  ASSERT_TRUE(child);
  const auto ended = child->wait(kLongEnough);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->signal, SIGKILL);
}

TEST(Subprocess, ManyThreadsMaySpawnAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 5; ++i)
        EXPECT_EQ(output_of(shell("echo " + std::to_string(t))), std::to_string(t) + "\n");
    });
  for (auto& thread : threads) thread.join();
}

TEST(Environment, ShowsOurVariables) {
  ASSERT_EQ(::setenv("YARD_TEST_VARIABLE", "a=b", 1), 0);
  EXPECT_EQ(environment().at("YARD_TEST_VARIABLE"), "a=b");
  ::unsetenv("YARD_TEST_VARIABLE");
  EXPECT_FALSE(environment().contains("YARD_TEST_VARIABLE"));
}

}  // namespace
}  // namespace yard
