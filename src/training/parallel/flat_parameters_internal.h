// FlatParameters: where a model's parameters live, whole or in this rank's chunks, in f32 for the
// optimiser and in the type that the model computes with.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/module.h"
#include "parallel/data_parallel.h"
#include "parallel/flat_layout.h"
#include "parallel/unit_gatherer_internal.h"

namespace yard::parallel {

// A stretch of a local buffer that is one tensor in local_parameters().
struct LocalCut {
  int64_t begin = 0;
  int64_t element_count = 0;
};

// For one thread. `layout` and the groups must outlive it.
class FlatParameters {
 public:
  // See DataParallel::create_deferred().
  static Result<std::unique_ptr<FlatParameters>> create(std::vector<models::NamedTensor> parameters,
                                                        const FlatLayout& layout,
                                                        const ParallelGroups& groups,
                                                        const DataParallelOptions& options,
                                                        const ParameterStart& start);
  ~FlatParameters();
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;

  const std::vector<at::Tensor>& local() const { return local_; }
  const std::vector<LocalCut>& cuts() const { return cuts_; }
  int shard() const { return groups_.shard == nullptr ? 0 : groups_.shard->rank(); }
  Status publish(int64_t step);
  Status release();
  // Unit `unit` whole, f32: of the parameters or of the local buffer `local`. `scratch` has room
  // for the largest unit.
  Result<at::Tensor> gather_unit(size_t unit, const at::Tensor& local, at::Tensor& scratch) const;
  at::Tensor view(size_t index, const at::Tensor& unit) const;
  // The elements [begin, begin + count) of this rank's own.
  at::Tensor local_range(int64_t begin, int64_t count) const;

  bool is_gathering() const { return options_.sharding == Sharding::kParameters; }
  Status status() const { return gatherer_ ? gatherer_->status() : Status(Ok{}); }
  double blocked_seconds() const;
  void add_memory(ParallelMemory& memory) const;

 private:
  FlatParameters(std::vector<models::NamedTensor> parameters, const FlatLayout& layout,
                 const ParallelGroups& groups, const DataParallelOptions& options);
  bool is_rounded() const { return options_.compute_dtype != at::kFloat; }
  Status allocate();
  void cut_local();
  Status start_units(const ParameterStart& start);
  Status start_unit(size_t unit, const ParameterStart& start, at::Tensor values);
  void adopt(size_t index);
  // Of the tensors in which the model computes.
  at::Tensor compute_chunk(size_t unit);
  void round_chunk(size_t unit, int64_t step);
  Status gather_whole();
  Status refill_released();

  const std::vector<models::NamedTensor> parameters_;
  const FlatLayout& layout_;
  const ParallelGroups groups_;
  const DataParallelOptions options_;
  std::unique_ptr<collective::SharedBuffer> whole_memory_;
  at::Tensor whole_;   // every unit, for the model; undefined where they are gathered
  at::Tensor master_;  // this rank's chunks, f32; undefined where they lie in whole_
  at::Tensor chunks_;  // what is gathered: master_, or its values rounded
  std::unique_ptr<UnitGatherer> gatherer_;
  std::vector<LocalCut> cuts_;
  std::vector<at::Tensor> local_;
  bool released_ = false;
  double blocked_seconds_ = 0;
};

}  // namespace yard::parallel
