#include "parallel/data_parallel.h"

#include <ATen/ops/as_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <chrono>
#include <functional>
#include <string>

#include "parallel/bucket_plan.h"
#include "tensor/guard_torch.h"

namespace yard::parallel {
namespace {

using collective::DType;
using collective::ReduceOp;

// Autograd calls this after it has added a parameter's gradient to .grad.
class GradientReady final : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit GradientReady(std::function<void()> ready) : ready_(std::move(ready)) {}
  void operator()(const torch::autograd::Variable&) override { ready_(); }

 private:
  std::function<void()> ready_;
};

bool is_channels_last(const at::Tensor& tensor) {
  return tensor.dim() == 4 && !tensor.is_contiguous() &&
         tensor.is_contiguous(at::MemoryFormat::ChannelsLast);
}

class FlatDataParallel final : public DataParallel {
 public:
  FlatDataParallel(std::vector<at::Tensor> parameters, collective::Group& group, BucketPlan plan,
                   std::unique_ptr<collective::SharedBuffer> gradient_memory)
      : parameters_(std::move(parameters)),
        group_(group),
        plan_(std::move(plan)),
        gradient_memory_(std::move(gradient_memory)),
        works_(plan_.buckets.size()),
        missing_count_(plan_.buckets.size()) {
    flat_parameters_ = at::zeros({plan_.element_count}, at::kFloat);
    flat_gradients_ = at::from_blob(gradient_memory_->bytes().data(), {plan_.element_count},
                                    at::TensorOptions().dtype(at::kFloat));
    flat_gradients_.zero_();
    for (size_t i = 0; i < parameters_.size(); ++i) adopt(i);
  }

  ~FlatDataParallel() override {
    // The hooks point at us and the gradients into memory that is unmapped with us.
    for (at::Tensor& parameter : parameters_) {
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
      parameter.mutable_grad().reset();
    }
  }

  at::Tensor flat_parameters() override { return flat_parameters_; }
  at::Tensor flat_gradients() override { return flat_gradients_; }

  at::Tensor view_of(size_t index, const at::Tensor& flat) const override {
    const at::Tensor& like = parameters_[index];
    return at::as_strided(flat, like.sizes(), like.strides(), plan_.offsets[index]);
  }

  Status broadcast_parameters() override {
    return group_.broadcast(bytes_of(flat_parameters_, 0, plan_.element_count), 0)->wait();
  }

  void begin() override {
    flat_gradients_.zero_();
    last_ = false;
    next_bucket_ = 0;
    for (size_t b = 0; b < missing_count_.size(); ++b) {
      missing_count_[b] = plan_.buckets[b].parameter_count;
    }
  }

  void last_micro_batch() override { last_ = true; }

  Status finish() override {
    YARD_CHECK(last_);
    // Parameters that took no part in this backward have a zero gradient and no hook call.
    launch_until(plan_.buckets.size());
    const auto start = std::chrono::steady_clock::now();
    Status result = Ok{};
    for (auto& work : works_) {
      if (Status status = work->wait(); !status && result) result = std::move(status);
      work.reset();
    }
    exposed_seconds_ +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    last_ = false;
    return result;
  }

  double exposed_comm_seconds() const override { return exposed_seconds_; }

 private:
  // Moves parameter `i` into the flat buffer and its gradient into the shared one.
  void adopt(size_t i) {
    c10::NoGradGuard no_grad;
    at::Tensor& parameter = parameters_[i];
    // Dense in either layout, so that the flat buffer holds each element once.
    const at::Tensor dense = is_channels_last(parameter) ? parameter : parameter.contiguous();
    at::Tensor value =
        at::as_strided(flat_parameters_, dense.sizes(), dense.strides(), plan_.offsets[i]);
    value.copy_(parameter);
    parameter.set_data(value);
    parameter.mutable_grad() =
        at::as_strided(flat_gradients_, dense.sizes(), dense.strides(), plan_.offsets[i]);
    torch::autograd::impl::set_post_acc_grad_hooks(
        parameter, std::make_unique<GradientReady>([this, i] { gradient_ready(i); }));
  }

  void gradient_ready(size_t index) {
    if (!last_) return;
    size_t& missing = missing_count_[plan_.bucket_of[index]];
    YARD_CHECK(missing > 0);
    --missing;
    // In the plan's order, never in the order of readiness: all ranks must issue the same calls.
    size_t ready = next_bucket_;
    while (ready < missing_count_.size() && missing_count_[ready] == 0) ++ready;
    launch_until(ready);
  }

  void launch_until(size_t end) {
    for (; next_bucket_ < end; ++next_bucket_) {
      const Bucket& bucket = plan_.buckets[next_bucket_];
      works_[next_bucket_] =
          group_.all_reduce(bytes_of(flat_gradients_, bucket.begin, bucket.element_count),
                            DType::kF32, ReduceOp::kAverage);
    }
  }

  static std::span<std::byte> bytes_of(at::Tensor& flat, int64_t begin, int64_t count) {
    return std::as_writable_bytes(
        std::span(flat.mutable_data_ptr<float>() + begin, static_cast<size_t>(count)));
  }

  std::vector<at::Tensor> parameters_;
  collective::Group& group_;
  const BucketPlan plan_;
  std::unique_ptr<collective::SharedBuffer> gradient_memory_;
  at::Tensor flat_parameters_;
  at::Tensor flat_gradients_;
  std::vector<std::unique_ptr<collective::Work>> works_;  // one per bucket, empty between steps
  std::vector<size_t> missing_count_;                     // gradients a bucket still waits for
  size_t next_bucket_ = 0;
  bool last_ = false;
  double exposed_seconds_ = 0;
};

Status check_parameters(const std::vector<at::Tensor>& parameters) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& p = parameters[i];
    if (p.scalar_type() != at::kFloat || !p.device().is_cpu() || !p.is_leaf() ||
        !p.requires_grad()) {
      return Error{Code::kInvalidArgument,
                   "parameter " + std::to_string(i) +
                       ": data parallel takes f32 leaves on the CPU that require grad"};
    }
  }
  return Ok{};
}

}  // namespace

Result<std::unique_ptr<DataParallel>> DataParallel::create(
    const std::vector<at::Tensor>& parameters, collective::Group& group,
    const DataParallelOptions& options) {
  YARD_TRY(check_parameters(parameters));
  std::vector<int64_t> counts;
  counts.reserve(parameters.size());
  for (const at::Tensor& p : parameters) counts.push_back(p.numel());
  BucketPlan plan = plan_buckets(counts, options.bucket_bytes / int64_t{sizeof(float)});
  YARD_ASSIGN(auto memory, group.allocate(static_cast<size_t>(plan.element_count) * sizeof(float)));
  return tensor::guard_torch(
      "making parameters flat", [&]() -> Result<std::unique_ptr<DataParallel>> {
        return std::unique_ptr<DataParallel>(
            new FlatDataParallel(parameters, group, std::move(plan), std::move(memory)));
      });
}

}  // namespace yard::parallel
