// CLIPTextModel: captions to context vectors (Radford et al. 2021), with the parameter names and
// config.json keys of transformers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/config.h"
#include "models/layers.h"

namespace yard::models {

struct ClipTextConfig {
  int64_t vocab_size = 49408;
  int64_t hidden_size = 512;
  int64_t intermediate_size = 2048;
  int64_t num_hidden_layers = 12;
  int64_t num_attention_heads = 8;
  int64_t max_position_embeddings = 77;
  bool quick_gelu = true;  // hidden_act "quick_gelu" | "gelu"
  double layer_norm_eps = 1e-5;
  int64_t eos_token_id = 49407;

  static Result<ClipTextConfig> parse(const Json& config, const std::string& what);
};

struct ClipTextOutput {
  at::Tensor last_hidden_state;  // [B, L, hidden_size], after the final norm
  at::Tensor pooler_output;      // [B, hidden_size]: that of the first end-of-text token
};

class ClipTextModel {
 public:
  // Without a seed the parameters' values are unset.
  ClipTextModel(const ClipTextConfig& config, std::optional<uint64_t> seed);
  ~ClipTextModel();

  // input_ids [B, L] i64, L <= max_position_embeddings.
  ClipTextOutput forward(const at::Tensor& input_ids) const;

  const std::vector<NamedTensor>& parameters() const { return parameters_.all(); }
  const ClipTextConfig& config() const { return config_; }

 private:
  struct Layers;
  ClipTextConfig config_;
  ParameterList parameters_;
  std::unique_ptr<Layers> layers_;
};

}  // namespace yard::models
