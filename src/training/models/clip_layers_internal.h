// What CLIP's text and vision towers share: pre-norm encoder layers.
#pragma once

#include <vector>

#include "models/block_runner.h"
#include "models/config.h"
#include "models/layers.h"

namespace yard::models {

struct ClipEncoderShape {
  int64_t width = 0;
  int64_t intermediate_size = 0;
  int64_t depth = 0;
  int64_t heads = 1;
  bool quick_gelu = true;
  double norm_eps = 1e-5;
};

// "hidden_act": whether it is quick_gelu; only that and gelu are known.
bool read_clip_act(ConfigReader& reader);
void check_clip_encoder(ConfigReader& reader, const ClipEncoderShape& shape);

// A Linear with CLIP's own initialisation: N(0, std^2), bias 0.
struct ClipLinear {
  ClipLinear(const Scope& scope, int64_t in, int64_t out, double std);
  at::Tensor operator()(const at::Tensor& x) const;

  at::Tensor weight, bias;
};

struct ClipLayer {
  ClipLayer(const Scope& scope, const ClipEncoderShape& shape);
  // [B, L, width], same shape.
  at::Tensor operator()(const at::Tensor& x, const AttentionOptions& options) const;

  bool quick_gelu;
  LayerNorm norm1;
  ClipLinear q, k, v, out;
  LayerNorm norm2;
  ClipLinear fc1, fc2;
};

std::vector<Placed<ClipLayer>> make_clip_layers(const Scope& scope, const ClipEncoderShape& shape);

}  // namespace yard::models
