// The group of one: nothing to agree on, so every operation is done when it is issued.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <vector>

#include "collective/collective.h"
#include "collective/group_internal.h"

namespace yard::collective {
namespace {

class DoneWork : public Work {
 public:
  explicit DoneWork(Status status) : status_(std::move(status)) {}
  Status wait() override { return status_; }
  bool done() const override { return true; }

 private:
  Status status_;
};

class OwnBuffer : public SharedBuffer {
 public:
  explicit OwnBuffer(size_t size_bytes)
      : size_bytes_(size_bytes), lines_((size_bytes + sizeof(Line) - 1) / sizeof(Line)) {}
  std::span<std::byte> bytes() override {
    return std::as_writable_bytes(std::span(lines_)).first(size_bytes_);
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64] = {};
  };
  size_t size_bytes_;
  std::vector<Line> lines_;
};

class SingleRankGroup : public Group {
 public:
  explicit SingleRankGroup(KeptDoors doors = {}) : doors_(std::move(doors)) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }

  std::unique_ptr<Work> all_reduce(std::span<std::byte> inout, DType dtype, ReduceOp op) override {
    YARD_CHECK(inout.size() % size_bytes_of(dtype) == 0 && reduces(op, dtype));
    return finished();
  }
  std::unique_ptr<Work> reduce_scatter(std::span<const std::byte> in, std::span<std::byte> out,
                                       DType dtype, ReduceOp) override {
    YARD_CHECK(out.size() % size_bytes_of(dtype) == 0);
    return copy(in, out);
  }
  std::unique_ptr<Work> all_gather(std::span<const std::byte> in,
                                   std::span<std::byte> out) override {
    return copy(in, out);
  }
  std::unique_ptr<Work> broadcast(std::span<std::byte>, int root) override {
    YARD_CHECK(root == 0);
    return finished();
  }
  std::unique_ptr<Work> barrier() override { return finished(); }

  std::unique_ptr<Work> all_reduce_coalesced(std::vector<std::span<std::byte>>, DType dtype,
                                             ReduceOp op) override {
    YARD_CHECK(reduces(op, dtype));
    return finished();
  }
  std::unique_ptr<Work> reduce(std::span<std::byte> inout, DType dtype, ReduceOp op,
                               int root) override {
    YARD_CHECK(root == 0);
    return all_reduce(inout, dtype, op);
  }
  std::unique_ptr<Work> gather(std::span<const std::byte> in, std::span<std::byte> out,
                               int root) override {
    YARD_CHECK(root == 0);
    return copy(in, out);
  }
  std::unique_ptr<Work> scatter(std::span<const std::byte> in, std::span<std::byte> out,
                                int root) override {
    YARD_CHECK(root == 0);
    return copy(in, out);
  }
  std::unique_ptr<Work> all_to_all(std::vector<std::span<const std::byte>> ins,
                                   std::vector<std::span<std::byte>> outs) override {
    YARD_CHECK(ins.size() == 1 && outs.size() == 1);
    if (ins[0].size() != outs[0].size())
      return refused("all_to_all: gives and takes differ in size");
    return copy(ins[0], outs[0]);
  }
  std::unique_ptr<Work> send(std::span<const std::byte>, int, uint64_t) override {
    return refused("send: a rank cannot talk to itself");
  }
  std::unique_ptr<Work> receive(std::span<std::byte>, int, uint64_t, int*) override {
    return refused("receive: a rank cannot talk to itself");
  }
  Result<std::unique_ptr<Group>> split(int color, int) override {
    YARD_TRY(status());
    return color < 0 ? std::unique_ptr<Group>() : std::make_unique<SingleRankGroup>();
  }
  Result<std::unique_ptr<Group>> shrink(const ShrinkOptions& options) override {
    if (!options.without.empty()) return Error{Code::kInvalidArgument, "shrink: nobody is left"};
    return std::unique_ptr<Group>(std::make_unique<SingleRankGroup>(doors_));
  }
  std::vector<FlightRecord> flight() const override { return {}; }

  Result<std::unique_ptr<SharedBuffer>> allocate(size_t size_bytes) override {
    YARD_TRY(status());
    return std::unique_ptr<SharedBuffer>(std::make_unique<OwnBuffer>(size_bytes));
  }

  void abort(std::string_view reason) override {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = {Code::kUnavailable, "rank 0 gave up: " + std::string(reason)};
  }
  double wait_seconds() const override { return 0; }

 private:
  Status status() const {
    std::lock_guard lock(mutex_);
    if (error_) return *error_;
    return Ok{};
  }
  std::unique_ptr<Work> finished() const { return std::make_unique<DoneWork>(status()); }
  static std::unique_ptr<Work> refused(const char* message) {
    return std::make_unique<DoneWork>(Error{Code::kInvalidArgument, message});
  }
  std::unique_ptr<Work> copy(std::span<const std::byte> in, std::span<std::byte> out) const {
    YARD_CHECK(in.size() == out.size());
    if (!in.empty()) std::memmove(out.data(), in.data(), in.size());
    return finished();
  }

  const KeptDoors doors_;
  mutable std::mutex mutex_;
  std::optional<Error> error_;
};

}  // namespace

std::unique_ptr<Group> single_rank_group() {
  return std::make_unique<SingleRankGroup>();
}

std::unique_ptr<Group> single_rank_group(KeptDoors doors) {
  return std::make_unique<SingleRankGroup>(std::move(doors));
}

}  // namespace yard::collective
