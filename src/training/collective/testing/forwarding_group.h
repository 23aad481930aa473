// For tests: a Group that hands everything on to another; a test overrides what shall differ.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "collective/collective.h"

namespace yard::collective {

// `inner` outlives it.
class ForwardingGroup : public Group {
 public:
  explicit ForwardingGroup(Group& inner) : inner_(&inner) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::unique_ptr<Work> all_reduce(std::span<std::byte> inout, DType dtype, ReduceOp op) override {
    return inner_->all_reduce(inout, dtype, op);
  }
  std::unique_ptr<Work> reduce_scatter(std::span<const std::byte> in, std::span<std::byte> out,
                                       DType dtype, ReduceOp op) override {
    return inner_->reduce_scatter(in, out, dtype, op);
  }
  std::unique_ptr<Work> all_gather(std::span<const std::byte> in,
                                   std::span<std::byte> out) override {
    return inner_->all_gather(in, out);
  }
  std::unique_ptr<Work> broadcast(std::span<std::byte> inout, int root) override {
    return inner_->broadcast(inout, root);
  }
  std::unique_ptr<Work> barrier() override { return inner_->barrier(); }
  std::unique_ptr<Work> all_reduce_coalesced(std::vector<std::span<std::byte>> inouts, DType dtype,
                                             ReduceOp op) override {
    return inner_->all_reduce_coalesced(std::move(inouts), dtype, op);
  }
  std::unique_ptr<Work> reduce(std::span<std::byte> inout, DType dtype, ReduceOp op,
                               int root) override {
    return inner_->reduce(inout, dtype, op, root);
  }
  std::unique_ptr<Work> gather(std::span<const std::byte> in, std::span<std::byte> out,
                               int root) override {
    return inner_->gather(in, out, root);
  }
  std::unique_ptr<Work> scatter(std::span<const std::byte> in, std::span<std::byte> out,
                                int root) override {
    return inner_->scatter(in, out, root);
  }
  std::unique_ptr<Work> all_to_all(std::vector<std::span<const std::byte>> ins,
                                   std::vector<std::span<std::byte>> outs) override {
    return inner_->all_to_all(std::move(ins), std::move(outs));
  }
  std::unique_ptr<Work> send(std::span<const std::byte> bytes, int to, uint64_t tag) override {
    return inner_->send(bytes, to, tag);
  }
  std::unique_ptr<Work> receive(std::span<std::byte> bytes, int from, uint64_t tag,
                                int* source) override {
    return inner_->receive(bytes, from, tag, source);
  }
  Result<std::unique_ptr<Group>> split(int color, int key) override {
    return inner_->split(color, key);
  }
  Result<std::unique_ptr<Group>> shrink(const ShrinkOptions& options) override {
    return inner_->shrink(options);
  }
  std::vector<FlightRecord> flight() const override { return inner_->flight(); }
  Result<std::unique_ptr<SharedBuffer>> allocate(size_t size_bytes) override {
    return inner_->allocate(size_bytes);
  }
  void abort(std::string_view reason) override { inner_->abort(reason); }
  double wait_seconds() const override { return inner_->wait_seconds(); }

 protected:
  Group* inner_;
};

}  // namespace yard::collective
