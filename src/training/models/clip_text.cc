#include "models/clip_text.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/index.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

#include "models/block_runner.h"
#include "models/clip_layers_internal.h"

namespace yard::models {
namespace {

bool is_projection_class(const Json& architectures) {
  return architectures.is_array() && !architectures.empty() &&
         architectures[0] == "CLIPTextModelWithProjection";
}

ClipEncoderShape shape_of(const ClipTextConfig& c) {
  return {.width = c.hidden_size,
          .intermediate_size = c.intermediate_size,
          .depth = c.num_hidden_layers,
          .heads = c.num_attention_heads,
          .quick_gelu = c.quick_gelu,
          .norm_eps = c.layer_norm_eps};
}

}  // namespace

Result<ClipTextConfig> ClipTextConfig::parse(const Json& config, const std::string& what) {
  ConfigReader reader(config, what);
  ClipTextConfig c;
  c.vocab_size = reader.size("vocab_size", c.vocab_size);
  c.hidden_size = reader.size("hidden_size", c.hidden_size);
  c.intermediate_size = reader.size("intermediate_size", c.intermediate_size);
  c.num_hidden_layers = reader.size("num_hidden_layers", c.num_hidden_layers);
  c.num_attention_heads = reader.size("num_attention_heads", c.num_attention_heads);
  c.max_position_embeddings = reader.size("max_position_embeddings", c.max_position_embeddings);
  c.layer_norm_eps = reader.number("layer_norm_eps", c.layer_norm_eps);
  c.eos_token_id = reader.integer("eos_token_id", c.eos_token_id);
  c.quick_gelu = read_clip_act(reader);
  reader.fixed("attention_dropout", 0);
  c.projection_dim = reader.size("projection_dim", c.projection_dim);
  c.with_projection = is_projection_class(reader.raw("architectures"));
  for (const char* key :
       {"bos_token_id", "pad_token_id", "initializer_factor", "initializer_range", "dropout",
        "return_dict", "output_hidden_states", "output_attentions", "use_cache"}) {
    reader.ignored(key);
  }
  check_clip_encoder(reader, shape_of(c));
  YARD_TRY(reader.finish());
  return c;
}

struct ClipTextModel::Layers {
  Layers(const Scope& root, const ClipTextConfig& c, const Scope& outside)
      : tokens((root / "embeddings" / "token_embedding")
                   .add("weight", {c.vocab_size, c.hidden_size}, Init::kNormal, 0.02)),
        positions(
            (root / "embeddings" / "position_embedding")
                .add("weight", {c.max_position_embeddings, c.hidden_size}, Init::kNormal, 0.02)),
        layers(make_clip_layers(root / "encoder" / "layers", shape_of(c))),
        final_norm(root / "final_layer_norm", c.hidden_size, c.layer_norm_eps) {
    if (!c.with_projection) return;
    projection = (outside / "text_projection")
                     .add("weight", {c.projection_dim, c.hidden_size}, Init::kNormal,
                          1 / std::sqrt(static_cast<double>(c.hidden_size)));
  }

  at::Tensor tokens, positions;
  std::vector<Placed<ClipLayer>> layers;
  LayerNorm final_norm;
  std::optional<at::Tensor> projection;
};

ClipTextModel::ClipTextModel(const ClipTextConfig& config, WeightStart start)
    : config_(config),
      parameters_(start),
      layers_(std::make_unique<Layers>(Scope(parameters_) / "text_model", config_,
                                       Scope(parameters_))) {}

ClipTextModel::~ClipTextModel() = default;

namespace {

// Each token sees itself and those before it, without the hidden ones.
AttentionOptions attention_options(const ClipTextConfig& c, const std::optional<at::Tensor>& mask) {
  if (!mask) return {.heads = c.num_attention_heads, .causal = true, .bias = {}};
  const at::Tensor keeps = mask->to(at::kBool).unsqueeze(1).unsqueeze(1);
  const int64_t length = mask->size(1);
  const at::Tensor before = at::tril(at::ones({length, length}, keeps.options()));
  const at::Tensor zero = at::zeros({1}, keeps.options().dtype(at::kFloat));
  const at::Tensor hidden = zero - std::numeric_limits<float>::infinity();
  return {.heads = c.num_attention_heads,
          .bias = at::where(before.logical_and(keeps), zero, hidden)};
}

}  // namespace

ClipTextOutput ClipTextModel::forward(const at::Tensor& input_ids,
                                      const std::optional<at::Tensor>& attention_mask) const {
  const Layers& l = *layers_;
  const AttentionOptions options = attention_options(config_, attention_mask);
  at::Tensor h = at::embedding(l.tokens, input_ids) + l.positions.slice(0, 0, input_ids.size(1));
  ClipTextOutput out{.hidden_states = {h}};
  const BlockRunner run{activations_, &parameters_};
  for (const Placed<ClipLayer>& block : l.layers) {
    h = run(block.prefix,
            [&layer = block.layer, options](const std::vector<at::Tensor>& in) {
              return layer(in[0], options);
            },
            {h});
    out.hidden_states.push_back(h);
  }
  out.last_hidden_state = l.final_norm(h);
  const at::Tensor is_end =
      config_.eos_token_id == 2 ? input_ids : input_ids.eq(config_.eos_token_id).to(at::kInt);
  const at::Tensor rows = at::arange(input_ids.size(0), input_ids.options());
  out.pooler_output = out.last_hidden_state.index({rows, at::argmax(is_end, 1)});
  if (l.projection) out.text_embeds = at::linear(out.pooler_output, *l.projection);
  return out;
}

}  // namespace yard::models
