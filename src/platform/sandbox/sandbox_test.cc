#include "sandbox/sandbox.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/file.h"
#include "base/subprocess.h"
#include "sandbox/host_network.h"
#include "sandbox/port_forwarder.h"

namespace yard::sandbox {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;

class Folder {
 public:
  Folder() {
    std::string path = (fs::temp_directory_path() / "yard-sandbox-XXXXXX").string();
    YARD_CHECK(::mkdtemp(path.data()) != nullptr);
    path_ = path;
  }
  ~Folder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ / name; }
  std::string path() const { return path_; }

 private:
  fs::path path_;
};

std::string tail_of(const Strings& argv, const std::string& word, size_t count) {
  const auto found = std::ranges::find(argv, word);
  std::string out;
  for (auto it = found; it != argv.end() && it < found + ptrdiff_t(count); ++it) out += *it + " ";
  return out;
}

TEST(Sandbox, TheCommandCutsCapabilitiesAsRootAndMakesAUserElsewhere) {
  const SandboxOptions options{.hostname = "algo-1",
                               .ml_dir = "/j/ml",
                               .scratch_dir = "/j/s",
                               .as_root = true,
                               .network_namespace = "/proc/1/fd/3"};
  const auto as_root = sandbox_command(options, {}, {"prog", "arg"});
  EXPECT_EQ(as_root[0], "nsenter");
  EXPECT_EQ(as_root[1], "--net=/proc/1/fd/3");
  EXPECT_EQ(tail_of(as_root, "--cap-drop", 2), "--cap-drop ALL ");
  EXPECT_EQ(std::ranges::count(as_root, "CAP_SYS_ADMIN"), 0);
  EXPECT_EQ(Strings(as_root.end() - 3, as_root.end()), (Strings{"--", "prog", "arg"}));
  const auto as_user =
      sandbox_command({.hostname = "algo-1", .ml_dir = "/j/ml", .scratch_dir = "/j/s"}, {}, {"p"});
  EXPECT_EQ(as_user[0], "bwrap");
  EXPECT_EQ(tail_of(as_user, "--unshare-user", 5), "--unshare-user --uid 0 --gid 0 ");
}

TEST(Sandbox, PthFilesNameFoldersByAbsolutePaths) {
  EXPECT_EQ(folders_of_pth("/a/b\nimport x\n# c\nrelative\n/c \r\n/\n"), (Strings{"/a/b", "/c"}));
  EXPECT_TRUE(folders_of_pth("").empty());
}

TEST(Sandbox, ARuntimeThatIsNoneIsAnError) {
  const Folder folder;
  const auto missing = open_runtime({.python = folder / "none", .root = {}}, folder / "s", false);
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  fs::create_directories(folder / "empty");
  EXPECT_FALSE(open_runtime({.python = folder / "empty", .root = {}}, folder / "s", false));
  EXPECT_FALSE(open_runtime({.python = {}, .root = folder / "empty"}, folder / "s", false));
}

TEST(Sandbox, ChildrenOfChildrenAreFound) {
  auto shell = Subprocess::spawn(
      {.argv = {"sh", "-c", "sleep 600 & sleep 600 & echo; wait"}, .env = environment()});
  ASSERT_TRUE(shell);
  std::vector<int> below;
  while (below.size() < 2) below = processes_below(shell->pid());
  EXPECT_EQ(below.size(), 2U);
  auto direct = children_of(shell->pid());
  std::ranges::sort(direct);
  EXPECT_EQ(direct, below);
}

TEST(AddressBlock, HoldsAllHostsAndOverlapsNobody) {
  const auto first = choose_block(2, {});
  ASSERT_TRUE(first);
  EXPECT_EQ(first->prefix_bits, 29);
  EXPECT_EQ(first->gateway(), "10.213.0.1");
  EXPECT_EQ(first->host(0), "10.213.0.2");
  const auto second = choose_block(100, {*first, *parse_block("10.213.1.0/24")});
  ASSERT_TRUE(second);
  EXPECT_EQ(second->prefix_bits, 25);
  EXPECT_EQ(second->gateway(), "10.213.0.129");
  EXPECT_FALSE(second->overlaps(*first));
  EXPECT_EQ(choose_block(2, {*parse_block("10.0.0.0/8")}).error().code, Code::kExhausted);
  EXPECT_EQ(choose_block(100'000, {}).error().code, Code::kExhausted);
  EXPECT_EQ(choose_block(1, {*parse_block("0.0.0.0/0")}).error().code, Code::kExhausted);
}

TEST(AddressBlock, WhatIsNoneIsRefused) {
  EXPECT_EQ(parse_block("10.1.2.3/8")->gateway(), "10.0.0.1");
  for (const char* text :
       {"", "10.1.2.3", "10.1.2.3/", "10.1.2/8", "10.1.2.3/33", "x/8", "1.2.3.4/8x"})
    EXPECT_FALSE(parse_block(text)) << text;
}

TEST(HostNetwork, NamesFitTheKernelAndDiffer) {
  EXPECT_LE(bridge_name("/a/job").size(), 15U);
  EXPECT_NE(bridge_name("/a/job"), bridge_name("/a/job2"));
  EXPECT_NE(interface_name("/a/job", "algo-1"), interface_name("/a/job", "algo-2"));
}

class OwnNetwork : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.job_dir = folder_.path();
    options_.hosts = {"algo-1", "algo-2"};
    options_.host = "algo-1";
    options_.lock_path = folder_ / "lock";
    auto first = HostNetwork::open(options_);
    if (!first) GTEST_SKIP() << "NOT TESTED: " << first.error().message;
    first_ = *std::move(first);
  }
  int run_inside(const HostNetwork& network, const std::string& command) {
    auto child =
        Subprocess::spawn({.argv = {"nsenter", "--net=" + network.path(), "sh", "-c", command},
                           .env = environment()});
    return child ? child->wait(std::chrono::minutes(1))->code : -1;
  }
  static bool exists(const std::string& interface) {
    return fs::exists("/sys/class/net/" + interface);
  }

  Folder folder_;
  NetworkOptions options_;
  std::unique_ptr<HostNetwork> first_;
};

TEST_F(OwnNetwork, HostsOfAJobReachEachOtherAndLeaveNothing) {
  options_.host = "algo-2";
  auto second = HostNetwork::open(options_);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ((*second)->addresses(), first_->addresses());
  const std::string address = first_->addresses().at("algo-1");
  const std::string python =
      "python3 -c \"import socket; s = socket.create_server(('" + address +
      "', 7777)); print('up', flush=True); s.accept()[0].sendall(b'hello')\"";
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  auto server =
      Subprocess::spawn({.argv = {"nsenter", "--net=" + first_->path(), "sh", "-c", python},
                         .env = environment(),
                         .stdout_fd = fds[1]});
  ASSERT_TRUE(server);
  char up[3];
  ASSERT_GT(::read(fds[0], up, 3), 0);
  EXPECT_EQ(run_inside(**second, "python3 -c \"import socket; c = socket.create_connection(('" +
                                     address + "', 7777)); assert c.recv(5) == b'hello'\""),
            0);
  ::close(fds[0]);
  ::close(fds[1]);
  const std::string bridge = bridge_name(options_.job_dir);
  EXPECT_TRUE(exists(bridge));
  second->reset();
  EXPECT_TRUE(exists(bridge)) << "taken from under the other host";
  first_.reset();
  EXPECT_FALSE(exists(bridge));
  EXPECT_FALSE(exists(interface_name(options_.job_dir, "algo-1")));
}

TEST_F(OwnNetwork, APortOfThisMachineIsReachedUnderItsOwnAddress) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener.get(), 8), 0);
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const uint16_t port = ntohs(address.sin_port);
  const std::string get =
      "python3 -c \"import socket; c = socket.create_connection(('127.0.0.1', " +
      std::to_string(port) +
      ")); c.sendall(b'q' * 300000); c.shutdown(1)\n"
      "n = 0\nwhile True:\n  d = c.recv(65536)\n  if not d: break\n  n += len(d)\n"
      "assert n == 5000000, n\"";
  EXPECT_NE(run_inside(*first_, get), 0) << "reached without a forwarder";
  auto forwarder = PortForwarder::start({.network_namespace_fd = first_->fd(), .port = port});
  ASSERT_TRUE(forwarder) << forwarder.error().message;
  size_t received = 0;
  std::thread server([&] {
    const UniqueFd client(::accept(listener.get(), nullptr, nullptr));
    std::vector<char> buffer(1 << 16);
    for (ssize_t got = 0; (got = ::recv(client.get(), buffer.data(), buffer.size(), 0)) > 0;)
      received += size_t(got);
    const std::string answer(5'000'000, 'a');
    for (size_t sent = 0; sent < answer.size();)
      sent += size_t(::send(client.get(), answer.data() + sent, answer.size() - sent, 0));
  });
  EXPECT_EQ(run_inside(*first_, get), 0);
  server.join();
  EXPECT_EQ(received, 300'000U);
  EXPECT_FALSE(PortForwarder::start({.network_namespace_fd = first_->fd(), .port = port}))
      << "the port is taken inside";
}

TEST_F(OwnNetwork, WhatAKilledSupervisorLeftIsRemoved) {
  const std::string bridge = bridge_name(options_.job_dir);
  const pid_t child = ::fork();
  if (child == 0) {
    // It dies without a destructor, its interfaces stay for a moment or for good.
    NetworkOptions other = options_;
    other.host = "algo-2";
    auto network = HostNetwork::open(other);
    ::_exit(network ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  NetworkOptions other = options_;
  other.host = "algo-2";
  EXPECT_TRUE(HostNetwork::clean(other));
  EXPECT_FALSE(exists(interface_name(options_.job_dir, "algo-2")));
  EXPECT_TRUE(exists(bridge));
  first_.reset();
  EXPECT_FALSE(exists(bridge));
}

}  // namespace
}  // namespace yard::sandbox
