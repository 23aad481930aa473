// How the bytes of parts come, and where they go.
#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "mount/content_internal.h"
#include "storage/request_deadline.h"

namespace yard::mount {
namespace {

// A request that nobody needs any more is broken off when it would bring more than this: a new
// connection costs about as much.
constexpr uint64_t kWorthBreakingOff = 1 << 20;

bool is_of_the_object(Code code) {
  return code == Code::kCorrupt || code == Code::kNotFound;
}

}  // namespace

void Content::start(const PartPointer& part, FetchQueue::Urgency urgency) {
  // The queue must not hold the memory of a part that is dropped before its turn.
  queue_.push(urgency, [this, waiting = std::weak_ptr<Part>(part)]() -> Result<uint64_t> {
    PartPointer due = waiting.lock();
    if (!due) return uint64_t{0};
    auto fetched = fetch(due);
    due.reset();
    serve_starved();  // with the memory that it may have held as the last one
    return fetched;
  });
}

Result<uint64_t> Content::fetch(const PartPointer& part) {
  {
    const std::lock_guard lock(mutex_);
    if (part->is_started || part->is_erased) return uint64_t{0};
    part->is_started = true;
  }
  const std::span<std::byte> bytes(part->buffer.data(), part->size_bytes);
  if (cache_ != nullptr && cache_->read(part->file->version, part->offset, bytes)) {
    Reads ready;
    {
      const std::lock_guard lock(mutex_);
      part->filled_bytes = part->size_bytes;
      ready = wake(*part);
    }
    complete(ready);
    finish(part);
    return uint64_t{0};  // says nothing of the store's speed
  }
  auto fetched = fetch_from_store(part);
  if (fetched && cache_ != nullptr && part->filled_bytes == part->size_bytes)
    cache_->write(part->file->version, part->offset, bytes);
  return fetched;
}

Result<uint64_t> Content::fetch_from_store(const PartPointer& part) {
  const ObjectVersion& version = part->file->version;
  const Clock::Monotonic since = clock_.now();
  const storage::RequestDeadline deadline(wait_.end(since));
  for (int attempt = 0;; ++attempt) {
    // What came before a failure stays: the ETag says that it is of the same bytes.
    const uint64_t from = part->filled_bytes;
    const auto sink = [&](uint64_t position, std::span<const std::byte> bytes) {
      return take_bytes(part, from + position, bytes);
    };
    counts_.requests.add(1);
    Status got = stop_.stopped()
                     ? Error{Code::kCancelled, "the mount is ending"}
                     : store_.get_range_to(version.key, version.etag, part->offset + from,
                                           part->size_bytes - from, sink);
    if (got) {
      wait_.note_answer();
      finish(part);
      return part->size_bytes;
    }
    Error error = std::move(got).error();
    if (part->is_abandoned || !wait_.wait(error, since, attempt)) {
      fail(part, error);
      return error;
    }
  }
}

// On a thread of the HTTP client.
Status Content::take_bytes(const PartPointer& part, uint64_t at, std::span<const std::byte> bytes) {
  // A request that the client repeats begins at the start again.
  const uint64_t known = part->filled_bytes - std::min(part->filled_bytes, at);
  if (part->is_abandoned && part->size_bytes - part->filled_bytes > kWorthBreakingOff)
    return Error{Code::kCancelled, "nobody reads on"};
  counts_.fetched_bytes.add(static_cast<double>(bytes.size()));
  if (bytes.size() <= known) return Ok{};
  bytes = bytes.subspan(known);
  if (at + known != part->filled_bytes || bytes.size() > part->size_bytes - part->filled_bytes)
    return Error{Code::kInternal, part->file->version.key + ": bytes out of order"};
  std::memcpy(part->buffer.data() + part->filled_bytes, bytes.data(), bytes.size());
  Reads ready;
  {
    const std::lock_guard lock(mutex_);
    part->filled_bytes += bytes.size();
    ready = wake(*part);
  }
  complete(ready);
  return Ok{};
}

// The reads that this part held up and does no more.
Content::Reads Content::wake(Part& part) {
  Reads ready;
  std::erase_if(part.waiters, [&](const ReadPointer& read) {
    if (read->is_over) return true;
    const auto piece = std::ranges::find_if(
        read->pieces, [&](const Piece& each) { return each.part.get() == &part; });
    if (part.filled_bytes < piece->end) return false;
    if (--read->missing_count == 0) {
      read->is_over = true;
      ready.push_back(read);
    }
    return true;
  });
  return ready;
}

void Content::finish(const PartPointer& part) {
  const std::lock_guard lock(mutex_);
  part->is_done = true;
}

void Content::fail(const PartPointer& part, const Error& error) {
  Reads ready;
  bool is_news = false;
  {
    const std::lock_guard lock(mutex_);
    File& file = *part->file;
    is_news = is_of_the_object(error.code) && !file.failure;
    if (is_news) file.failure = error;
    for (const ReadPointer& read : part->waiters) {
      if (read->is_over) continue;
      read->is_over = true;
      read->error = error;
      ready.push_back(read);
    }
    part->waiters.clear();
    erase(part);
    drop_if_idle(part->file);
  }
  if (is_news) {
    counts_.changed.add(1);
    log_warning("{}/{}: is not the version that was opened any more; its readers get EIO: {}",
                store_.url(), part->file->version.key, error.message);
    if (options_.on_changed) options_.on_changed(part->file->version);
  }
  complete(ready);
}

void Content::complete(const Reads& reads) {
  for (const ReadPointer& read : reads) {
    if (read->is_late) {
      const auto waited = clock_.now() - read->begun;
      counts_.late_reads.add(1);
      counts_.wait_seconds.add(std::chrono::duration<double>(waited).count());
      const std::lock_guard lock(mutex_);
      read->handle->read_ahead.on_waited(waited);
    }
    if (read->error) {
      read->done(*read->error);
      continue;
    }
    Pieces pieces;
    for (const Piece& piece : read->pieces)
      pieces.emplace_back(piece.part->buffer.data() + piece.begin, piece.end - piece.begin);
    read->done(std::move(pieces));
    counts_.read_bytes.add(static_cast<double>(read->size_bytes));
    const std::lock_guard lock(mutex_);
    for (const Piece& piece : read->pieces) {
      Part& part = *piece.part;
      part.served_bytes += piece.end - piece.begin;
      const bool is_whole = part.filled_bytes == part.size_bytes && part.waiters.empty();
      if (is_whole && part.served_bytes >= part.size_bytes) erase(piece.part);  // the kernel has it
    }
    read->pieces.clear();
    const FilePointer& file = read->handle->file;
    if (file->open_count == 0) {  // closed while it was read
      abandon(*file, nullptr);
      drop_if_idle(file);
    }
  }
  if (!reads.empty()) serve_starved();
}

// Reads for which there was no memory.
void Content::serve_starved() {
  Reads ready;
  {
    const std::lock_guard lock(mutex_);
    while (!starved_.empty()) {
      const ReadPointer read = starved_.front();
      if (!stop_.stopped() && !begin(read)) break;
      if (stop_.stopped() && !read->error)
        read->error = Error{Code::kCancelled, "the mount is ending"};
      starved_.pop_front();
      if (!read->error && read->missing_count > 0) continue;
      read->is_over = true;
      ready.push_back(read);
    }
  }
  if (!ready.empty()) complete(ready);
}

}  // namespace yard::mount
