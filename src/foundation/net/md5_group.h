// Md5Group: the MD5 of bodies that arrive at the same time, computed side by side in the lanes of
// the CPU's vectors. What one stream costs alone, several cost together.
//
//   Md5Group group;                    // one for a server
//   Md5Group::Stream md5(group);       // one for a body
//   md5.update(piece);                 // large pieces: each waits for those of other bodies
//   std::string digest = md5.digest();
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace yard {

// Thread-safe. Outlives its streams.
class Md5Group {
 public:
  struct Options {
    // Other streams that gave bytes within `recent` are waited for, but no longer than
    // `gather_time`: so much a fast stream beside slow ones loses with each piece.
    std::chrono::microseconds gather_time{200};
    std::chrono::milliseconds recent{20};
  };
  Md5Group() : Md5Group(Options()) {}
  explicit Md5Group(Options options);
  ~Md5Group();
  Md5Group(const Md5Group&) = delete;
  Md5Group& operator=(const Md5Group&) = delete;

  class Stream;
  // Pieces so far, and in how many goes they were hashed.
  struct Counts {
    uint64_t piece_count = 0;
    uint64_t batch_count = 0;
  };
  Counts counts() const;

 private:
  struct Piece;
  void run(Piece& piece);
  bool is_complete() const;
  std::vector<Piece*> gather(std::unique_lock<std::mutex>& lock);

  const Options options_;
  const size_t lane_count_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Stream*> streams_;
  std::vector<Piece*> waiting_;  // the front one's thread gathers, if there is any
  size_t batches_hashed_now_ = 0;
  Counts counts_;
};

// Used by one thread at a time; update() blocks for as long as hashing and gathering take.
class Md5Group::Stream {
 public:
  explicit Stream(Md5Group& group);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void update(std::span<const std::byte> bytes);
  // 16 bytes, of what was given so far; update() may go on afterwards.
  std::string digest() const;

 private:
  friend class Md5Group;
  void add_to_tail(std::span<const std::byte>& bytes);

  Md5Group& group_;
  std::array<uint32_t, 4> state_;
  std::array<std::byte, 64> tail_;  // the start of the next block
  uint64_t size_bytes_ = 0;
  // The group's:
  bool is_idle_ = false;  // it gave a piece, and none is waiting or hashed
  std::chrono::steady_clock::time_point seen_at_{};  // when the last one was hashed
};

}  // namespace yard
