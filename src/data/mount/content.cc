#include "mount/content.h"

#include <algorithm>
#include <bit>

#include "mount/content_internal.h"
#include "telemetry/metric_names.h"

namespace yard::mount {
namespace {

// A file of this size is fetched whole by the first read: with its head still below 128 KiB.
constexpr uint64_t kWholeFileBytes = 124 << 10;
constexpr uint64_t kPartBytesMin = 128 << 10;
constexpr uint64_t kPartBytesMax = 4 << 20;
constexpr uint64_t kPartsOfWindow = 16;
constexpr uint64_t kFlowBytesMin = 1 << 20;
constexpr uint64_t kFileAheadBytesMax = 1 << 20;

// A request should flow as long as it waits for its first byte: longer ones would leave the
// window's bytes to too few connections, shorter ones cost more requests. Where one connection's
// rate is not known, or is beyond what is left to gain, a share of the window.
uint64_t part_bytes_of(uint64_t window_bytes, const storage::StoreSpeed& speed) {
  const double flow =
      speed.stream_bytes_per_second * std::chrono::duration<double>(speed.latency).count();
  uint64_t bytes =
      std::max(window_bytes / kPartsOfWindow, std::min(window_bytes / 4, kFlowBytesMin));
  if (flow > 0) bytes = std::min(bytes, std::max(static_cast<uint64_t>(flow), kFlowBytesMin));
  return std::clamp(std::bit_floor(bytes + bytes / 2), kPartBytesMin,
                    kPartBytesMax);  // the nearest
}

// The share of the memory that what nobody waits for may have.
uint64_t ahead_budget(uint64_t budget_bytes) {
  return budget_bytes / 4 * 3;
}

}  // namespace

Content::Content(storage::ObjectStore& store, storage::StoreWait& wait, Memory& memory,
                 FetchQueue& queue, DiskCache* cache, CounterRegistry& counters,
                 ContentOptions options, StopToken stop, Clock& clock)
    : store_(store),
      wait_(wait),
      memory_(memory),
      queue_(queue),
      cache_(cache),
      options_(std::move(options)),
      stop_(std::move(stop)),
      clock_(clock),
      counts_{counters.counter(metric::kMountReads),
              counters.counter(metric::kMountReadBytes),
              counters.counter(metric::kMountLateReads),
              counters.counter(metric::kMountReadWaitSeconds),
              counters.counter(metric::kMountFetchedBytes),
              counters.counter(metric::kMountObjectRequests),
              counters.counter(metric::kMountUnusedBytes),
              counters.counter(metric::kMountChangedObjects)} {}

Content::~Content() {
  for (const auto& [key, file] : files_) abandon(*file, nullptr);
  // Versions that were replaced while they were open.
  while (!recent_.empty()) erase(PartPointer(recent_.front()));
}

void Content::end() {
  YARD_CHECK(stop_.stopped());
  serve_starved();
}

// ---- files

Content::FilePointer Content::file_of(const ObjectVersion& version) {
  FilePointer& file = files_[version.key];
  if (file && file->version == version && !file->failure) return file;
  if (file && file->open_count == 0) abandon(*file, nullptr);
  file = std::make_shared<File>();
  file->version = version;
  return file;
}

std::shared_ptr<Content::Handle> Content::open(const ObjectVersion& version) {
  const std::lock_guard lock(mutex_);
  FilePointer file = file_of(version);
  ++file->open_count;
  return std::make_shared<Handle>(std::move(file));
}

void Content::close(const std::shared_ptr<Handle>& handle) {
  {
    const std::lock_guard lock(mutex_);
    set_window(*handle, 0);
    const FilePointer& file = handle->file;
    --file->open_count;
    abandon(*file, file->open_count == 0 ? nullptr : handle.get());
    drop_if_idle(file);
  }
  serve_starved();
}

void Content::drop_if_idle(const FilePointer& file) {
  if (file->open_count > 0 || !file->parts.empty()) return;
  const auto found = files_.find(file->version.key);
  if (found != files_.end() && found->second == file) files_.erase(found);
}

bool Content::fetch_ahead(const ObjectVersion& version) {
  const uint64_t size_bytes = std::min(version.size_bytes, kFileAheadBytesMax);
  if (size_bytes == 0) return true;
  const std::lock_guard lock(mutex_);
  const auto known = files_.find(version.key);
  if (known != files_.end() && known->second->version == version &&
      (known->second->open_count > 0 || !known->second->parts.empty()))
    return true;
  Memory::Buffer buffer = take_ahead(size_bytes);
  if (!buffer) return false;
  const FilePointer file = file_of(version);
  start(add_part(file, {0, size_bytes}, std::move(buffer), nullptr), FetchQueue::Urgency::kAhead);
  return true;
}

// ---- reads

void Content::read(const std::shared_ptr<Handle>& handle, uint64_t offset, uint64_t size_bytes,
                   Done done) {
  const uint64_t file_bytes = handle->file->version.size_bytes;
  counts_.reads.add(1);
  if (offset >= file_bytes || size_bytes == 0) return done(Pieces());
  auto read = std::make_shared<Read>();
  read->handle = handle;
  read->offset = offset;
  read->size_bytes = std::min(size_bytes, file_bytes - offset);
  read->done = std::move(done);
  read->begun = clock_.now();
  Reads ready;
  {
    const std::lock_guard lock(mutex_);
    const ReadAhead::Plan plan = handle->read_ahead.on_read(
        offset, read->size_bytes, window_bytes_max(), store_.speed().latency, read->begun);
    if (plan.left_stream) {
      abandon(*handle->file, handle.get());
      handle->ahead_end = 0;
    }
    set_window(*handle, plan.window_bytes);
    if (!starved_.empty() || !begin(read)) {
      read->is_late = true;
      starved_.push_back(read);
    } else if (read->missing_count == 0) {
      read->is_over = true;
      ready.push_back(read);
    } else {
      handle->read_ahead.on_late(offset);
    }
    extend_window(*handle, handle->file, offset + read->size_bytes);
  }
  complete(ready);
}

std::vector<Content::Gap> Content::gaps(const File& file, uint64_t offset, uint64_t end) const {
  std::vector<Gap> gaps;
  auto part = file.parts.upper_bound(offset);
  if (part != file.parts.begin()) --part;
  uint64_t at = offset;
  for (; part != file.parts.end() && part->first < end; ++part) {
    if (part->first > at) gaps.push_back({at, part->first - at});
    at = std::max(at, part->first + part->second->size_bytes);
  }
  if (at < end) gaps.push_back({at, end - at});
  return gaps;
}

// All the memory that the read needs at once, or none: reads that hold a half each would wait for
// each other.
bool Content::begin(const ReadPointer& read) {
  const FilePointer& file = read->handle->file;
  std::vector<Gap> missing = gaps(*file, read->offset, read->offset + read->size_bytes);
  if (file->failure && !missing.empty()) {
    read->error = file->failure;
    return true;
  }
  if (file->version.size_bytes <= kWholeFileBytes && file->parts.empty())
    missing = {{0, file->version.size_bytes}};
  uint64_t charge_bytes = 0;
  for (const Gap& gap : missing) charge_bytes += Memory::charge_bytes(gap.size_bytes);
  if (charge_bytes > 0 && !make_room(charge_bytes, false)) return false;
  std::vector<Memory::Buffer> buffers;
  for (const Gap& gap : missing) {
    buffers.push_back(memory_.take(gap.size_bytes));
    if (!buffers.back()) return false;
  }
  for (size_t i = 0; i < missing.size(); ++i)
    start(add_part(file, missing[i], std::move(buffers[i]), nullptr),
          FetchQueue::Urgency::kAwaited);
  attach(read);
  return true;
}

void Content::attach(const ReadPointer& read) {
  const auto& parts = read->handle->file->parts;
  const uint64_t end = read->offset + read->size_bytes;
  auto part = parts.upper_bound(read->offset);
  YARD_CHECK(part != parts.begin());
  for (--part; part != parts.end() && part->first < end; ++part) {
    const PartPointer& of = part->second;
    const Piece piece{of, std::max(read->offset, of->offset) - of->offset,
                      std::min(end, of->offset + of->size_bytes) - of->offset};
    read->pieces.push_back(piece);
    recent_.splice(recent_.begin(), recent_, of->recent);
    if (of->filled_bytes >= piece.end) continue;
    ++read->missing_count;
    read->is_late = true;
    of->waiters.push_back(read);
    // It was queued behind what nobody waits for.
    if (!of->is_started) start(of, FetchQueue::Urgency::kAwaited);
  }
}

// ---- ahead of the reader

uint64_t Content::window_bytes_max() const {
  const auto streams = static_cast<uint64_t>(std::max(1, stream_count_));
  return std::min(options_.window_bytes_max, ahead_budget(memory_.budget_bytes()) / streams);
}

void Content::set_window(Handle& handle, uint64_t window_bytes) {
  if (handle.window_bytes == 0 && window_bytes > 0) ++stream_count_;
  if (handle.window_bytes > 0 && window_bytes == 0) --stream_count_;
  handle.window_bytes = window_bytes;
}

void Content::extend_window(Handle& handle, const FilePointer& file, uint64_t from) {
  const uint64_t window_bytes = std::min(handle.read_ahead.window_bytes(), window_bytes_max());
  if (window_bytes == 0 || file->failure) return;
  const uint64_t file_bytes = file->version.size_bytes;
  const uint64_t end = std::min(file_bytes, from + window_bytes);
  const uint64_t part_bytes = part_bytes_of(window_bytes, store_.speed());
  uint64_t at = std::max(from, handle.ahead_end);
  while (at < end) {
    // A part at a time, unless it is the file's last.
    if (end - at < part_bytes && end < file_bytes) break;
    const auto missing = gaps(*file, at, std::min(at + part_bytes, file_bytes));
    if (!missing.empty()) {
      const Gap& gap = missing.front();
      Memory::Buffer buffer = take_ahead(gap.size_bytes);
      if (!buffer) break;
      start(add_part(file, gap, std::move(buffer), &handle), FetchQueue::Urgency::kAhead);
      at = gap.offset + gap.size_bytes;
    } else {
      at = std::min(at + part_bytes, file_bytes);
    }
    handle.ahead_end = at;
  }
}

Memory::Buffer Content::take_ahead(uint64_t size_bytes) {
  const uint64_t charge_bytes = Memory::charge_bytes(size_bytes);
  const uint64_t reserve = memory_.budget_bytes() - ahead_budget(memory_.budget_bytes());
  if (!make_room(charge_bytes + reserve, true)) return {};
  return memory_.take(size_bytes);
}

// Drops parts that nobody waits for, of files that are not open first and longest unused first.
bool Content::make_room(uint64_t size_bytes, bool unopened_only) {
  const uint64_t budget = memory_.budget_bytes();
  const auto has_room = [&] { return memory_.used_bytes() + size_bytes <= budget; };
  for (const bool of_unopened : {true, false}) {
    if (!of_unopened && unopened_only) break;
    for (auto part = recent_.end(); part != recent_.begin() && !has_room();) {
      const PartPointer candidate = *--part;
      const bool is_free = (candidate->is_done || !candidate->is_started) &&
                           candidate->waiters.empty() &&
                           (!of_unopened || candidate->file->open_count == 0);
      if (!is_free) continue;
      const auto next = std::next(part);
      erase(candidate);
      drop_if_idle(candidate->file);
      part = next;
    }
  }
  return has_room();
}

// ---- parts

Content::PartPointer Content::add_part(const FilePointer& file, const Gap& gap,
                                       Memory::Buffer buffer, const Handle* owner) {
  auto part = std::make_shared<Part>();
  part->file = file;
  part->offset = gap.offset;
  part->size_bytes = gap.size_bytes;
  part->owner = owner;
  part->buffer = std::move(buffer);
  recent_.push_front(part);
  part->recent = recent_.begin();
  file->parts.emplace(gap.offset, part);
  return part;
}

// From the file; who still holds it may finish with its bytes.
void Content::erase(const PartPointer& part) {
  if (part->is_erased) return;
  part->is_erased = true;
  part->is_abandoned = true;
  counts_.unused_bytes.add(
      static_cast<double>(part->filled_bytes - std::min(part->filled_bytes, part->served_bytes)));
  part->file->parts.erase(part->offset);
  recent_.erase(part->recent);
}

// What `owner` had fetched ahead and nobody waits for; null: of everybody.
void Content::abandon(File& file, const Handle* owner) {
  std::vector<PartPointer> parts;
  for (const auto& [offset, part] : file.parts)
    if (part->waiters.empty() && (owner == nullptr || part->owner == owner)) parts.push_back(part);
  for (const PartPointer& part : parts) erase(part);
}

}  // namespace yard::mount
