// Step time and memory of a small language model under ZeRO-2 or ZeRO-3, each rank a process.
//
//   zero_bench SHARDING RANKS STEPS PORT      SHARDING: 2 or 3
//
// Prints "ours zeroN RANKS median_ms least_ms rank0_mib", the last: growth of the resident memory,
// the part shared with other processes too, from before the model was made to the end.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/gelu.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "collective/rendezvous.h"
#include "models/layers.h"
#include "parallel/adamw.h"
#include "parallel/data_parallel.h"

namespace {

using namespace yard;

// peer_fsdp2.py has the same numbers.
constexpr int64_t kWidth = 256, kLayers = 8, kHeads = 8, kVocabulary = 2048;
constexpr int64_t kBatch = 4, kTokens = 128;
constexpr int kWarmUp = 5;

// Pre-norm attention and a perceptron of two layers, eight times; no positions, no biases.
class LanguageModel {
 public:
  explicit LanguageModel(models::WeightStart start) : list_(start) {
    const models::Scope root(list_);
    embedding_ = root.add("embedding.weight", {kVocabulary, kWidth}, models::Init::kNormal, 0.02);
    for (int64_t i = 0; i < kLayers; ++i) blocks_.emplace_back(root / "blocks" / i);
    norm_.emplace(root / "norm", kWidth, 1e-5);
    out_.emplace(root / "out", kWidth, kVocabulary, false);
    models::set_requires_grad(list_.all(), true);
  }
  const models::ParameterList& list() const { return list_; }
  at::Tensor loss(const at::Tensor& tokens, const at::Tensor& targets) const {
    at::Tensor h = at::embedding(embedding_, tokens);
    for (const Block& block : blocks_) h = block(h);
    return at::cross_entropy_loss((*out_)((*norm_)(h)).view({-1, kVocabulary}), targets.view({-1}));
  }

 private:
  struct Block {
    explicit Block(const models::Scope& scope)
        : norm1(scope / "norm1", kWidth, 1e-5),
          q(scope / "q", kWidth, kWidth, false),
          k(scope / "k", kWidth, kWidth, false),
          v(scope / "v", kWidth, kWidth, false),
          o(scope / "o", kWidth, kWidth, false),
          norm2(scope / "norm2", kWidth, 1e-5),
          up(scope / "up", kWidth, 4 * kWidth, false),
          down(scope / "down", 4 * kWidth, kWidth, false) {}
    at::Tensor operator()(const at::Tensor& x) const {
      const at::Tensor n = norm1(x);
      const at::Tensor h = x + o(models::attention(q(n), k(n), v(n), kHeads, /*causal=*/true));
      return h + down(at::gelu(up(norm2(h))));
    }
    models::LayerNorm norm1;
    models::Linear q, k, v, o;
    models::LayerNorm norm2;
    models::Linear up, down;
  };
  models::ParameterList list_;
  at::Tensor embedding_;
  std::vector<Block> blocks_;
  std::optional<models::LayerNorm> norm_;
  std::optional<models::Linear> out_;
};

double resident_mib() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line))
    if (line.starts_with("VmRSS:")) return std::strtod(line.c_str() + 6, nullptr) / 1024;
  return 0;
}

[[noreturn]] void give_up(const Error& error) {
  std::fprintf(stderr, "zero_bench: %s\n", error.message.c_str());
  std::_Exit(1);
}

template <typename T>
T must(Result<T> result) {
  if (!result) give_up(result.error());
  return *std::move(result);
}

double run_step(parallel::DataParallel& parallel, parallel::AdamW& adamw,
                const LanguageModel& model, const at::Tensor& tokens, const at::Tensor& targets) {
  const auto start = std::chrono::steady_clock::now();
  parallel.begin_step();
  must(parallel.backward(model.loss(tokens, targets), parallel::MicroBatch::kLast));
  must(parallel.finish());
  must(adamw.step(1e-4));
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

void run_rank(int rank, int ranks, parallel::Sharding sharding, int steps, uint16_t port) {
  at::set_num_threads(1);
  const auto group = must(collective::connect(
      {.rank = rank, .world_size = ranks, .master_port = port, .run_id = "zero"}, StopToken()));
  const double before_mib = resident_mib();
  const LanguageModel model(models::WeightStart::later(1));
  const auto start = [&](size_t index, at::Tensor& out) -> Status {
    model.list().start(index, out);
    return Ok{};
  };
  // Units as large as a block, which is what the peer wraps.
  const auto parallel = must(parallel::DataParallel::create_deferred(
      model.list().all(), start, {.shard = group.get()},
      {.sharding = sharding, .unit_bytes = 12 * kWidth * kWidth * 4 + 4096}));
  const auto adamw = must(parallel::AdamW::create(*parallel, {}));
  std::vector<int64_t> numbers(kBatch * (kTokens + 1));
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<int64_t>((i * 7919 + static_cast<size_t>(rank) * 31) % kVocabulary);
  const at::Tensor all = at::from_blob(numbers.data(), {kBatch, kTokens + 1}, at::kLong);
  const at::Tensor tokens = all.slice(1, 0, kTokens).contiguous();
  const at::Tensor targets = all.slice(1, 1, kTokens + 1).contiguous();
  std::vector<double> times_ms;
  for (int i = 0; i < kWarmUp + steps; ++i) {
    const double ms = run_step(*parallel, *adamw, model, tokens, targets);
    if (i >= kWarmUp) times_ms.push_back(ms);
  }
  if (rank != 0) return;
  std::sort(times_ms.begin(), times_ms.end());
  std::printf("ours zero%d %d %.2f %.2f %.1f\n", sharding == parallel::Sharding::kGradients ? 2 : 3,
              ranks, times_ms[times_ms.size() / 2], times_ms[0], resident_mib() - before_mib);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs("usage: zero_bench SHARDING RANKS STEPS PORT\n", stderr);
    return 2;
  }
  const auto sharding =
      std::atoi(argv[1]) == 2 ? parallel::Sharding::kGradients : parallel::Sharding::kParameters;
  const int ranks = std::atoi(argv[2]), steps = std::atoi(argv[3]);
  const auto port = static_cast<uint16_t>(std::atoi(argv[4]));
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      run_rank(rank, ranks, sharding, steps, port);
      std::fflush(stdout);
      std::_Exit(0);
    }
    pids.push_back(pid);
  }
  int worst = 0;
  for (const pid_t pid : pids) {
    int status = 0;
    waitpid(pid, &status, 0);
    if (status != 0) worst = 1;
  }
  return worst;
}
