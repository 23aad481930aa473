#include "parallel/data_parallel.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <array>
#include <cmath>

#include "parallel/flat_layout.h"
#include "parallel/flat_parameters_internal.h"
#include "parallel/gradient_reducer_internal.h"
#include "parallel/sum_of_squares_internal.h"
#include "tensor/guard_torch.h"
#include "tensor/host_tensor.h"

namespace yard::parallel {
namespace {

using models::NamedTensor;

class FlatDataParallel final : public DataParallel {
 public:
  FlatDataParallel(std::vector<NamedTensor> parameters, const ParallelGroups& groups,
                   FlatLayout layout)
      : parameters_(std::move(parameters)), groups_(groups), layout_(std::move(layout)) {}

  Status open(const DataParallelOptions& options, const ParameterStart& start) {
    YARD_ASSIGN(flat_, FlatParameters::create(parameters_, layout_, groups_, options, start));
    const bool whole =
        options.accumulation == Accumulation::kWhole || options.sharding < Sharding::kGradients;
    YARD_ASSIGN(reducer_, GradientReducer::create(parameters_, layout_, groups_, whole));
    local_gradients_ = cut(reducer_->local());
    return Ok{};
  }

  void begin_step() override {
    YARD_CHECK(reducer_ != nullptr);
    reducer_->begin_step();
  }

  Status backward(const at::Tensor& loss, MicroBatch micro_batch) override {
    return tensor::guard_torch("backward pass", [&]() -> Status {
      reducer_->begin_micro_batch(micro_batch);
      const Status computed = tensor::guard_torch("computing gradients", [&]() -> Status {
        loss.backward();
        return Ok{};
      });
      if (!computed && computed.error().code != Code::kExhausted) return computed;
      // Peers wait for this rank's part whether or not its memory sufficed.
      c10::NoGradGuard no_grad;
      const Status exchanged = reducer_->end_micro_batch();
      if (!computed) return computed;
      YARD_TRY(exchanged);
      return flat_->status();
    });
  }

  Status finish() override {
    c10::NoGradGuard no_grad;
    YARD_TRY(reducer_->finish());
    return flat_->status();
  }

  const std::vector<at::Tensor>& local_parameters() const override { return flat_->local(); }
  const std::vector<at::Tensor>& local_gradients() const override { return local_gradients_; }

  at::Tensor make_local(at::ScalarType dtype, at::Device device) const override {
    return at::zeros({layout_.local_elements()}, at::TensorOptions(device).dtype(dtype));
  }

  std::vector<at::Tensor> cut(const at::Tensor& local) const override {
    std::vector<at::Tensor> out;
    for (const LocalCut& c : flat_->cuts())
      out.push_back(local.narrow(0, c.begin, c.element_count));
    return out;
  }

  Result<double> gradient_norm() override {
    std::array<double, 1> sum = {sum_of_squares(tensor::floats_of(reducer_->local()))};
    if (groups_.shard != nullptr)
      YARD_TRY(groups_.shard
                   ->all_reduce(std::as_writable_bytes(std::span(sum)), collective::DType::kF64,
                                collective::ReduceOp::kSum)
                   ->wait());
    return std::sqrt(sum[0]);
  }

  Status publish(int64_t step) override { return flat_->publish(step); }

  std::vector<ShardedTensor> sharded_parameters(const std::string& prefix) const override {
    return describe(prefix, [&](const FlatRange& range) {
      return flat_->local_range(range.local_begin, range.count);
    });
  }

  std::vector<ShardedTensor> sharded(const std::string& prefix,
                                     const at::Tensor& local) const override {
    YARD_CHECK(local.dim() == 1 && local.numel() == layout_.local_elements());
    return describe(prefix, [&](const FlatRange& range) {
      return local.narrow(0, range.local_begin, range.count);
    });
  }

  int replica() const override { return groups_.replicate ? groups_.replicate->rank() : 0; }

  Result<std::vector<NamedTensor>> gather(const std::string& prefix, const at::Tensor& local,
                                          bool wanted) override {
    return tensor::guard_torch("gathering tensors", [&]() -> Result<std::vector<NamedTensor>> {
      std::vector<NamedTensor> places;
      for (size_t i = 0; wanted && i < parameters_.size(); ++i)
        places.push_back(
            {prefix + parameters_[i].name, at::empty(parameters_[i].tensor.sizes(), at::kFloat)});
      YARD_TRY(gather_all(local, places));
      return places;
    });
  }

  Result<std::vector<NamedTensor>> gather_into(at::Tensor into) override {
    return tensor::guard_torch("gathering tensors", [&]() -> Result<std::vector<NamedTensor>> {
      std::vector<NamedTensor> places;
      int64_t offset = 0;
      for (size_t i = 0; into.defined() && i < parameters_.size(); ++i) {
        const int64_t count = layout_.element_counts[i];
        places.push_back({parameters_[i].name,
                          into.narrow(0, offset, count).view(parameters_[i].tensor.sizes())});
        offset += count;
      }
      YARD_TRY(gather_all({}, places));
      return places;
    });
  }

  Status release() override {
    local_gradients_.clear();
    reducer_.reset();
    return tensor::guard_torch("releasing parameters", [&] { return flat_->release(); });
  }

  ParallelMemory memory() const override {
    ParallelMemory memory;
    flat_->add_memory(memory);
    if (reducer_) {
      memory.gradients = reducer_->local().nbytes();
      memory.whole_gradients = reducer_->whole_bytes();
      memory.gradient_units = reducer_->unit_bytes();
    }
    return memory;
  }

  double exposed_comm_seconds() const override {
    return flat_->blocked_seconds() + (reducer_ ? reducer_->blocked_seconds() : 0);
  }

 private:
  template <typename ValuesOf>
  std::vector<ShardedTensor> describe(const std::string& prefix, ValuesOf values_of) const {
    std::vector<ShardedTensor> out;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      ShardedTensor tensor{.name = prefix + parameters_[i].name,
                           .shape = parameters_[i].tensor.sizes().vec()};
      const FlatRange range = layout_.range_of(i, flat_->shard());
      if (range.count > 0)
        tensor.pieces.push_back({.begin = range.begin, .values = values_of(range).detach()});
      if (!tensor.pieces.empty()) tensor.dtype = tensor.pieces[0].values.scalar_type();
      out.push_back(std::move(tensor));
    }
    return out;
  }

  // Into `places`, one per parameter; empty: nowhere.
  Status gather_all(const at::Tensor& local, const std::vector<NamedTensor>& places) {
    c10::NoGradGuard no_grad;
    const at::Tensor here = local.defined() ? local.to(at::kCPU) : local;
    at::Tensor scratch = at::zeros({layout_.largest_unit_elements()}, at::kFloat);
    for (size_t u = 0; u < layout_.units.size(); ++u) {
      YARD_ASSIGN(const at::Tensor values, flat_->gather_unit(u, here, scratch));
      const FlatUnit& unit = layout_.units[u];
      for (size_t k = 0; !places.empty() && k < unit.parameter_count; ++k) {
        const size_t i = unit.first_parameter + k;
        at::Tensor(places[i].tensor).copy_(flat_->view(i, values));
      }
    }
    return Ok{};
  }

  const std::vector<NamedTensor> parameters_;
  const ParallelGroups groups_;
  const FlatLayout layout_;
  std::unique_ptr<FlatParameters> flat_;
  std::unique_ptr<GradientReducer> reducer_;  // null once released
  std::vector<at::Tensor> local_gradients_;
};

Error refuse(std::string why) {
  return {Code::kInvalidArgument, std::move(why)};
}

Status check_options(const ParallelGroups& groups, const DataParallelOptions& options) {
  if ((options.sharding == Sharding::kNone) != (groups.shard == nullptr))
    return refuse("data parallel: a shard group and a sharding belong together");
  if (options.unit_bytes < int64_t{sizeof(float)})
    return refuse("data parallel: unit_bytes is too small for one value");
  if (options.gathered_units < 2) return refuse("data parallel: gathered_units must be at least 2");
  if (options.compute_dtype != at::kFloat && options.compute_dtype != at::kBFloat16)
    return refuse("data parallel: a model computes with f32 or bf16 parameters");
  if (options.stochastic_rounding && options.compute_dtype == at::kFloat)
    return refuse("data parallel: stochastic rounding is for bf16 parameters");
  return Ok{};
}

Status check_parameters(const std::vector<NamedTensor>& parameters) {
  for (const NamedTensor& p : parameters) {
    const at::Tensor& t = p.tensor;
    if (t.scalar_type() != at::kFloat || !t.device().is_cpu() || !t.is_leaf() || !t.requires_grad())
      return refuse("parameter " + p.name +
                    ": data parallel takes f32 leaves on the CPU that require grad");
  }
  return Ok{};
}

FlatLayout layout_of(const std::vector<NamedTensor>& parameters, const ParallelGroups& groups,
                     const DataParallelOptions& options) {
  std::vector<std::string> names;
  std::vector<int64_t> counts;
  for (const NamedTensor& p : parameters) {
    names.push_back(p.name);
    counts.push_back(p.tensor.numel());
  }
  return plan_flat_layout(names, counts, options.unit_bytes / int64_t{sizeof(float)},
                          groups.shard == nullptr ? 1 : groups.shard->size());
}

}  // namespace

Result<std::unique_ptr<DataParallel>> DataParallel::create(std::vector<NamedTensor> parameters,
                                                           const ParallelGroups& groups,
                                                           const DataParallelOptions& options) {
  const auto values = parameters;
  const ParameterStart keep = [&](size_t index, at::Tensor& out) -> Status {
    out.copy_(values[index].tensor);
    return Ok{};
  };
  return create_deferred(std::move(parameters), keep, groups, options);
}

Result<std::unique_ptr<DataParallel>> DataParallel::create_deferred(
    std::vector<NamedTensor> parameters, const ParameterStart& start, const ParallelGroups& groups,
    const DataParallelOptions& options) {
  YARD_TRY(check_options(groups, options));
  YARD_TRY(check_parameters(parameters));
  return tensor::guard_torch(
      "making parameters flat", [&]() -> Result<std::unique_ptr<DataParallel>> {
        FlatLayout layout = layout_of(parameters, groups, options);
        auto made =
            std::make_unique<FlatDataParallel>(std::move(parameters), groups, std::move(layout));
        YARD_TRY(made->open(options, start));
        return std::unique_ptr<DataParallel>(std::move(made));
      });
}

}  // namespace yard::parallel
