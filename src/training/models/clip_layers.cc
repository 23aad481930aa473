#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/sigmoid.h>

#include <cmath>

#include "models/clip_layers_internal.h"

namespace yard::models {
namespace {

constexpr int64_t kDepthMax = 256;  // against configs that would build for hours

double root_of(double value) {
  return 1 / std::sqrt(value);
}

// Deeper models start smaller, so that the residual stream keeps its scale.
double in_std(const ClipEncoderShape& s) {
  return root_of(static_cast<double>(s.width) * 2 * static_cast<double>(s.depth));
}

}  // namespace

bool read_clip_act(ConfigReader& reader) {
  const std::string act = reader.text("hidden_act", "quick_gelu");
  if (act != "quick_gelu" && act != "gelu")
    reader.fail("'hidden_act': " + act + " is not supported, only quick_gelu and gelu");
  return act == "quick_gelu";
}

void check_clip_encoder(ConfigReader& reader, const ClipEncoderShape& shape) {
  if (shape.depth > kDepthMax)
    reader.fail("'num_hidden_layers' must be at most " + std::to_string(kDepthMax));
  if (shape.width % shape.heads != 0)
    reader.fail("'hidden_size' is not a multiple of 'num_attention_heads'");
}

ClipLinear::ClipLinear(const Scope& scope, int64_t in, int64_t out, double std)
    : weight(scope.add("weight", {out, in}, Init::kNormal, std)),
      bias(scope.add("bias", {out}, Init::kZeros)) {}

at::Tensor ClipLinear::operator()(const at::Tensor& x) const {
  return at::linear(x, weight, bias);
}

ClipLayer::ClipLayer(const Scope& scope, const ClipEncoderShape& s)
    : quick_gelu(s.quick_gelu),
      norm1(scope / "layer_norm1", s.width, s.norm_eps),
      q(scope / "self_attn" / "q_proj", s.width, s.width, in_std(s)),
      k(scope / "self_attn" / "k_proj", s.width, s.width, in_std(s)),
      v(scope / "self_attn" / "v_proj", s.width, s.width, in_std(s)),
      out(scope / "self_attn" / "out_proj", s.width, s.width,
          root_of(static_cast<double>(s.width))),
      norm2(scope / "layer_norm2", s.width, s.norm_eps),
      fc1(scope / "mlp" / "fc1", s.width, s.intermediate_size,
          root_of(2.0 * static_cast<double>(s.width))),
      fc2(scope / "mlp" / "fc2", s.intermediate_size, s.width, in_std(s)) {}

at::Tensor ClipLayer::operator()(const at::Tensor& x, const AttentionOptions& options) const {
  const at::Tensor a = norm1(x);
  const at::Tensor h = x + out(attention(q(a), k(a), v(a), options));
  const at::Tensor wide = fc1(norm2(h));
  return h + fc2(quick_gelu ? wide * at::sigmoid(wide * 1.702) : at::gelu(wide));
}

std::vector<Placed<ClipLayer>> make_clip_layers(const Scope& scope, const ClipEncoderShape& shape) {
  std::vector<Placed<ClipLayer>> layers;
  for (int64_t i = 0; i < shape.depth; ++i) layers.emplace_back(scope / i, shape);
  return layers;
}

}  // namespace yard::models
