// Saves a state of 500 MB on 1 and 2 ranks, loads it on other numbers of ranks, and does beside
// each what bounds it: one memcpy of the state, plain reading of the files.
//
// Usage: checkpoint_bench FOLDER ROUNDS. Prints "<name> <seconds> ..." with one value a round.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "checkpoint/load.h"
#include "checkpoint/saver.h"
#include "checkpoint/staging.h"
#include "collective/rendezvous.h"
#include "storage/directory_store.h"

namespace {

using namespace yard;
using checkpoint::CheckpointManifest;
using checkpoint::CheckpointStore;
using checkpoint::Region;
using checkpoint::StagingBuffer;
using checkpoint::TensorInfo;

constexpr uint64_t kTensorCount = 125;
constexpr uint64_t kRows = 1000;
constexpr uint64_t kColumns = 1000;  // f32: 4 MB each, 500 MB together
constexpr uint64_t kTensorBytes = kRows * kColumns * 4;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The first failure ends the bench: there is nothing to measure then.
void must(const Status& status) {
  if (status) return;
  std::fprintf(stderr, "checkpoint_bench: %s\n", status.error().message.c_str());
  std::exit(1);
}

void print(const std::string& name, const std::vector<double>& values) {
  std::printf("%s", name.c_str());
  for (const double value : values) std::printf(" %.5f", value);
  std::printf("\n");
  std::fflush(stdout);
}

// Rank `rank`'s rows of every tensor, in one piece of memory that is there.
struct RankState {
  StagingBuffer memory;
  std::vector<checkpoint::TensorTarget> targets;

  RankState(int rank, int world_size) {
    const auto r = static_cast<uint64_t>(rank), n = static_cast<uint64_t>(world_size);
    const uint64_t begin = kRows * r / n, end = kRows * (r + 1) / n;
    const uint64_t size_bytes = (end - begin) * kColumns * 4;
    must(memory.reserve(size_bytes * kTensorCount));
    const TensorInfo info{"F32", {kRows, kColumns}};
    for (uint64_t i = 0; i < kTensorCount; ++i)
      targets.push_back({"layer." + std::to_string(i) + ".weight", info,
                         Region::slice(info.shape, 0, begin, end),
                         memory.bytes().subspan(i * size_bytes, size_bytes)});
  }
  std::vector<checkpoint::TensorView> views() const {
    std::vector<checkpoint::TensorView> views;
    for (const auto& target : targets)
      views.push_back({target.name, target.info, target.region, target.bytes});
    return views;
  }
  void fill(int round) {
    uint32_t word = static_cast<uint32_t>(round) * 2654435761U;
    for (const auto& target : targets)
      for (size_t i = 0; i < target.bytes.size(); i += 4) {
        word = word * 1664525U + 1013904223U;
        std::memcpy(target.bytes.data() + i, &word, 4);
      }
  }
};

struct Figures {
  std::vector<double> blocked_s, memcpy_s, save_s;
};

Figures measure_saves(const std::string& folder, checkpoint::Exchange& exchange, int rounds) {
  auto store = storage::DirectoryStore::open(folder);
  if (!store) must(store.error());
  checkpoint::Saver saver(CheckpointStore(**store, "run"), exchange,
                          {.retention = {.keep_last = 1}});
  RankState state(exchange.rank(), exchange.size());
  StagingBuffer copy;
  const uint64_t size_bytes = kTensorCount * state.targets[0].bytes.size();
  must(copy.reserve(size_bytes));
  must(saver.reserve(size_bytes));
  Figures figures;
  for (int round = 0; round < rounds; ++round) {
    state.fill(round);
    if (!exchange.all_gather("filled")) std::exit(1);  // ranks measure at the same time
    double begin = now_s();
    std::memcpy(copy.bytes().data(), state.memory.bytes().data(), size_bytes);
    figures.memcpy_s.push_back(now_s() - begin);
    if (!exchange.all_gather("copied")) std::exit(1);
    begin = now_s();
    must(saver.save(round, state.views()));
    figures.blocked_s.push_back(now_s() - begin);
    must(saver.wait());
    figures.save_s.push_back(now_s() - begin);
  }
  return figures;
}

void measure_rank(const std::string& folder, int rank, int world_size, uint16_t port, int rounds) {
  std::unique_ptr<collective::Group> group;
  if (world_size == 1) {
    group = collective::single_rank_group();
  } else {
    auto connected = collective::connect(
        {.rank = rank, .world_size = world_size, .master_port = port, .run_id = "bench"},
        StopToken());
    if (!connected) must(connected.error());
    group = *std::move(connected);
  }
  const auto exchange = checkpoint::exchange_over(*group);
  const Figures figures = measure_saves(folder, *exchange, rounds);
  if (rank != 0) return;
  const std::string suffix = "_" + std::to_string(world_size) + "rank";
  print("memcpy" + suffix, figures.memcpy_s);
  print("blocked" + suffix, figures.blocked_s);
  print("save" + suffix, figures.save_s);
}

// Ranks are processes, as in training.
void measure_ranks(const std::string& folder, int world_size, int rounds) {
  const auto port = static_cast<uint16_t>(20000 + ::getpid() % 20000);
  std::vector<pid_t> children;
  for (int rank = 0; rank < world_size; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      measure_rank(folder, rank, world_size, port, rounds);
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    if (::waitpid(child, &status, 0) != child || status != 0) std::exit(1);
  }
}

// Every file from front to back into memory that is there, by as many threads as cores.
double read_plainly(const std::vector<std::string>& paths, std::span<std::byte> memory) {
  struct Part {
    const std::string* path;
    uint64_t offset;
    std::span<std::byte> out;
  };
  constexpr uint64_t kPartBytes = uint64_t{4} << 20;
  std::vector<Part> parts;
  for (const std::string& path : paths)
    for (uint64_t at = 0, size = std::filesystem::file_size(path); at < size; at += kPartBytes) {
      const uint64_t part = std::min(kPartBytes, size - at);
      parts.push_back({&path, at, memory.first(part)});
      memory = memory.subspan(part);
    }
  const double begin = now_s();
  std::atomic<size_t> next = 0;
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < std::max(2U, std::thread::hardware_concurrency()); ++i)
      threads.emplace_back([&] {
        for (size_t p = next++; p < parts.size(); p = next++) {
          const UniqueFd fd(::open(parts[p].path->c_str(), O_RDONLY | O_CLOEXEC));
          const auto out = parts[p].out;
          if (::pread(fd.get(), out.data(), out.size(), off_t(parts[p].offset)) !=
              ssize_t(out.size()))
            std::exit(1);
        }
      });
  }
  return now_s() - begin;
}

// What 2 ranks saved, by 1 rank and by 3 one after the other; all files are in the page cache.
void measure_loads(const std::string& folder, int rounds) {
  auto store = storage::DirectoryStore::open(folder);
  if (!store) must(store.error());
  const CheckpointStore checkpoints(**store, "run");
  auto latest = checkpoints.latest();
  if (!latest || !*latest) must(Error{Code::kNotFound, "no checkpoint"});
  const CheckpointManifest& manifest = **latest;
  std::vector<std::string> paths;
  uint64_t file_bytes = 0;
  for (const auto& file : manifest.files) {
    paths.push_back(folder + "/" + checkpoints.folder_of(manifest.step) + file.name);
    file_bytes += file.size_bytes;
  }
  StagingBuffer memory;
  must(memory.reserve(file_bytes));
  RankState whole(0, 1);
  std::vector<RankState> thirds;
  for (int rank = 0; rank < 3; ++rank) thirds.emplace_back(rank, 3);
  std::vector<double> plain_s, whole_s, thirds_s;
  for (int round = 0; round <= rounds; ++round) {
    const double plain = read_plainly(paths, memory.bytes());
    double begin = now_s();
    must(load(checkpoints, manifest, whole.targets));
    const double one = now_s() - begin;
    begin = now_s();
    for (RankState& state : thirds) must(load(checkpoints, manifest, state.targets));
    const double three = now_s() - begin;
    if (round == 0) continue;  // brings the files into the page cache
    plain_s.push_back(plain);
    whole_s.push_back(one);
    thirds_s.push_back(three);
  }
  print("read", plain_s);
  print("load_1rank", whole_s);
  print("load_3ranks", thirds_s);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: checkpoint_bench FOLDER ROUNDS\n");
    return 2;
  }
  const std::string folder = argv[1];
  const int rounds = std::max(1, std::atoi(argv[2]));
  measure_ranks(folder, 1, rounds);
  measure_ranks(folder, 2, rounds);
  measure_loads(folder, rounds);
  return 0;
}
