#include <zlib.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/bounded_queue.h"
#include "channels/tar_tree.h"

namespace yard::channels {
namespace {

constexpr size_t kPieceBytes = 1 << 20;
constexpr int kLevel = 5;       // two thirds of the time of 6, one percent more bytes
constexpr int kGzip = 15 + 16;  // window bits, with gzip's frame

struct Piece {
  std::vector<std::byte> plain;
  std::vector<std::byte> packed;
  bool done = false;
};

void compress_piece(Piece& piece) {
  z_stream stream = {};
  YARD_CHECK(deflateInit2(&stream, kLevel, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  piece.packed.resize(deflateBound(&stream, uLong(piece.plain.size())));
  stream.next_in = reinterpret_cast<Bytef*>(piece.plain.data());
  stream.avail_in = uInt(piece.plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(piece.packed.data());
  stream.avail_out = uInt(piece.packed.size());
  YARD_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  piece.packed.resize(stream.total_out);
  deflateEnd(&stream);
}

}  // namespace

// Pieces leave in the order in which they came; at most twice as many as threads are held.
struct ParallelGzip::Impl {
  Impl(int thread_count, ByteSink to) : sink(std::move(to)), room(size_t(thread_count) * 2) {
    for (int i = 0; i < thread_count; ++i) threads.emplace_back([this] { work(); });
  }

  void work() {
    while (auto piece = queue.pop()) {
      compress_piece(**piece);
      const std::lock_guard lock(mutex);
      (*piece)->done = true;
      changed.notify_all();
    }
  }
  Status send_oldest() {
    const std::shared_ptr<Piece> piece = order.front();
    order.pop_front();
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return piece->done; });
    }
    return sink(piece->packed);
  }
  Status submit() {
    if (order.size() >= room) YARD_TRY(send_oldest());
    auto piece = std::make_shared<Piece>();
    piece->plain = std::move(current);
    current.clear();
    order.push_back(piece);
    queue.push(std::move(piece));
    return Ok{};
  }

  const ByteSink sink;
  const size_t room;
  std::vector<std::byte> current;
  std::deque<std::shared_ptr<Piece>> order;
  BoundedQueue<std::shared_ptr<Piece>> queue{1024};
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::thread> threads;
};

ParallelGzip::ParallelGzip(int thread_count, ByteSink sink)
    : impl_(std::make_unique<Impl>(std::clamp(thread_count, 1, 64), std::move(sink))) {}

ParallelGzip::~ParallelGzip() {
  impl_->queue.close();
  for (std::thread& thread : impl_->threads) thread.join();
}

Status ParallelGzip::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const size_t some = std::min(bytes.size(), kPieceBytes - impl_->current.size());
    impl_->current.insert(impl_->current.end(), bytes.begin(), bytes.begin() + ptrdiff_t(some));
    bytes = bytes.subspan(some);
    if (impl_->current.size() == kPieceBytes) YARD_TRY(impl_->submit());
  }
  return Ok{};
}

Status ParallelGzip::finish() {
  if (!impl_->current.empty()) YARD_TRY(impl_->submit());
  while (!impl_->order.empty()) YARD_TRY(impl_->send_oldest());
  return Ok{};
}

}  // namespace yard::channels
