#include "net/md5_group.h"

#include <algorithm>
#include <cstring>
#include <semaphore>

#include "net/md5_blocks_internal.h"

namespace yard {

using net_internal::kMd5BlockBytes;
using net_internal::Md5Lane;

struct Md5Group::Piece {
  Stream& stream;
  Md5Lane lane;
  bool is_hashed = false;  // else its thread shall gather
  std::binary_semaphore go_on{0};
};

Md5Group::Md5Group(Options options)
    : options_(options), lane_count_(net_internal::md5_lane_count()) {}

Md5Group::~Md5Group() = default;

Md5Group::Counts Md5Group::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

// Whether nobody else is likely to come soon.
bool Md5Group::is_complete() const {
  if (waiting_.size() >= lane_count_) return true;
  const auto now = std::chrono::steady_clock::now();
  return std::ranges::none_of(streams_, [&](const Stream* stream) {
    return stream->is_idle_ && now - stream->seen_at_ < options_.recent;
  });
}

// The front piece and as many others as there are lanes; the next one's thread then gathers. What
// is hashed now is waited for unless the lanes are full: else two halves that take turns would
// never come together.
std::vector<Md5Group::Piece*> Md5Group::gather(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return batches_hashed_now_ == 0 || waiting_.size() >= lane_count_; });
  changed_.wait_for(lock, options_.gather_time, [&] { return is_complete(); });
  const auto count = std::ptrdiff_t(std::min(waiting_.size(), lane_count_));
  const std::vector<Piece*> batch(waiting_.begin(), waiting_.begin() + count);
  waiting_.erase(waiting_.begin(), waiting_.begin() + count);
  if (!waiting_.empty()) waiting_.front()->go_on.release();
  counts_.piece_count += batch.size();
  ++counts_.batch_count;
  ++batches_hashed_now_;
  return batch;
}

void Md5Group::run(Piece& piece) {
  std::unique_lock lock(mutex_);
  piece.stream.is_idle_ = false;
  waiting_.push_back(&piece);
  if (waiting_.size() > 1) {
    changed_.notify_one();
    lock.unlock();
    piece.go_on.acquire();
    lock.lock();  // who released it is done with it then
    if (piece.is_hashed) return;
  }
  const std::vector<Piece*> batch = gather(lock);
  lock.unlock();
  std::vector<Md5Lane> lanes;
  for (const Piece* each : batch) lanes.push_back(each->lane);
  net_internal::md5_blocks(lanes);
  lock.lock();
  --batches_hashed_now_;
  changed_.notify_one();
  const auto now = std::chrono::steady_clock::now();
  for (Piece* each : batch) {
    each->stream.is_idle_ = true;
    each->stream.seen_at_ = now;
    if (each == &piece) continue;
    each->is_hashed = true;
    each->go_on.release();
  }
}

Md5Group::Stream::Stream(Md5Group& group) : group_(group), state_(net_internal::kMd5StateFirst) {
  const std::lock_guard lock(group_.mutex_);
  group_.streams_.push_back(this);
}

Md5Group::Stream::~Stream() {
  const std::lock_guard lock(group_.mutex_);
  std::erase(group_.streams_, this);
  group_.changed_.notify_one();
}

void Md5Group::Stream::add_to_tail(std::span<const std::byte>& bytes) {
  const size_t filled = size_bytes_ % kMd5BlockBytes;
  const size_t taken = std::min(bytes.size(), kMd5BlockBytes - filled);
  std::memcpy(tail_.data() + filled, bytes.data(), taken);
  size_bytes_ += taken;
  bytes = bytes.subspan(taken);
  if (size_bytes_ % kMd5BlockBytes != 0) return;
  Md5Lane lane{&state_, tail_.data(), 1};
  net_internal::md5_blocks({&lane, 1});
}

void Md5Group::Stream::update(std::span<const std::byte> bytes) {
  if (size_bytes_ % kMd5BlockBytes != 0 && !bytes.empty()) add_to_tail(bytes);
  if (const size_t block_count = bytes.size() / kMd5BlockBytes; block_count > 0) {
    Piece piece{*this, {&state_, bytes.data(), block_count}};
    group_.run(piece);
    size_bytes_ += block_count * kMd5BlockBytes;
    bytes = bytes.subspan(block_count * kMd5BlockBytes);
  }
  if (!bytes.empty()) add_to_tail(bytes);
}

// A bit of ones, zeros, and the length in bits end the last block (RFC 1321, section 3.1).
std::string Md5Group::Stream::digest() const {
  std::array<std::byte, 2 * kMd5BlockBytes> end{};
  const size_t filled = size_bytes_ % kMd5BlockBytes;
  std::memcpy(end.data(), tail_.data(), filled);
  end[filled] = std::byte{0x80};
  const size_t block_count = filled < kMd5BlockBytes - sizeof(uint64_t) ? 1 : 2;
  const uint64_t size_bits = size_bytes_ * 8;
  std::memcpy(end.data() + block_count * kMd5BlockBytes - sizeof size_bits, &size_bits,
              sizeof size_bits);
  net_internal::Md5State state = state_;
  Md5Lane lane{&state, end.data(), block_count};
  net_internal::md5_blocks({&lane, 1});
  std::string digest(sizeof state, '\0');
  std::memcpy(digest.data(), state.data(), sizeof state);
  return digest;
}

}  // namespace yard
