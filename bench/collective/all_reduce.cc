// Latency of all_reduce between processes of this machine:
//   collective_bench [--ranks N] [--hosts H]
// prints one line per size and kind of memory, as "all_reduce <bytes> <private|shared> <median us>
// <least us>". With --hosts the ranks are dealt to that many pretended hosts, joined by TCP.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "collective/rendezvous.h"

namespace yard::collective {
namespace {

constexpr size_t kSizesBytes[] = {size_t{4} << 10, size_t{1} << 20, size_t{4} << 20,
                                  size_t{64} << 20};

struct Plan {
  int rank_count = 2;
  int host_count = 1;
  uint16_t port = 29541;
};

// Enough repetitions for about a third of a second at 4 GB/s.
int repetitions_of(size_t size_bytes) {
  return static_cast<int>(std::clamp<size_t>((size_t{1} << 30) / (size_bytes + 65536), 12, 1000));
}

bool measure(Group& group, std::span<std::byte> data, std::string_view memory) {
  std::vector<double> micros;
  const int repetitions = repetitions_of(data.size());
  // Small ones back to back: alone, one would find its peers already there or far behind.
  const int batch = data.size() <= 65536 ? 50 : 1;
  for (int i = -repetitions / 10 - 2; i < repetitions; ++i) {
    // As gradients are: freshly written by this rank.
    std::fill(data.begin(), data.end(), std::byte{0});
    if (!group.barrier()->wait()) return false;
    const auto begin = std::chrono::steady_clock::now();
    for (int j = 0; j < batch; ++j)
      if (!group.all_reduce(data, DType::kF32, ReduceOp::kSum)->wait()) return false;
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    if (i >= 0) micros.push_back(took.count() / batch);
  }
  std::sort(micros.begin(), micros.end());
  if (group.rank() == 0)
    fmt::print("all_reduce {} {} {:.1f} {:.1f}\n", data.size(), memory, micros[micros.size() / 2],
               micros[0]);
  return true;
}

int run_rank(const Plan& plan, int rank) {
  RendezvousOptions options{.rank = rank,
                            .world_size = plan.rank_count,
                            .master_port = plan.port,
                            .run_id = "bench",
                            .host_identity = fmt::format("host {}", rank % plan.host_count)};
  auto group = connect(options, StopToken());
  if (!group) {
    fmt::print(stderr, "rank {}: {}\n", rank, group.error().message);
    return 1;
  }
  for (const size_t size_bytes : kSizesBytes) {
    std::vector<std::byte> own(size_bytes);
    auto shared = (*group)->allocate(size_bytes);
    if (!shared || !measure(**group, own, "private") ||
        !measure(**group, (*shared)->bytes(), "shared"))
      return 1;
  }
  std::fflush(stdout);
  return 0;
}

bool parse(int argc, char** argv, Plan* plan) {
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    int value = 0;
    if (i + 1 == argc) return false;
    const std::string_view text = argv[i + 1];
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc() ||
        value < 1 || value > 65535)
      return false;
    if (name == "--ranks") {
      plan->rank_count = value;
    } else if (name == "--hosts") {
      plan->host_count = value;
    } else if (name == "--port") {
      plan->port = static_cast<uint16_t>(value);
    } else {
      return false;
    }
  }
  return plan->host_count <= plan->rank_count;
}

}  // namespace
}  // namespace yard::collective

int main(int argc, char** argv) {
  yard::collective::Plan plan;
  if (!yard::collective::parse(argc, argv, &plan)) {
    fmt::print(stderr, "usage: {} [--ranks N] [--hosts H] [--port P]\n", argv[0]);
    return 2;
  }
  std::vector<pid_t> children;
  for (int rank = 0; rank < plan.rank_count; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(yard::collective::run_rank(plan, rank));
    if (pid > 0) children.push_back(pid);
  }
  int failures = plan.rank_count - static_cast<int>(children.size());
  for (const pid_t pid : children) {
    int status = 0;
    if (::waitpid(pid, &status, 0) != pid || status != 0) ++failures;
  }
  return failures == 0 ? 0 : 1;
}
