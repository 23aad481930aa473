#include "models/clip.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>

#include "models/clip_layers_internal.h"

namespace yard::models {
namespace {

ClipEncoderShape shape_of(const ClipVisionConfig& c) {
  return {.width = c.hidden_size,
          .intermediate_size = c.intermediate_size,
          .depth = c.num_hidden_layers,
          .heads = c.num_attention_heads,
          .quick_gelu = c.quick_gelu,
          .norm_eps = c.layer_norm_eps};
}

// Files of older transformers carry every option of every model beside those that count.
Json only(const Json& config, const std::vector<std::string_view>& keys) {
  Json kept = Json::object();
  for (const std::string_view key : keys)
    if (const auto it = config.find(key); it != config.end()) kept[std::string(key)] = *it;
  return kept;
}

Result<ClipTextConfig> parse_text(const Json& config, int64_t projection_dim,
                                  const std::string& what) {
  Json text = only(config, {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                            "num_attention_heads", "max_position_embeddings", "hidden_act",
                            "layer_norm_eps", "eos_token_id"});
  text["projection_dim"] = projection_dim;
  text["architectures"] = {"CLIPTextModelWithProjection"};
  return ClipTextConfig::parse(text, what);
}

Result<ClipVisionConfig> parse_vision(const Json& config, const std::string& what) {
  const Json json =
      only(config, {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                    "num_channels", "image_size", "patch_size", "hidden_act", "layer_norm_eps"});
  ConfigReader reader(json, what);
  ClipVisionConfig c;
  c.hidden_size = reader.size("hidden_size", c.hidden_size);
  c.intermediate_size = reader.size("intermediate_size", c.intermediate_size);
  c.num_hidden_layers = reader.size("num_hidden_layers", c.num_hidden_layers);
  c.num_attention_heads = reader.size("num_attention_heads", c.num_attention_heads);
  reader.fixed("num_channels", 3);
  c.image_size = reader.size("image_size", c.image_size);
  c.patch_size = reader.size("patch_size", c.patch_size);
  c.quick_gelu = read_clip_act(reader);
  c.layer_norm_eps = reader.number("layer_norm_eps", c.layer_norm_eps);
  check_clip_encoder(reader, shape_of(c));
  if (c.patch_size > c.image_size) reader.fail("'patch_size' must be at most 'image_size'");
  YARD_TRY(reader.finish());
  return c;
}

at::Tensor of_length_one(const at::Tensor& rows) {
  return rows / at::linalg_vector_norm(rows, 2, at::IntArrayRef({-1}), /*keepdim=*/true);
}

}  // namespace

Result<ClipConfig> ClipConfig::parse(const Json& config, const std::string& what) {
  ClipConfig c;
  for (const char* part : {"text_config", "vision_config"})
    if (!config.is_object() || !config.contains(part) || !config[part].is_object())
      return Error{Code::kInvalidArgument, what + ": no '" + part + "'"};
  const Json own = only(config, {"projection_dim"});
  ConfigReader reader(own, what);
  c.projection_dim = reader.size("projection_dim", c.projection_dim);
  YARD_TRY(reader.finish());
  YARD_ASSIGN(c.text, parse_text(config["text_config"], c.projection_dim, what + ": text_config"));
  YARD_ASSIGN(c.vision, parse_vision(config["vision_config"], what + ": vision_config"));
  return c;
}

struct ClipModel::Vision {
  Vision(const Scope& root, const Scope& outside, const ClipConfig& config)
      : Vision(root, outside, config.vision, config.projection_dim) {}

  Vision(const Scope& root, const Scope& outside, const ClipVisionConfig& c, int64_t projection_dim)
      : class_token((root / "embeddings")
                        .add("class_embedding", {c.hidden_size}, Init::kNormal, root_of_width(c))),
        patches((root / "embeddings" / "patch_embedding")
                    .add("weight", {c.hidden_size, 3, c.patch_size, c.patch_size}, Init::kNormal,
                         0.02)),
        positions((root / "embeddings" / "position_embedding")
                      .add("weight", {patch_count(c) + 1, c.hidden_size}, Init::kNormal, 0.02)),
        pre_norm(root / "pre_layrnorm", c.hidden_size, c.layer_norm_eps),
        layers(make_clip_layers(root / "encoder" / "layers", shape_of(c))),
        post_norm(root / "post_layernorm", c.hidden_size, c.layer_norm_eps),
        projection(
            (outside / "visual_projection")
                .add("weight", {projection_dim, c.hidden_size}, Init::kNormal, root_of_width(c))) {}

  static double root_of_width(const ClipVisionConfig& c) {
    return 1 / std::sqrt(static_cast<double>(c.hidden_size));
  }
  static int64_t patch_count(const ClipVisionConfig& c) {
    return (c.image_size / c.patch_size) * (c.image_size / c.patch_size);
  }

  at::Tensor class_token, patches, positions;
  LayerNorm pre_norm;
  std::vector<Placed<ClipLayer>> layers;
  LayerNorm post_norm;
  at::Tensor projection;
};

ClipModel::ClipModel(const ClipConfig& config, WeightStart start)
    : config_(config), text_(config.text, start), own_(start) {
  const Scope root(own_);
  vision_ = std::make_unique<Vision>(root / "vision_model", root, config);
  // What training scales similarities by: kept for saving alone.
  root.add("logit_scale", {}, Init::kOnes);
  all_ = text_.parameters();
  all_.insert(all_.end(), own_.all().begin(), own_.all().end());
}

ClipModel::~ClipModel() = default;

at::Tensor ClipModel::embed_texts(const at::Tensor& input_ids,
                                  const std::optional<at::Tensor>& attention_mask) const {
  return of_length_one(text_.forward(input_ids, attention_mask).text_embeds);
}

at::Tensor ClipModel::embed_pictures(const at::Tensor& pixel_values) const {
  const Vision& l = *vision_;
  const ClipVisionConfig& c = config_.vision;
  const at::Tensor tokens =
      at::conv2d(pixel_values, l.patches, {}, c.patch_size).flatten(2).transpose(1, 2);
  const at::Tensor first = l.class_token.expand({tokens.size(0), 1, c.hidden_size});
  at::Tensor h = l.pre_norm(at::cat({first, tokens}, 1) + l.positions);
  const AttentionOptions options{.heads = c.num_attention_heads, .bias = {}};
  for (const Placed<ClipLayer>& block : l.layers) h = block.layer(h, options);
  return of_length_one(at::linear(l.post_norm(h.select(1, 0)), l.projection));
}

at::Tensor ClipModel::pixel_values_of(const at::Tensor& pictures) const {
  const int64_t side = config_.vision.image_size;
  const int64_t height = pictures.size(2), width = pictures.size(3);
  // As the reference: the longer side is cut to whole pixels.
  const int64_t new_height = height <= width ? side : side * height / width;
  const int64_t new_width = width <= height ? side : side * width / height;
  at::Tensor x = pictures.clamp(-1, 1);
  if (new_height != height || new_width != width)
    x = at::_upsample_bicubic2d_aa(x, {new_height, new_width}, /*align_corners=*/false)
            .clamp(-1, 1);
  x = x.narrow(2, (new_height - side) / 2, side).narrow(3, (new_width - side) / 2, side);
  const at::Tensor mean = at::tensor({0.48145466F, 0.4578275F, 0.40821073F}).view({1, 3, 1, 1});
  const at::Tensor deviation =
      at::tensor({0.26862954F, 0.26130258F, 0.27577711F}).view({1, 3, 1, 1});
  return ((x + 1) / 2 - mean.to(x.device())) / deviation.to(x.device());
}

}  // namespace yard::models
