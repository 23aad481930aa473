// The blocks of UNet2DConditionModel by the names that its config.json gives them. A new kind of
// block is one class and one line of a table in unet_blocks.cc.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/block_runner.h"
#include "models/blocks.h"

namespace yard::models {

// How one block is built.
struct UNetBlockPlan {
  int64_t channels_in = 0;
  int64_t channels_out = 0;
  std::vector<int64_t> skip_channels;  // way up: of the skip that each layer takes
  std::vector<int64_t> depths;         // transformer blocks after each resnet; as many as layers
  int64_t time_width = 0;
  ResnetOptions resnet;
  TransformerOptions transformer;  // `depth` is each layer's own
  bool resamples = false;          // ends with a change of resolution
  int64_t downsample_padding = 1;
};

// One forward pass: what every block is given, and the skips that the way down leaves for the way
// up.
struct UNetPass {
  at::Tensor time;                         // [B, time_width], after SiLU
  at::Tensor context;                      // [B, L, D]
  std::optional<at::Tensor> context_bias;  // [B, 1, 1, L]
  BlockRunner run;
  std::vector<at::Tensor> skips;
};

class UNetBlock {
 public:
  virtual ~UNetBlock() = default;
  // [B, channels_in, H, W] -> [B, channels_out, H', W']; pushes or takes skips.
  virtual at::Tensor forward(UNetPass& pass, at::Tensor h) const = 0;
};

struct UNetBlockType {
  std::string_view name;
  bool attends;  // to the context
  std::unique_ptr<UNetBlock> (*make)(const Scope& scope, const UNetBlockPlan& plan, bool attends);
};

std::span<const UNetBlockType> down_block_types();
std::span<const UNetBlockType> mid_block_types();
std::span<const UNetBlockType> up_block_types();
// Null for a name that is not there.
const UNetBlockType* find_block_type(std::span<const UNetBlockType> types, std::string_view name);

}  // namespace yard::models
