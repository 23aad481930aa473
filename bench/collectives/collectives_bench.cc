// Latency of our collectives between processes:
//   collectives_bench --world N [--first R --count C] [--master ADDRESS] [--port P]
// starts ranks R to R + C - 1 of N (all by default) and prints, from rank 0, a line for each
// operation, size and kind of memory: "<operation> <bytes> <private|shared> <median us> <least
// us>". The bytes are those of the larger buffer. Other hosts' ranks are started there, likewise.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "collective/rendezvous.h"

namespace yard::collective {
namespace {

constexpr size_t kSizesBytes[] = {size_t{4} << 10, size_t{64} << 10, size_t{1} << 20,
                                  size_t{4} << 20, size_t{64} << 20};

struct Plan {
  int world = 2;
  int first = 0;
  int count = 0;  // 0: all
  std::string master = "127.0.0.1";
  int port = 29541;
};

// Enough repetitions for about a third of a second at 4 GB/s.
int repetitions_of(size_t size_bytes) {
  return static_cast<int>(std::clamp<size_t>((size_t{1} << 29) / (size_bytes + 65536), 10, 300));
}

using Operation = std::function<std::unique_ptr<Work>()>;

Status measure(Group& group, std::string_view name, size_t size_bytes, std::string_view memory,
               std::span<std::byte> input, const Operation& operation) {
  std::vector<double> micros;
  const int repetitions = repetitions_of(size_bytes);
  // Small ones back to back: alone, one would find its peers already there or far behind.
  const int batch = size_bytes <= 65536 ? 50 : 1;
  for (int i = -repetitions / 10 - 2; i < repetitions; ++i) {
    // As gradients are: freshly written by this rank.
    std::fill(input.begin(), input.end(), std::byte{0});
    YARD_TRY(group.barrier()->wait());
    const auto begin = std::chrono::steady_clock::now();
    for (int j = 0; j < batch; ++j) YARD_TRY(operation()->wait());
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    if (i >= 0) micros.push_back(took.count() / batch);
  }
  std::sort(micros.begin(), micros.end());
  if (group.rank() == 0) {
    fmt::print("{} {} {} {:.1f} {:.1f}\n", name, size_bytes, memory, micros[micros.size() / 2],
               micros[0]);
    std::fflush(stdout);
  }
  return Ok{};
}

Status measure_size(Group& group, size_t size_bytes, std::string_view memory,
                    std::span<std::byte> whole, std::span<std::byte> part) {
  YARD_TRY(measure(group, "all_reduce", size_bytes, memory, whole,
                   [&] { return group.all_reduce(whole, DType::kF32, ReduceOp::kSum); }));
  YARD_TRY(measure(group, "reduce_scatter", size_bytes, memory, whole,
                   [&] { return group.reduce_scatter(whole, part, DType::kF32, ReduceOp::kSum); }));
  YARD_TRY(measure(group, "all_gather", size_bytes, memory, part,
                   [&] { return group.all_gather(part, whole); }));
  return measure(group, "broadcast", size_bytes, memory, whole,
                 [&] { return group.broadcast(whole, 0); });
}

Status run_rank(const Plan& plan, int rank) {
  YARD_ASSIGN(const auto group, connect({.rank = rank,
                                         .world_size = plan.world,
                                         .master_address = plan.master,
                                         .master_port = static_cast<uint16_t>(plan.port),
                                         .run_id = "bench"},
                                        StopToken()));
  for (const size_t size_bytes : kSizesBytes) {
    const size_t part_bytes = size_bytes / static_cast<size_t>(plan.world);
    std::vector<std::byte> own(size_bytes), own_part(part_bytes);
    YARD_ASSIGN(const auto shared, group->allocate(size_bytes));
    YARD_ASSIGN(const auto shared_part, group->allocate(part_bytes));
    YARD_TRY(measure_size(*group, size_bytes, "private", own, own_part));
    YARD_TRY(measure_size(*group, size_bytes, "shared", shared->bytes(), shared_part->bytes()));
  }
  return Ok{};
}

bool parse(int argc, char** argv, Plan* plan) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const std::string_view text = argv[i + 1];
    if (name == "--master") {
      plan->master = text;
      continue;
    }
    int value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc() ||
        value < 0 || value > 65535)
      return false;
    if (name == "--world")
      plan->world = value;
    else if (name == "--first")
      plan->first = value;
    else if (name == "--count")
      plan->count = value;
    else if (name == "--port")
      plan->port = value;
    else
      return false;
  }
  if (plan->count == 0) plan->count = plan->world - plan->first;
  return argc % 2 == 1 && plan->world > 0 && plan->count > 0 &&
         plan->first + plan->count <= plan->world;
}

}  // namespace
}  // namespace yard::collective

int main(int argc, char** argv) {
  using namespace yard::collective;
  Plan plan;
  if (!parse(argc, argv, &plan)) {
    fmt::print(stderr,
               "usage: {} [--world N] [--first R] [--count C] [--master ADDRESS] [--port P]\n",
               argv[0]);
    return 2;
  }
  std::vector<pid_t> children;
  for (int i = 0; i < plan.count; ++i) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      const yard::Status status = run_rank(plan, plan.first + i);
      if (!status) fmt::print(stderr, "rank {}: {}\n", plan.first + i, status.error().message);
      ::_exit(status ? 0 : 1);
    }
    if (pid > 0) children.push_back(pid);
  }
  int failures = plan.count - static_cast<int>(children.size());
  for (const pid_t pid : children) {
    int status = 0;
    if (::waitpid(pid, &status, 0) != pid || status != 0) ++failures;
  }
  return failures == 0 ? 0 : 1;
}
