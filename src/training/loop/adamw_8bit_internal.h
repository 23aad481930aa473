// AdamW8bit: AdamW whose two moments take a byte each and a scale for every 256.
//
// Dettmers et al. 2022; steps are computed in f32 from the moments as they were, before these are
// rounded again. Checkpoints hold f32 moments, which give the same bytes back.
#pragma once

#include <vector>

#include "loop/dynamic_code.h"
#include "loop/optimizer.h"

namespace yard::loop {

class AdamW8bit final : public Optimizer {
 public:
  AdamW8bit(parallel::DataParallel& parallel, const OptimizerRecipe& recipe);

  Result<double> step(double learning_rate) override;
  int64_t step_count() const override { return step_count_; }
  Result<std::vector<OptimizerState>> state() const override;
  Status restored(const std::vector<OptimizerState>& state, int64_t step_count) override;
  size_t state_bytes() const override;

 private:
  static constexpr size_t kBlockSize = 256;

  // Of one of the tensors that local parameters lie in. Blocks do not reach over its end.
  struct Moment {
    std::vector<uint8_t> codes;
    std::vector<float> scales;  // a block's largest magnitude
  };
  struct Factors {
    float decay = 0, step_size = 0, root_correction = 0, gradient = 0;
  };

  void update(double learning_rate, double norm);
  void update_block(size_t tensor, size_t block, float* values, const float* gradients,
                    size_t count, const Factors& factors);
  static void read_block(const Moment& moment, const DynamicCode& code, size_t block, size_t count,
                         float* out);
  static void write_block(Moment& moment, const DynamicCode& code, size_t block, size_t count,
                          const float* values);

  parallel::DataParallel& parallel_;
  const OptimizerRecipe recipe_;
  const DynamicCode signed_code_{true}, unsigned_code_{false};
  std::vector<Moment> exp_avg_, exp_avg_sq_;
  int64_t step_count_ = 0;
};

}  // namespace yard::loop
