#include "parallel/testing/rank_threads.h"

#include <ATen/ops/zeros.h>
#include <arpa/inet.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "collective/rendezvous.h"

namespace yard::parallel::testing {
namespace {

// Free a moment ago; the kernel gives others out first.
uint16_t free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(fd);
  return ntohs(address.sin_port);
}

Result<std::unique_ptr<collective::Group>> join(int rank, int size, uint16_t port) {
  return collective::connect({.rank = rank,
                              .world_size = size,
                              .master_port = port,
                              .run_id = "parallel_test",
                              .generation = 0,
                              .host_identity = ""},
                             StopToken());
}

struct GridPorts {
  explicit GridPorts(const RankGrid& grid) {
    for (int i = 0; i < grid.world_size / grid.shard_size; ++i) shard.push_back(free_port());
    for (int i = 0; i < grid.shard_size; ++i) replicate.push_back(free_port());
  }
  std::vector<uint16_t> shard, replicate;
};

void run_rank(const RankGrid& grid, int rank, const GridPorts& ports,
              const std::function<void(const RankPlaces&)>& body) {
  const uint16_t shard_port = ports.shard[static_cast<size_t>(rank / grid.shard_size)];
  const uint16_t replicate_port = ports.replicate[static_cast<size_t>(rank % grid.shard_size)];
  std::unique_ptr<collective::Group> shard, replicate;
  if (grid.sharding != Sharding::kNone) {
    auto joined = join(rank % grid.shard_size, grid.shard_size, shard_port);
    ASSERT_TRUE(joined) << joined.error().message;
    shard = *std::move(joined);
  }
  const int copies = grid.world_size / grid.shard_size;
  if (copies > 1 || grid.sharding == Sharding::kNone) {
    auto joined = join(rank / grid.shard_size, copies, replicate_port);
    ASSERT_TRUE(joined) << joined.error().message;
    replicate = *std::move(joined);
  }
  body({.rank = rank, .groups = {.shard = shard.get(), .replicate = replicate.get()}});
}

}  // namespace

std::string to_string(const RankGrid& grid) {
  const char* const names[] = {"Ddp", "Zero1_", "Zero2_", "Zero3_"};
  return names[static_cast<size_t>(grid.sharding)] + std::to_string(grid.shard_size) + "of" +
         std::to_string(grid.world_size);
}

void on_grid(const RankGrid& grid, const std::function<void(const RankPlaces&)>& body) {
  const GridPorts ports(grid);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < grid.world_size; ++rank)
    threads.emplace_back([&, rank] { run_rank(grid, rank, ports, body); });
  for (std::thread& thread : threads) thread.join();
}

std::vector<int> on_forked_grid(const RankGrid& grid,
                                const std::function<int(const RankPlaces&)>& body) {
  const GridPorts ports(grid);
  std::vector<pid_t> pids;
  for (int rank = 0; rank < grid.world_size; ++rank) {
    pids.push_back(fork());
    if (pids.back() != 0) continue;
    int status = 1;
    run_rank(grid, rank, ports, [&](const RankPlaces& places) { status = body(places); });
    _exit(status);
  }
  std::vector<int> statuses;
  for (const pid_t pid : pids) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    statuses.push_back(status);
  }
  return statuses;
}

at::Tensor wave(at::IntArrayRef shape, int seed) {
  at::Tensor out = at::zeros(shape, at::kFloat);
  float* data = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < out.numel(); ++i)
    data[i] = static_cast<float>(std::sin(0.7 * static_cast<double>(i) + seed));
  return out;
}

struct TensorMemory::Impl : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, int64_t alloc_size, size_t, size_t, c10::Device) override {
    now += alloc_size;
    most = std::max(most, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t now = 0, most = 0;
};

TensorMemory::TensorMemory() : impl_(std::make_shared<Impl>()) {
  c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::PROFILER_STATE, impl_);
}

TensorMemory::~TensorMemory() {
  c10::ThreadLocalDebugInfo::_pop(c10::DebugInfoKind::PROFILER_STATE);
}

int64_t TensorMemory::now_bytes() const {
  return impl_->now;
}

int64_t TensorMemory::most_bytes() const {
  return impl_->most;
}

}  // namespace yard::parallel::testing
