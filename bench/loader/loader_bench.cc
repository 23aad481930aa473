// Samples per second of the loader over the shards under a folder or s3:// URL:
//   loader_bench URL [--size 256] [--batch 32] [--threads 2] [--batches 60] [--full] [--raw]
//                    [--read-ahead BYTES] [--prefetch BATCHES]
//                    [--rate SAMPLES_PER_SECOND [--busy]] [--waits]
// --full: no DCT scaling; --raw: members as they are; --rate: the consumer takes no more than that,
// from the first batch on, and sleeps between, or with --busy uses a core as one that computes
// does; --waits: when it waited for more than a millisecond, a line each on stderr.
// Prints "rate R wait W memory M": samples per second after a warm-up, the share of that time in
// which the consumer waited, and the peak memory of the process in MiB; then the loader's own
// words.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "loader/loader.h"
#include "storage/location.h"

namespace {

using namespace yard;

using Time = std::chrono::steady_clock::time_point;

constexpr int kWarmUpBatches = 6;

struct Flags {
  std::string url;
  loader::LoaderOptions loader{.global_batch_size = 32, .image_size = 256};
  int batches = 60;
  double rate = 0;
  bool is_busy = false;
  bool tells_waits = false;
};

storage::Environment environment() {
  storage::Environment variables;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view text(*each);
    const size_t equals = text.find('=');
    if (equals != text.npos) variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

std::optional<Flags> parse(int argc, char** argv) {
  Flags flags;
  flags.loader.thread_count = 2;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::atof(argv[++i]) : 0; };
    if (name == "--size")
      flags.loader.image_size = int(value());
    else if (name == "--batch")
      flags.loader.global_batch_size = int64_t(value());
    else if (name == "--threads")
      flags.loader.thread_count = int(value());
    else if (name == "--batches")
      flags.batches = int(value());
    else if (name == "--read-ahead")
      flags.loader.read_ahead_bytes_max = uint64_t(value());
    else if (name == "--rate")
      flags.rate = value();
    else if (name == "--prefetch")
      flags.loader.prefetch_batch_count = int64_t(value());
    else if (name == "--busy")
      flags.is_busy = true;
    else if (name == "--waits")
      flags.tells_waits = true;
    else if (name == "--full")
      flags.loader.render.dct_scaling = false;
    else if (name == "--raw")
      flags.loader.raw = true;
    else if (flags.url.empty() && !name.starts_with("--"))
      flags.url = name;
    else
      return std::nullopt;
  }
  if (flags.url.empty()) return std::nullopt;
  return flags;
}

Time now() {
  return std::chrono::steady_clock::now();
}

double seconds_between(Time begin, Time end) {
  return std::chrono::duration<double>(end - begin).count();
}

// What a consumer does until its next batch is due.
void consume_until(Time due, bool is_busy) {
  if (!is_busy) return std::this_thread::sleep_until(due);
  while (now() < due) {
  }
}

struct Taken {
  double seconds = 0;
  double wait_seconds = 0;
};

// After the warm-up.
Result<Taken> take_batches(loader::Loader& loader, const Flags& flags) {
  Time first = now(), begin = first;
  double waited_before = 0;
  for (int i = 0; i < kWarmUpBatches + flags.batches; ++i) {
    if (i == kWarmUpBatches) {
      begin = now();
      waited_before = loader.wait_seconds();
    }
    const Time asked = now();
    YARD_ASSIGN(loader::Batch batch, loader.next({}));
    const double wait_seconds = seconds_between(asked, now());
    if (flags.tells_waits && wait_seconds > 1e-3)
      fmt::print(stderr, "{:.3f} s: batch {} came after {:.1f} ms\n", seconds_between(first, now()),
                 i, wait_seconds * 1e3);
    loader.recycle(std::move(batch.images));
    if (i == 0) first = now();
    if (flags.rate > 0)
      consume_until(
          first + std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(
                      double(i + 1) * double(batch.size) / flags.rate)),
          flags.is_busy);
  }
  return Taken{seconds_between(begin, now()), loader.wait_seconds() - waited_before};
}

Status measure(Flags flags) {
  YARD_ASSIGN(const auto shards, storage::open_location(flags.url, {.environment = environment()}));
  std::string prefix = shards.key;
  if (!prefix.empty() && !prefix.ends_with('/')) prefix += '/';
  YARD_ASSIGN(const auto objects, storage::list_all(*shards.store, prefix));
  for (const auto& object : objects)
    if (object.key.ends_with(".tar")) flags.loader.shards.push_back(object.key);
  CounterRegistry counters;
  YARD_ASSIGN(const auto loader, loader::Loader::open(*shards.store, flags.loader, {}, counters));
  YARD_ASSIGN(const Taken taken, take_batches(*loader, flags));
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  fmt::print("rate {:.1f} wait {:.4f} memory {}\n",
             double(flags.batches * flags.loader.global_batch_size) / taken.seconds,
             taken.wait_seconds / taken.seconds, usage.ru_maxrss / 1024);
  fmt::print("{}\n", loader->report().to_string());
  return Ok{};
}

}  // namespace

int main(int argc, char** argv) {
  const auto flags = parse(argc, argv);
  if (!flags) {
    fmt::print(
        stderr,
        "usage: loader_bench URL [--size N] [--batch N] [--threads N] [--batches N] [--full] "
        "[--raw] [--read-ahead BYTES] [--prefetch N] [--rate N [--busy]] [--waits]\n");
    return 2;
  }
  const auto measured = measure(*flags);
  if (measured) return 0;
  fmt::print(stderr, "loader_bench: {}\n", measured.error().message);
  return 1;
}
