// CLIPTextModel and CLIPTextModelWithProjection: captions to context vectors (Radford et al. 2021),
// with the parameter names and config.json keys of transformers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/config.h"
#include "models/layers.h"
#include "tensor/activation_checkpoint.h"

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
  // Which token's state is the caption's: the first of this id. Files older than transformers 4.31
  // say 2 whatever the vocabulary; there it is the token of the largest id.
  int64_t eos_token_id = 49407;
  bool with_projection = false;  // "architectures": CLIPTextModelWithProjection
  int64_t projection_dim = 512;

  static Result<ClipTextConfig> parse(const Json& config, const std::string& what);
};

struct ClipTextOutput {
  at::Tensor last_hidden_state;  // [B, L, hidden_size], after the final norm
  at::Tensor pooler_output;      // [B, hidden_size]: that of the end-of-text token
  at::Tensor text_embeds;        // [B, projection_dim]; undefined without a projection
  // num_hidden_layers + 1 of [B, L, hidden_size]: the embeddings, then each layer's, before the
  // final norm.
  std::vector<at::Tensor> hidden_states;

  // That of the last layer but one: Stable Diffusion XL's context.
  const at::Tensor& penultimate_hidden_state() const {
    return hidden_states[hidden_states.size() - 2];
  }
};

class ClipTextModel {
 public:
  ClipTextModel(const ClipTextConfig& config, WeightStart start);
  ~ClipTextModel();

  // input_ids [B, L] i64, L <= max_position_embeddings; attention_mask [B, L], 1 keeps and 0 hides.
  ClipTextOutput forward(const at::Tensor& input_ids,
                         const std::optional<at::Tensor>& attention_mask = std::nullopt) const;

  const std::vector<NamedTensor>& parameters() const { return parameters_.all(); }
  const ParameterList& parameter_list() const { return parameters_; }
  const ClipTextConfig& config() const { return config_; }
  // Whether the backward pass finds what each layer computed, or computes it again.
  void set_activations(tensor::Activations activations) { activations_ = activations; }

 private:
  struct Layers;
  ClipTextConfig config_;
  tensor::Activations activations_ = tensor::Activations::kKept;
  ParameterList parameters_;
  std::unique_ptr<Layers> layers_;
};

}  // namespace yard::models
