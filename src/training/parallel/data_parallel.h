// DataParallel: one model trained by many ranks, each on its share of the batch.
//
// What the ranks share out is chosen by Sharding: nothing, the optimiser's state, the gradients
// besides, or the parameters besides (PyTorch's DDP; ZeRO-1, 2 and 3, Rajbhandari et al. 2020, the
// last two known as FSDP's SHARD_GRAD_OP and FULL_SHARD). Parameters and gradients are flat, in
// units of about `unit_bytes`; docs/parallel.md has the memory of each mode.
//
// Under Sharding::kParameters a unit's parameters have memory only while an operation of libtorch
// needs them: it is gathered when the first such operation begins, in forward and backward alike,
// and the unit that was needed next in the last step is gathered meanwhile. The model's code knows
// nothing of it. Reading a parameter's memory without an operation (data_ptr) is not seen.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "collective/collective.h"
#include "models/module.h"
#include "parallel/sharded_tensor.h"

namespace yard::parallel {

enum class Sharding : uint8_t { kNone, kOptimizer, kGradients, kParameters };

// Where gradients add up over the micro-batches of a step.
enum class Accumulation : uint8_t {
  // Sharding says: whole under kNone and kOptimizer, reduced once a step; otherwise each rank keeps
  // its chunks alone, and every micro-batch is reduced.
  kAsSharded,
  // Whole on every rank, reduced once a step: less communication, more memory.
  kWhole,
};

struct DataParallelOptions {
  Sharding sharding = Sharding::kNone;
  Accumulation accumulation = Accumulation::kAsSharded;
  // Parameters moved by one operation (counted as f32), at least one module.
  int64_t unit_bytes = int64_t{4} << 20;
  // kFloat or kBFloat16: what the model computes with. The optimiser's parameters and gradients are
  // f32 in either case.
  at::ScalarType compute_dtype = at::kFloat;
  // Rounds to kBFloat16 up or down at random, in proportion to the distance, so that the mean is
  // right. Drawn from (seed, step, parameter, element): the same on any number of ranks.
  bool stochastic_rounding = false;
  uint64_t seed = 0;
  // Units whose parameters are in memory at once under kParameters, at least 2: the one in use and
  // the one that comes next.
  int gathered_units = 2;
};

// The ranks that share the model out between them, and those that hold the same part of it. Null:
// this rank alone. With Sharding::kNone `shard` is null; with both, sharding is hybrid: inside
// `shard`, replicated across. Must outlive the DataParallel.
struct ParallelGroups {
  collective::Group* shard = nullptr;
  collective::Group* replicate = nullptr;
};

enum class MicroBatch : uint8_t { kMoreToCome, kLast };

// Makes the start of parameter `index` in an f32 tensor of its shape.
using ParameterStart = std::function<Status(size_t index, at::Tensor& out)>;

// Bytes that this rank holds for a model.
struct ParallelMemory {
  size_t parameters = 0;           // f32, this rank's; the model's own where nothing is sharded
  size_t compute_parameters = 0;   // what the model computes with, where it is other memory
  size_t gradients = 0;            // f32, this rank's
  size_t whole_gradients = 0;      // f32, before they are reduced
  size_t gathered_parameters = 0;  // room for units in use
  size_t gradient_units = 0;       // room for units whose gradients become ready
  size_t total() const {
    return parameters + compute_parameters + gradients + whole_gradients + gathered_parameters +
           gradient_units;
  }
};

// For the thread that made it alone, the model's forward pass too. The parameters' storage belongs
// to this object; see release().
class DataParallel {
 public:
  // `parameters`: f32 leaves on the CPU that require grad, in order of use in the forward pass, the
  // same on every rank. Rank 0's values become everyone's. They are contiguous afterwards.
  // Collective. kInvalidArgument: a parameter, or options, of another kind; kUnavailable: a rank
  // died.
  static Result<std::unique_ptr<DataParallel>> create(std::vector<models::NamedTensor> parameters,
                                                      const ParallelGroups& groups,
                                                      const DataParallelOptions& options);
  // For parameters without values or memory, as models::ParameterList makes them when asked to:
  // `start` is called on rank 0 alone, unit by unit, so that no rank ever holds more than its own
  // part and one unit (under kParameters).
  static Result<std::unique_ptr<DataParallel>> create_deferred(
      std::vector<models::NamedTensor> parameters, const ParameterStart& start,
      const ParallelGroups& groups, const DataParallelOptions& options);
  // Parameters that release() was not called for have no values afterwards, except under
  // Sharding::kNone in f32.
  virtual ~DataParallel() = default;

  // One optimiser step: begin_step(), backward() of each micro-batch's loss, the last one said to
  // be so, then finish(): local_gradients() are the mean over all ranks of the sums over
  // micro-batches. Every rank has as many micro-batches, and its model uses the parameters in the
  // same order.
  virtual void begin_step() = 0;
  // kInternal: libtorch's own; a parameter whose gradient became ready twice in one backward pass
  // (named). Errors of the group come from here or from finish(). kExhausted: memory ran out. The
  // gradients are worthless then, but exchanged as if they were not (except under
  // Sharding::kParameters, where peers are left waiting): the step can be ended, to be begun anew
  // once all ranks know. A loss without parameters takes part with zeros.
  virtual Status backward(const at::Tensor& loss, MicroBatch micro_batch) = 0;
  virtual Status finish() = 0;  // kUnavailable: a rank died (named); see Work::wait

  // This rank's parameters, f32, 1-d, alignment gaps included (they are and stay zero), cut into
  // several tensors where they lie apart. Whoever writes to them calls publish().
  virtual const std::vector<at::Tensor>& local_parameters() const = 0;
  // The gradients likewise, cut likewise.
  virtual const std::vector<at::Tensor>& local_gradients() const = 0;
  // A new buffer laid out as the local parameters, of zeros: moments, averages.
  virtual at::Tensor make_local(at::ScalarType dtype, at::Device device) const = 0;
  // Such a buffer cut as the local parameters are.
  virtual std::vector<at::Tensor> cut(const at::Tensor& local) const = 0;
  // sqrt of the sum of squares over all ranks' gradients, summed in f64: the same value on every
  // rank. Collective.
  virtual Result<double> gradient_norm() = 0;
  // The model computes with what local_parameters() say now. `step` is for stochastic rounding.
  // Collective.
  virtual Status publish(int64_t step) = 0;

  // What this rank holds of each parameter.
  virtual std::vector<ShardedTensor> sharded_parameters(const std::string& prefix) const = 0;
  // What it holds of a buffer of make_local(), under the parameters' names behind `prefix`.
  virtual std::vector<ShardedTensor> sharded(const std::string& prefix,
                                             const at::Tensor& local) const = 0;
  // 0 for the ranks whose pieces make the model whole; others hold copies.
  virtual int replica() const = 0;

  // Whole f32 tensors by name: of the parameters (`local` undefined) or of a buffer of
  // make_local(). Only where `wanted`; empty elsewhere. Collective: every rank calls it.
  virtual Result<std::vector<models::NamedTensor>> gather(const std::string& prefix,
                                                          const at::Tensor& local, bool wanted) = 0;
  // The same of the parameters, in memory of the caller's choice, one after the other: `into` is
  // f32, contiguous, of as many elements as all of them have. Undefined: not wanted here. Besides
  // it no rank has more than its part and one unit. Collective.
  virtual Result<std::vector<models::NamedTensor>> gather_into(at::Tensor into) = 0;
  // The parameters become ordinary f32 tensors with memory of their own, on every rank, and stay
  // up to date with publish(); no further backward(). Collective.
  virtual Status release() = 0;

  virtual ParallelMemory memory() const = 0;
  // Seconds that finish(), publish() and gathering have blocked so far: communication that
  // computing did not hide.
  virtual double exposed_comm_seconds() const = 0;
};

}  // namespace yard::parallel
