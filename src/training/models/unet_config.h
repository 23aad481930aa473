// The config.json of UNet2DConditionModel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/blocks.h"
#include "models/config.h"

namespace yard::models {

enum class ClassEmbedding : uint8_t {
  kNone,
  kLookup,            // num_class_embeds: class_labels are ids
  kTimestep,          // class_labels are embedded as timesteps are
  kIdentity,          // class_labels are embeddings already
  kProjection,        // class_labels are vectors, put through two layers
  kSimpleProjection,  // the same, through one
};

// What the config.json keys of the same names say, unless a comment says otherwise.
struct UNetConfig {
  int64_t sample_size = 64;  // latents' side; metadata only
  int64_t in_channels = 4;
  int64_t out_channels = 4;
  bool center_input_sample = false;
  int64_t conv_in_kernel = 3;
  int64_t conv_out_kernel = 3;
  bool flip_sin_to_cos = true;
  double freq_shift = 0;
  std::vector<std::string> down_block_types;
  std::vector<std::string> up_block_types;
  std::string mid_block_type;  // empty: no block in the middle
  std::vector<int64_t> block_out_channels;
  std::vector<int64_t> layers_per_block;  // one entry per block
  std::vector<int64_t> head_counts;       // num_attention_heads, else attention_head_dim
  // transformer_layers_per_block, reverse_transformer_layers_per_block: per block, then per layer.
  std::vector<std::vector<int64_t>> down_depths, up_depths;
  int64_t mid_depth = 1;
  std::vector<bool> only_cross_attention;  // one entry per block
  int64_t downsample_padding = 1;
  double mid_block_scale_factor = 1;
  NormOptions norm;
  int64_t cross_attention_dim = 1280;  // what every block that attends reads
  int64_t encoder_hid_dim = 0;         // 0: the context is not projected before
  bool use_linear_projection = false;
  bool upcast_attention = false;
  bool time_scale_shift = false;   // resnet_time_scale_shift "scale_shift"
  int64_t time_embedding_dim = 0;  // 4 * block_out_channels[0] by default
  int64_t time_cond_proj_dim = 0;  // 0: no timestep_cond
  ClassEmbedding class_embedding = ClassEmbedding::kNone;
  int64_t num_class_embeds = 0;
  bool class_embeddings_concat = false;
  int64_t projection_class_embeddings_input_dim = 0;
  int64_t addition_time_embed_dim = 0;  // addition_embed_type "text_time"; 0: none

  // kInvalidArgument names the key.
  static Result<UNetConfig> parse(const Json& config, const std::string& what);
  int64_t downscale() const { return int64_t{1} << (block_out_channels.size() - 1); }
  // Of encoder_hidden_states.
  int64_t context_width() const {
    return encoder_hid_dim > 0 ? encoder_hid_dim : cross_attention_dim;
  }
};

}  // namespace yard::models
