#include "storage/parallel_get.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <deque>
#include <memory>

#include "net/encoding.h"

namespace yard::storage {
namespace {

constexpr uint64_t kPartBytesMin = 1 << 20;
constexpr uint64_t kPartBytesMax = 32 << 20;
constexpr uint64_t kPartBytesUnmeasured = 8 << 20;
constexpr double kFlowOverLatency = 8;
constexpr uint64_t kPartsAtOnceMin = 16;

std::string name_of(const ObjectStore& store, const ObjectInfo& info) {
  return fmt::format("{}/{}", store.url(), info.key);
}

Error stopped_error(const ObjectStore& store, const ObjectInfo& info) {
  return {Code::kCancelled, name_of(store, info) + ": stopped"};
}

// The first error of many threads.
class FirstError {
 public:
  void note(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
  }
  bool is_set() const {
    const std::lock_guard lock(mutex_);
    return error_.has_value();
  }
  Status status() const {
    const std::lock_guard lock(mutex_);
    if (error_) return *error_;
    return Ok{};
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Error> error_;
};

}  // namespace

uint64_t choose_part_bytes(const StoreSpeed& speed, uint64_t object_bytes, uint64_t memory_bytes) {
  double wanted = static_cast<double>(kPartBytesUnmeasured);
  if (speed.is_remote && speed.latency.count() > 0 && speed.stream_bytes_per_second > 0)
    wanted = kFlowOverLatency * std::chrono::duration<double>(speed.latency).count() *
             speed.stream_bytes_per_second;
  const double most = static_cast<double>(std::min(object_bytes, memory_bytes) / kPartsAtOnceMin);
  const auto bytes =
      static_cast<uint64_t>(std::clamp(std::min(wanted, most), static_cast<double>(kPartBytesMin),
                                       static_cast<double>(kPartBytesMax)));
  return std::bit_floor(bytes);
}

PartChecksums::PartChecksums(std::string_view checksum) {
  const size_t colon = checksum.find(':');
  if (colon == checksum.npos) return;
  const auto algorithm = parse_checksum_algorithm(checksum.substr(0, colon));
  auto digest = base64_decode(checksum.substr(colon + 1));
  if (!algorithm || !is_crc(*algorithm) || !digest ||
      digest->size() != checksum_size_bytes(*algorithm))
    return;
  algorithm_ = algorithm;
  expected_ = *std::move(digest);
}

void PartChecksums::add(uint64_t offset, std::span<const std::byte> part) {
  if (!is_usable()) return;
  Checksum checksum = start();
  checksum.update(part);
  add(offset, part.size(), checksum);
}

void PartChecksums::add(uint64_t offset, uint64_t size_bytes, const Checksum& of_part) {
  const std::lock_guard lock(mutex_);
  parts_.insert_or_assign(offset, Part{size_bytes, of_part.digest()});
}

Status PartChecksums::check(std::string_view name) const {
  if (!is_usable()) return Ok{};
  const std::lock_guard lock(mutex_);
  std::string digest = Checksum(*algorithm_).digest();
  uint64_t end = 0;
  for (const auto& [offset, part] : parts_) {
    YARD_CHECK(offset == end);
    digest = combine_crc_digests(*algorithm_, digest, part.digest, part.size_bytes);
    end += part.size_bytes;
  }
  if (digest == expected_) return Ok{};
  return Error{Code::kCorrupt, fmt::format("{}: the bytes do not have the {} that the store names",
                                           name, to_string(*algorithm_))};
}

Status parallel_get(ObjectStore& store, const ObjectInfo& info, uint64_t offset,
                    std::span<std::byte> out, const TransferOptions& options) {
  if (out.empty()) return store.get_range(info.key, info.etag, offset, out);
  const bool is_whole = offset == 0 && out.size() == info.size_bytes;
  PartChecksums checksums(is_whole ? std::string_view(info.checksum) : std::string_view());
  FirstError error;
  const uint64_t part_bytes =
      choose_part_bytes(store.speed(), out.size(), options.memory_bytes_max);
  {
    TransferPool pool(options);
    for (uint64_t at = 0; at < out.size(); at += part_bytes) {
      const auto part = out.subspan(at, std::min<uint64_t>(part_bytes, out.size() - at));
      const auto task = [&, at, part]() -> Result<uint64_t> {
        if (error.is_set()) return uint64_t{0};
        auto got = store.get_range(info.key, info.etag, offset + at, part);
        if (!got) {
          error.note(got.error());
          return std::move(got).error();
        }
        checksums.add(at, part);
        return uint64_t{part.size()};
      };
      pool.push(0, task, [&] { error.note(stopped_error(store, info)); });
    }
  }
  YARD_TRY(error.status());
  return checksums.check(name_of(store, info));
}

namespace {

struct OrderedPart {
  std::unique_ptr<std::byte[]> bytes;
  size_t size_bytes = 0;
  std::optional<Status> got;
};

// The parts under way, oldest first; it outlives the pool whose tasks fill them.
struct OrderedParts {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<OrderedPart>> parts;
  bool is_abandoned = false;

  void finish(OrderedPart& part, Status got) {
    const std::lock_guard lock(mutex);
    part.got.emplace(std::move(got));
    changed.notify_all();
  }
};

}  // namespace

Status read_in_order(ObjectStore& store, const ObjectInfo& info,
                     const std::function<Status(std::span<const std::byte>)>& sink,
                     const TransferOptions& options) {
  PartChecksums checksums(info.checksum);
  const uint64_t part_bytes =
      choose_part_bytes(store.speed(), info.size_bytes, options.memory_bytes_max);
  const size_t window = std::max<uint64_t>(1, options.memory_bytes_max / part_bytes);
  OrderedParts state;
  TransferPool pool(options);
  uint64_t next = 0, given = 0;
  const auto start_next = [&] {
    auto part = std::make_shared<OrderedPart>();
    part->size_bytes = std::min(part_bytes, info.size_bytes - next);
    part->bytes = std::make_unique_for_overwrite<std::byte[]>(part->size_bytes);
    const uint64_t offset = next;
    next += part->size_bytes;
    state.parts.push_back(part);
    const auto task = [&, part, offset]() -> Result<uint64_t> {
      {
        const std::lock_guard lock(state.mutex);
        if (state.is_abandoned) return uint64_t{0};
      }
      const std::span<std::byte> out(part->bytes.get(), part->size_bytes);
      auto got = store.get_range(info.key, info.etag, offset, out);
      if (got) checksums.add(offset, out);
      Result<uint64_t> moved = got ? Result<uint64_t>(uint64_t{out.size()}) : got.error();
      state.finish(*part, std::move(got));
      return moved;
    };
    pool.push(0, task, [&, part] { state.finish(*part, stopped_error(store, info)); });
  };
  const auto read_all = [&]() -> Status {
    if (info.size_bytes == 0) return store.get_object(info, {});
    while (given < info.size_bytes) {
      while (next < info.size_bytes && state.parts.size() < window) start_next();
      const auto part = state.parts.front();
      {
        std::unique_lock lock(state.mutex);
        state.changed.wait(lock, [&] { return part->got.has_value(); });
      }
      YARD_TRY(*std::move(part->got));
      if (options.stop.stopped()) return stopped_error(store, info);
      YARD_TRY(sink({part->bytes.get(), part->size_bytes}));
      given += part->size_bytes;
      state.parts.pop_front();
    }
    return checksums.check(name_of(store, info));
  };
  Status done = read_all();
  {
    const std::lock_guard lock(state.mutex);
    state.is_abandoned = true;
  }
  pool.wait_until_idle();
  return done;
}

}  // namespace yard::storage
