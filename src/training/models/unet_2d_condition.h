// UNet2DConditionModel: the denoiser of Stable Diffusion 1.x, 2.x and XL (Rombach et al. 2022,
// Podell et al. 2023, Ronneberger et al. 2015), with the parameter names and config.json keys of
// diffusers.
//
// forward() may run on several threads at once; nothing else may run beside it. A condition that
// the configuration asks for and the caller does not give, or gives in another shape, is a broken
// contract.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/unet_config.h"
#include "tensor/activation_checkpoint.h"

namespace yard::models {

// What some configurations want beside the context; the members are named as the reference's
// arguments.
struct UNetConditions {
  // See ClassEmbedding: [B] ids or timesteps, [B, projection_class_embeddings_input_dim], or
  // [B, time_embedding_dim].
  std::optional<at::Tensor> class_labels;
  // addition_embed_type "text_time": [B, P] and [B, n] with
  // P + n * addition_time_embed_dim == projection_class_embeddings_input_dim.
  std::optional<at::Tensor> text_embeds, time_ids;
  std::optional<at::Tensor> timestep_cond;           // [B, time_cond_proj_dim]; may be left out
  std::optional<at::Tensor> encoder_attention_mask;  // [B, L], 1 keeps and 0 hides; may be left out
};

class UNet2DConditionModel {
 public:
  UNet2DConditionModel(const UNetConfig& config, WeightStart start);
  ~UNet2DConditionModel();

  // sample [B, in_channels, H, W], timestep [B] (f32 or i64), encoder_hidden_states
  // [B, L, context_width()] -> [B, out_channels, H, W].
  at::Tensor forward(const at::Tensor& sample, const at::Tensor& timestep,
                     const at::Tensor& encoder_hidden_states,
                     const UNetConditions& conditions) const;
  at::Tensor forward(const at::Tensor& sample, const at::Tensor& timestep,
                     const at::Tensor& encoder_hidden_states) const {
    return forward(sample, timestep, encoder_hidden_states, UNetConditions{});
  }

  const std::vector<NamedTensor>& parameters() const { return parameters_.all(); }
  const ParameterList& parameter_list() const { return parameters_; }
  const UNetConfig& config() const { return config_; }
  // Whether the backward pass finds what each block computed, or computes it again.
  void set_activations(tensor::Activations activations) { activations_ = activations; }

 private:
  struct Layers;
  at::Tensor time_embedding(const at::Tensor& timestep, at::ScalarType dtype,
                            const UNetConditions& conditions) const;
  at::Tensor class_embedding(const at::Tensor& labels, at::ScalarType dtype) const;

  UNetConfig config_;
  tensor::Activations activations_ = tensor::Activations::kKept;
  ParameterList parameters_;
  std::unique_ptr<Layers> layers_;
};

}  // namespace yard::models
