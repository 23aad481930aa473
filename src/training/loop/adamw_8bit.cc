#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "loop/adamw_8bit_internal.h"
#include "tensor/guard_torch.h"
#include "tensor/host_tensor.h"

namespace yard::loop {
namespace {

// Blocks that one thread takes at least.
constexpr int64_t kGrainBlocks = 64;

size_t block_count_of(size_t count, size_t block_size) {
  return (count + block_size - 1) / block_size;
}

}  // namespace

AdamW8bit::AdamW8bit(parallel::DataParallel& parallel, const OptimizerRecipe& recipe)
    : parallel_(parallel), recipe_(recipe) {
  for (const at::Tensor& t : parallel.local_parameters()) {
    const auto count = static_cast<size_t>(t.numel());
    exp_avg_.push_back({std::vector<uint8_t>(count, signed_code_.nearest(0)),
                        std::vector<float>(block_count_of(count, kBlockSize))});
    exp_avg_sq_.push_back({std::vector<uint8_t>(count, unsigned_code_.nearest(0)),
                           std::vector<float>(block_count_of(count, kBlockSize))});
  }
}

Result<double> AdamW8bit::step(double learning_rate) {
  YARD_ASSIGN(const double norm, parallel_.gradient_norm());
  if (!std::isfinite(norm)) return norm;
  YARD_TRY(tensor::guard_torch("optimiser step", [&]() -> Status {
    ++step_count_;
    update(learning_rate, norm);
    return parallel_.publish(step_count_);
  }));
  return norm;
}

void AdamW8bit::update(double learning_rate, double norm) {
  c10::NoGradGuard no_grad;
  const auto n = static_cast<double>(step_count_);
  const bool clipped = recipe_.clip > 0 && norm > recipe_.clip;
  const Factors factors{
      .decay = static_cast<float>(1 - learning_rate * recipe_.weight_decay),
      .step_size = static_cast<float>(learning_rate / (1 - std::pow(recipe_.beta1, n))),
      .root_correction = static_cast<float>(1 / std::sqrt(1 - std::pow(recipe_.beta2, n))),
      .gradient = static_cast<float>(clipped ? recipe_.clip / (norm + 1e-6) : 1)};
  for (size_t t = 0; t < exp_avg_.size(); ++t) {
    const std::span<float> values = tensor::floats_of(parallel_.local_parameters()[t]);
    const std::span<float> gradients = tensor::floats_of(parallel_.local_gradients()[t]);
    const auto blocks = static_cast<int64_t>(exp_avg_[t].scales.size());
    at::parallel_for(0, blocks, kGrainBlocks, [&](int64_t begin, int64_t end) {
      for (auto b = static_cast<size_t>(begin); b < static_cast<size_t>(end); ++b) {
        const size_t first = b * kBlockSize;
        update_block(t, b, values.data() + first, gradients.data() + first,
                     std::min(kBlockSize, values.size() - first), factors);
      }
    });
  }
}

void AdamW8bit::update_block(size_t tensor, size_t block, float* values, const float* gradients,
                             size_t count, const Factors& factors) {
  std::array<float, kBlockSize> mean, square;
  read_block(exp_avg_[tensor], signed_code_, block, count, mean.data());
  read_block(exp_avg_sq_[tensor], unsigned_code_, block, count, square.data());
  const auto beta1 = static_cast<float>(recipe_.beta1), beta2 = static_cast<float>(recipe_.beta2);
  const auto eps = static_cast<float>(recipe_.eps);
  for (size_t i = 0; i < count; ++i) {
    const float g = gradients[i] * factors.gradient;
    mean[i] = beta1 * mean[i] + (1 - beta1) * g;
    square[i] = beta2 * square[i] + (1 - beta2) * g * g;
    const float root = std::sqrt(square[i]) * factors.root_correction + eps;
    values[i] = values[i] * factors.decay - factors.step_size * mean[i] / root;
  }
  write_block(exp_avg_[tensor], signed_code_, block, count, mean.data());
  write_block(exp_avg_sq_[tensor], unsigned_code_, block, count, square.data());
}

void AdamW8bit::read_block(const Moment& moment, const DynamicCode& code, size_t block,
                           size_t count, float* out) {
  const uint8_t* codes = moment.codes.data() + block * kBlockSize;
  const float scale = moment.scales[block];
  for (size_t i = 0; i < count; ++i) out[i] = code.value(codes[i]) * scale;
}

void AdamW8bit::write_block(Moment& moment, const DynamicCode& code, size_t block, size_t count,
                            const float* values) {
  float largest = 0;
  for (size_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(values[i]));
  moment.scales[block] = largest;
  uint8_t* codes = moment.codes.data() + block * kBlockSize;
  for (size_t i = 0; i < count; ++i) codes[i] = code.nearest(largest > 0 ? values[i] / largest : 0);
}

Result<std::vector<OptimizerState>> AdamW8bit::state() const {
  std::vector<OptimizerState> out = {{"exp_avg.", parallel_.make_local(at::kFloat, at::kCPU)},
                                     {"exp_avg_sq.", parallel_.make_local(at::kFloat, at::kCPU)}};
  for (size_t m = 0; m < out.size(); ++m) {
    const std::vector<Moment>& moments = m == 0 ? exp_avg_ : exp_avg_sq_;
    const std::vector<at::Tensor> cuts = parallel_.cut(out[m].values);
    for (size_t t = 0; t < cuts.size(); ++t) {
      const std::span<float> values = tensor::floats_of(cuts[t]);
      for (size_t first = 0; first < values.size(); first += kBlockSize)
        read_block(moments[t], m == 0 ? signed_code_ : unsigned_code_, first / kBlockSize,
                   std::min(kBlockSize, values.size() - first), values.data() + first);
    }
  }
  return out;
}

Status AdamW8bit::restored(const std::vector<OptimizerState>& state, int64_t step_count) {
  YARD_CHECK(state.size() == 2);
  for (size_t m = 0; m < state.size(); ++m) {
    std::vector<Moment>& moments = m == 0 ? exp_avg_ : exp_avg_sq_;
    const std::vector<at::Tensor> cuts = parallel_.cut(state[m].values);
    for (size_t t = 0; t < cuts.size(); ++t) {
      const std::span<float> values = tensor::floats_of(cuts[t]);
      for (size_t first = 0; first < values.size(); first += kBlockSize)
        write_block(moments[t], m == 0 ? signed_code_ : unsigned_code_, first / kBlockSize,
                    std::min(kBlockSize, values.size() - first), values.data() + first);
    }
  }
  step_count_ = step_count;
  return parallel_.publish(step_count_);
}

size_t AdamW8bit::state_bytes() const {
  size_t total = 0;
  for (const auto* moments : {&exp_avg_, &exp_avg_sq_})
    for (const Moment& m : *moments) total += m.codes.size() + m.scales.size() * sizeof(float);
  return total;
}

}  // namespace yard::loop
