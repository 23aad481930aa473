// UnitGatherer: gives the units of a sharded model memory when operations of libtorch need them.
//
// Every parameter is a view into its unit's storage, which has no memory of its own. libtorch tells
// us of each operation before it begins (RecordFunction, on our thread); the units its tensors lie
// in are gathered into one of few slots first. The units that were needed longest ago give up
// theirs. What is done depends only on the order of operations, so that all ranks issue the same
// collectives.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/result.h"
#include "collective/collective.h"
#include "parallel/flat_layout.h"

namespace yard::parallel {

// For the thread that made it alone. `layout` and `group` must outlive it.
class UnitGatherer {
 public:
  // `source`: this rank's chunks in the layout's local order, of the type that the model computes
  // with. Collective.
  static Result<std::unique_ptr<UnitGatherer>> create(const FlatLayout& layout,
                                                      collective::Group& group, at::Tensor source,
                                                      int slot_count);
  ~UnitGatherer();
  UnitGatherer(const UnitGatherer&) = delete;
  UnitGatherer& operator=(const UnitGatherer&) = delete;

  // Parameter `index` of that shape, in its unit's storage.
  at::Tensor view(size_t index, at::IntArrayRef shape) const;
  // The chunks have changed: what was gathered is out of date.
  void changed();
  // The first failure of a gather; the values computed since mean nothing.
  const Status& status() const { return status_; }
  double blocked_seconds() const { return blocked_seconds_; }
  size_t memory_bytes() const;

  // What libtorch's callbacks call, before and after an operation.
  void pin(size_t unit);
  void unpin(size_t unit);

 private:
  static constexpr size_t kNone = SIZE_MAX;
  struct Unit {
    c10::Storage storage;
    size_t slot = kNone;
    std::unique_ptr<collective::Work> pending;
    int pin_count = 0;
    // Whether its next use is to be learned from: it has just been gathered or foreseen.
    bool foreseen = false;
    uint64_t used_at = 0;
  };
  struct Slot {
    std::unique_ptr<collective::SharedBuffer> shared;  // or `own`
    at::Tensor own;
    size_t unit = kNone;
    std::byte* data() const;
  };

  UnitGatherer(const FlatLayout& layout, collective::Group& group, at::Tensor source);
  void gather(size_t unit, size_t slot);
  void settle(Unit& unit);
  void evict(size_t slot);
  // The slot whose unit was used longest ago, or an empty one; kNone: all are in use.
  size_t free_slot(size_t beside_unit) const;
  void foresee(size_t unit);
  size_t next_after(size_t before, size_t unit) const;

  const FlatLayout& layout_;
  collective::Group& group_;
  const at::Tensor source_;
  std::vector<Unit> units_;
  std::vector<Slot> slots_;
  uint64_t clock_ = 0;
  // Which unit was needed after (the one before, this one).
  std::map<std::pair<size_t, size_t>, size_t> learned_;
  size_t before_ = kNone, latest_ = kNone;
  Status status_ = Ok{};
  double blocked_seconds_ = 0;
};

}  // namespace yard::parallel
