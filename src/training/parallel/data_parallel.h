// DataParallel: the parameters of a model in one flat buffer, and their gradients averaged over all
// ranks while the backward pass is still running.
//
// Every parameter becomes a view into one f32 buffer, every gradient a view into buckets that lie
// in the collective's shared memory: nothing is copied on the way, the optimiser sees one tensor,
// and a bucket is reduced in place as soon as its last gradient has been accumulated.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "collective/collective.h"

namespace yard::parallel {

struct DataParallelOptions {
  int64_t bucket_bytes = int64_t{4}
                         << 20;  // gradients reduced by one operation, at least one tensor
};

// Not thread-safe; autograd's own threads may run the hooks. `group` must outlive it, and so must
// the parameter tensors' module: their storage belongs to this object afterwards.
class DataParallel {
 public:
  // `parameters`: f32 leaves on the CPU that require grad, in order of use in the forward pass, the
  // same on every rank; their values are kept. Each keeps its shape and, for 4-d weights that are
  // channels-last, its layout. Collective: every rank calls it.
  static Result<std::unique_ptr<DataParallel>> create(const std::vector<at::Tensor>& parameters,
                                                      collective::Group& group,
                                                      const DataParallelOptions& options);
  virtual ~DataParallel() = default;

  // All parameters in one 1-d f32 tensor, alignment gaps included (they are and stay zero). Writing
  // to it changes the model. The layout depends only on the parameters' shapes.
  virtual at::Tensor flat_parameters() = 0;
  // The gradients likewise, at the same offsets.
  virtual at::Tensor flat_gradients() = 0;
  // A view of parameter `index` (its shape) in a buffer laid out as flat_parameters(): how moments
  // and EMA are read and written by name.
  virtual at::Tensor view_of(size_t index, const at::Tensor& flat) const = 0;

  // Rank 0's values on every rank.
  virtual Status broadcast_parameters() = 0;

  // One optimiser step: begin(), then `backward()` of each micro-batch by the caller, the last one
  // after last_micro_batch(), then finish(). Gradients add up over micro-batches; finish() waits
  // until each is the mean over ranks of that sum.
  virtual void begin() = 0;             // zeroes the gradients
  virtual void last_micro_batch() = 0;  // from here buckets are reduced as they become ready
  virtual Status finish() = 0;          // kUnavailable: a rank died (named); see Work::wait

  // Seconds finish() has blocked so far: communication that backward did not hide.
  virtual double exposed_comm_seconds() const = 0;
};

}  // namespace yard::parallel
