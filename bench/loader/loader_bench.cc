// Samples per second of the loader:
//   loader_bench SHARDS_DIR [SIZE [BATCH [THREADS [BATCHES]]]]
// prints "ours <samples per second>": batches of SIZE px, normalised floats, after a warm-up.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "loader/loader.h"

namespace {

constexpr int kWarmUpBatches = 6;

yard::Result<double> measure(const std::string& dir, int size, int batch_size, int threads,
                             int batches) {
  using namespace yard;
  YARD_ASSIGN(const storage::Location shards, storage::open_directory(dir));
  YARD_ASSIGN(const auto objects, storage::list_all(*shards.store, ""));
  loader::LoaderOptions options{.global_batch_size = batch_size, .image_size = size};
  options.thread_count = threads;
  for (const auto& object : objects)
    if (object.key.ends_with(".tar")) options.shards.push_back(object.key);
  CounterRegistry counters;
  YARD_ASSIGN(const auto loader, loader::Loader::open(*shards.store, options, {}, counters));
  auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kWarmUpBatches + batches; ++i) {
    if (i == kWarmUpBatches) begin = std::chrono::steady_clock::now();
    YARD_ASSIGN(loader::Batch batch, loader->next({}));
    loader->recycle(std::move(batch.images));
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return batches * batch_size / took.count();
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, int fallback) { return argc > i ? std::atoi(argv[i]) : fallback; };
  if (argc < 2) {
    fmt::print(stderr, "usage: loader_bench SHARDS_DIR [SIZE [BATCH [THREADS [BATCHES]]]]\n");
    return 2;
  }
  const auto rate = measure(argv[1], number(2, 256), number(3, 32), number(4, 2), number(5, 60));
  if (!rate) {
    fmt::print(stderr, "loader_bench: {}\n", rate.error().message);
    return 1;
  }
  fmt::print("ours {:.1f}\n", *rate);
  return 0;
}
