// GradientReducer: takes each gradient from autograd as it becomes ready and reduces units of them
// over the ranks while the backward pass goes on.
//
// autograd's own tensor is moved into the unit's place at once and given back. Units are reduced
// from the last to the first, on every rank alike, never in the order in which they become ready.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "collective/collective.h"
#include "models/module.h"
#include "parallel/data_parallel.h"
#include "parallel/flat_layout.h"

namespace yard::parallel {

// For one thread; autograd runs the hooks on it. `layout` and the groups must outlive it.
class GradientReducer {
 public:
  // `whole`: gradients add up whole on every rank and are reduced once a step. Collective.
  static Result<std::unique_ptr<GradientReducer>> create(
      std::vector<models::NamedTensor> parameters, const FlatLayout& layout,
      const ParallelGroups& groups, bool whole);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  void begin_step();
  void begin_micro_batch(MicroBatch micro_batch);
  Status end_micro_batch();  // kInternal: a gradient came twice
  Status finish();

  // This rank's gradients in the layout's local order, after finish().
  const at::Tensor& local() const { return local_; }
  double blocked_seconds() const { return blocked_seconds_; }
  size_t whole_bytes() const;
  size_t unit_bytes() const;  // of the room for units on their way

 private:
  static constexpr size_t kNone = SIZE_MAX;
  // Room for a unit's gradients until they are reduced.
  struct Slot {
    std::unique_ptr<collective::SharedBuffer> memory;  // null: ordinary memory
    at::Tensor whole;
    at::Tensor chunk;  // of a later micro-batch, before it is added; made when first needed
    bool busy = false;
  };
  struct Unit {
    size_t slot = kNone;
    size_t missing_count = 0;  // gradients that this micro-batch has not made yet
  };
  struct Reduction {
    size_t unit = 0;
    std::unique_ptr<collective::Work> work;
    bool is_addend = false;
  };

  GradientReducer(std::vector<models::NamedTensor> parameters, const FlatLayout& layout,
                  const ParallelGroups& groups);
  Status allocate(bool whole);
  void ready(size_t index);
  void take(size_t index);
  // Gives parameters without a gradient zeros.
  void fill_missing(size_t unit);
  void zero(size_t index);
  at::Tensor unit_tensor(size_t unit);
  size_t acquire_slot();
  void launch_down_to(size_t unit);
  void reduce_scatter(size_t unit);
  void replicate(size_t unit);
  void settle_oldest();
  at::Tensor local_chunk(size_t unit) const;
  void note(Status status);
  void wait(std::unique_ptr<collective::Work>& work);

  const std::vector<models::NamedTensor> parameters_;
  const FlatLayout& layout_;
  const ParallelGroups groups_;
  std::unique_ptr<collective::SharedBuffer> whole_memory_, local_memory_;
  at::Tensor whole_;  // undefined where gradients add up in chunks
  at::Tensor local_;
  std::vector<Slot> slots_;
  std::vector<Unit> units_;
  // Whether a parameter's place holds a gradient: of this step where gradients add up whole, of
  // this micro-batch otherwise.
  std::vector<bool> has_value_;
  std::vector<bool> came_;  // in this micro-batch
  std::deque<Reduction> reductions_;
  std::vector<std::unique_ptr<collective::Work>> replications_;
  size_t next_unit_ = 0;  // the units from here on are launched
  bool first_ = true, last_ = false;
  Status status_ = Ok{};
  double blocked_seconds_ = 0;
};

}  // namespace yard::parallel
