#include "models/unet_blocks.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <array>
#include <utility>

namespace yard::models {

namespace {

using Resnet = Placed<ResnetBlock>;
using Transformer = Placed<SpatialTransformer>;

at::Tensor apply(const UNetPass& pass, const Resnet& resnet, const at::Tensor& h) {
  const ResnetBlock& layer = resnet.layer;
  return pass.run(resnet.prefix,
                  [&layer](const std::vector<at::Tensor>& in) { return layer(in[0], in[1]); },
                  {h, pass.time});
}

at::Tensor apply(const UNetPass& pass, const Transformer& transformer, const at::Tensor& h) {
  const SpatialTransformer& layer = transformer.layer;
  return pass.run(transformer.prefix,
                  [&layer, bias = pass.context_bias](const std::vector<at::Tensor>& in) {
                    return layer(in[0], in[1], bias);
                  },
                  {h, pass.context});
}

// The layers of one resolution: resnets, a transformer after each where the block attends.
struct ResolutionLayers {
  ResolutionLayers(const Scope& scope, const UNetBlockPlan& plan, bool attends) {
    int64_t channels = plan.channels_in;
    for (size_t i = 0; i < plan.depths.size(); ++i) {
      const auto layer = static_cast<int64_t>(i);
      const int64_t joined = plan.skip_channels.empty() ? 0 : plan.skip_channels[i];
      resnets.emplace_back(scope / "resnets" / layer, channels + joined, plan.channels_out,
                           plan.time_width, plan.resnet);
      channels = plan.channels_out;
      if (!attends) continue;
      TransformerOptions options = plan.transformer;
      options.depth = plan.depths[i];
      attentions.emplace_back(scope / "attentions" / layer, channels, options);
    }
  }
  at::Tensor operator()(const UNetPass& pass, size_t layer, const at::Tensor& h) const {
    const at::Tensor out = apply(pass, resnets[layer], h);
    return attentions.empty() ? out : apply(pass, attentions[layer], out);
  }

  std::vector<Resnet> resnets;
  std::vector<Transformer> attentions;  // empty, or one per resnet
};

class DownBlock : public UNetBlock {
 public:
  DownBlock(const Scope& scope, const UNetBlockPlan& plan, bool attends)
      : layers_(scope, plan, attends) {
    if (plan.resamples)
      downsample_.emplace(scope / "downsamplers" / 0, plan.channels_out, plan.downsample_padding);
  }
  at::Tensor forward(UNetPass& pass, at::Tensor h) const override {
    for (size_t i = 0; i < layers_.resnets.size(); ++i) {
      h = layers_(pass, i, h);
      pass.skips.push_back(h);
    }
    if (!downsample_) return h;
    pass.skips.push_back((*downsample_)(h));
    return pass.skips.back();
  }

 private:
  ResolutionLayers layers_;
  std::optional<Downsample> downsample_;
};

class UpBlock : public UNetBlock {
 public:
  UpBlock(const Scope& scope, const UNetBlockPlan& plan, bool attends)
      : layers_(scope, plan, attends) {
    if (plan.resamples) upsample_.emplace(scope / "upsamplers" / 0, plan.channels_out);
  }
  at::Tensor forward(UNetPass& pass, at::Tensor h) const override {
    for (size_t i = 0; i < layers_.resnets.size(); ++i) {
      h = layers_(pass, i, at::cat({h, pass.skips.back()}, 1));
      pass.skips.pop_back();
    }
    // To the size of the next skip: twice ours, or one less where the way down rounded.
    return upsample_ ? (*upsample_)(h, pass.skips.back().size(2), pass.skips.back().size(3)) : h;
  }

 private:
  ResolutionLayers layers_;
  std::optional<Upsample> upsample_;
};

// A resnet; where it attends, a transformer and another resnet.
class MidBlock : public UNetBlock {
 public:
  MidBlock(const Scope& scope, const UNetBlockPlan& plan, bool attends)
      : layers_(scope, plan, attends) {
    if (attends)
      last_.emplace(scope / "resnets" / 1, plan.channels_out, plan.channels_out, plan.time_width,
                    plan.resnet);
  }
  at::Tensor forward(UNetPass& pass, at::Tensor h) const override {
    h = layers_(pass, 0, h);
    return last_ ? apply(pass, *last_, h) : h;
  }

 private:
  ResolutionLayers layers_;
  std::optional<Resnet> last_;
};

template <typename Block>
std::unique_ptr<UNetBlock> make(const Scope& scope, const UNetBlockPlan& plan, bool attends) {
  return std::make_unique<Block>(scope, plan, attends);
}

constexpr std::array<UNetBlockType, 2> kDown = {{
    {"DownBlock2D", false, make<DownBlock>},
    {"CrossAttnDownBlock2D", true, make<DownBlock>},
}};
constexpr std::array<UNetBlockType, 2> kMid = {{
    {"UNetMidBlock2D", false, make<MidBlock>},
    {"UNetMidBlock2DCrossAttn", true, make<MidBlock>},
}};
constexpr std::array<UNetBlockType, 2> kUp = {{
    {"UpBlock2D", false, make<UpBlock>},
    {"CrossAttnUpBlock2D", true, make<UpBlock>},
}};

}  // namespace

std::span<const UNetBlockType> down_block_types() {
  return kDown;
}
std::span<const UNetBlockType> mid_block_types() {
  return kMid;
}
std::span<const UNetBlockType> up_block_types() {
  return kUp;
}

const UNetBlockType* find_block_type(std::span<const UNetBlockType> types, std::string_view name) {
  const auto it = std::ranges::find(types, name, &UNetBlockType::name);
  return it == types.end() ? nullptr : &*it;
}

}  // namespace yard::models
