// Time from nothing to the first batch of a loader over a data set that is only simulated:
//   resume_bench SAMPLES RESUME_AT ROUNDS
// SAMPLES in shards of 10,000, each with its index, made when it is asked for; every sample holds
// the same small picture. Prints "fresh ..." and "resumed ..." in milliseconds, taken in turn.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "images/picture.h"
#include "loader/loader.h"
#include "shards/shard_index.h"

namespace {

using namespace yard;

constexpr uint64_t kSamplesPerShard = 10'000;
constexpr uint64_t kSampleBytes = 4096;  // a header, the picture, zeros up to here

class SimulatedStore final : public storage::ObjectStore {
 public:
  SimulatedStore() {
    images::Picture picture{24, 16, std::vector<uint8_t>(24 * 16 * 3, 100)};
    picture_ = *images::encode_png(picture);
    YARD_CHECK(picture_.size() + 512 <= kSampleBytes);
    shards::ShardIndexBuilder builder;
    const uint32_t checksum = crc32c(picture_);
    for (uint64_t i = 0; i < kSamplesPerShard; ++i)
      YARD_CHECK(builder.add(fmt::format("{:08}.png", i), i * kSampleBytes + 512, picture_.size(),
                             checksum));
    index_ = builder.finish({.size_bytes = shard_bytes(), .etag = "1"}).encode();
  }

  Status get_range(std::string_view key, std::string_view, uint64_t offset,
                   std::span<std::byte> out) override {
    if (shards::is_index_key(key)) {
      if (offset + out.size() > index_.size()) return Error{Code::kInvalidArgument, "past the end"};
      std::ranges::copy(std::as_bytes(std::span(index_)).subspan(offset, out.size()), out.begin());
      return Ok{};
    }
    for (size_t i = 0; i < out.size(); ++i) {
      const uint64_t place = (offset + i) % kSampleBytes;
      const bool in_picture = place >= 512 && place < 512 + picture_.size();
      out[i] = in_picture ? picture_[place - 512] : std::byte{0};
    }
    return Ok{};
  }
  Result<storage::ObjectInfo> head(std::string_view key) override {
    const uint64_t size_bytes = shards::is_index_key(key) ? index_.size() : shard_bytes();
    return storage::ObjectInfo{.key = std::string(key), .size_bytes = size_bytes, .etag = "1"};
  }
  Result<storage::ListPage> list(const storage::ListRequest&) override { return refused(); }
  Result<storage::ObjectInfo> put(std::string_view, std::span<const std::byte>,
                                  const storage::PutOptions&) override {
    return refused();
  }
  Result<std::unique_ptr<storage::Upload>> upload(std::string_view,
                                                  const storage::PutOptions&) override {
    return refused();
  }
  Result<storage::ObjectInfo> copy(std::string_view, std::string_view,
                                   const storage::PutOptions&) override {
    return refused();
  }
  Status remove(std::string_view) override { return refused(); }
  std::string url() const override { return "simulated:"; }

 private:
  static Error refused() { return {Code::kInvalidArgument, "a simulated store is only read"}; }
  static uint64_t shard_bytes() { return kSamplesPerShard * kSampleBytes + 1024; }
  std::vector<std::byte> picture_;
  std::string index_;
};

Result<double> milliseconds_to_first_batch(SimulatedStore& store, uint64_t sample_count,
                                           uint64_t resume_at) {
  loader::LoaderOptions options{.global_batch_size = 32, .image_size = 16};
  options.caption_member.clear();
  options.thread_count = 2;
  options.index_bytes_max = uint64_t{64} << 20;
  for (uint64_t i = 0; i < sample_count / kSamplesPerShard; ++i)
    options.shards.push_back(fmt::format("{:06}.tar", i));
  CounterRegistry counters;
  const auto begin = std::chrono::steady_clock::now();
  YARD_ASSIGN(const auto loader,
              loader::Loader::open(store, options, {.batch = resume_at / 32}, counters));
  YARD_TRY(loader->next({}));
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

Status run(uint64_t sample_count, uint64_t resume_at, int rounds) {
  SimulatedStore store;
  std::string fresh, resumed;
  for (int round = 0; round < rounds; ++round) {
    YARD_ASSIGN(const double from_start, milliseconds_to_first_batch(store, sample_count, 0));
    YARD_ASSIGN(const double from_there,
                milliseconds_to_first_batch(store, sample_count, resume_at));
    fresh += fmt::format(" {:.1f}", from_start);
    resumed += fmt::format(" {:.1f}", from_there);
  }
  fmt::print("fresh{}\nresumed{}\n", fresh, resumed);
  return Ok{};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: resume_bench SAMPLES RESUME_AT ROUNDS\n");
    return 2;
  }
  const auto done = run(std::strtoull(argv[1], nullptr, 10), std::strtoull(argv[2], nullptr, 10),
                        std::atoi(argv[3]));
  if (done) return 0;
  fmt::print(stderr, "resume_bench: {}\n", done.error().message);
  return 1;
}
