#include "telemetry/process_usage.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

namespace yard {
namespace {

// A child that has done something and waits until it is ended.
class Child {
 public:
  template <typename Work>
  explicit Child(Work work) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      work();
      if (::write(ready[1], "x", 1) == 1)
        while (true) ::pause();
      ::_exit(1);
    }
    ::close(ready[1]);
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
  }
  ~Child() {
    for (const auto& each : processes_below()) ::kill(each, SIGKILL);
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  std::vector<pid_t> processes_below() const {
    std::vector<pid_t> pids;
    if (const auto tree = read_tree_usage(pid_))
      for (const auto& each : tree->processes)
        if (each.pid != pid_) pids.push_back(each.pid);
    return pids;
  }
  pid_t pid_;
};

void burn_cpu(double seconds) {
  const clock_t begin = ::clock();
  volatile double x = 1;
  while (static_cast<double>(::clock() - begin) < seconds * CLOCKS_PER_SEC) x = x * 1.0001;
}

TEST(ProcessUsageTest, WhatAProcessUsesIsSeen) {
  const Child child([] {
    burn_cpu(0.2);
    constexpr size_t kBytes = 32 << 20;
    void* memory =
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::memset(memory, 1, kBytes);
  });
  const auto tree = read_tree_usage(child.pid());
  ASSERT_TRUE(tree) << tree.error().message;
  ASSERT_EQ(tree->processes.size(), 1u);
  EXPECT_GE(tree->cpu_s, 0.15);
  EXPECT_GE(tree->memory_bytes, uint64_t{32} << 20);
  EXPECT_LE(tree->memory_bytes, uint64_t{256} << 20);
}

TEST(ProcessUsageTest, ChildrenOfChildrenAndOfThreadsCount) {
  const Child child([] {
    if (::fork() == 0) {
      if (::fork() == 0) burn_cpu(0.1);
      while (true) ::pause();
    }
    std::thread([] {
      if (::fork() == 0)
        while (true) ::pause();
    }).join();
    if (const pid_t ended = ::fork(); ended == 0) {
      burn_cpu(0.2);
      ::_exit(0);
    } else {
      ::waitpid(ended, nullptr, 0);
    }
  });
  // The grandchild may not have been forked yet.
  size_t count = 0;
  for (int i = 0; i < 1000 && count < 4; ++i) {
    const auto tree = read_tree_usage(child.pid());
    ASSERT_TRUE(tree);
    count = tree->processes.size();
    EXPECT_EQ(tree->processes.front().pid, child.pid());
    EXPECT_GE(tree->cpu_s, 0.15);  // of the one that has ended
    ::usleep(1000);
  }
  EXPECT_EQ(count, 4u);
}

TEST(ProcessUsageTest, AProcessThatIsNotThereIsNotFound) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(read_tree_usage(child).error().code, Code::kNotFound);
  EXPECT_EQ(read_network_usage(child).error().code, Code::kNotFound);
}

TEST(ProcessUsageTest, TheNetworkOfOurselvesIsSeen) {
  EXPECT_TRUE(read_network_usage(::getpid()));
}

}  // namespace
}  // namespace yard
