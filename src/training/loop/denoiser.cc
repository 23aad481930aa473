#include "loop/denoiser.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include <utility>

namespace yard::loop {
namespace {

constexpr int64_t kSizeCount = 6;

Error refused(std::string why) {
  return {Code::kInvalidArgument, std::move(why)};
}

class UNetDenoiser final : public Denoiser {
 public:
  explicit UNetDenoiser(std::unique_ptr<models::UNet2DConditionModel> unet)
      : unet_(std::move(unet)) {}

  at::Tensor forward(const at::Tensor& noisy, const at::Tensor& times,
                     const DenoiserCondition& condition) const override {
    if (!wants().sizes) return unet_->forward(noisy, times, condition.context);
    models::UNetConditions added;
    added.text_embeds = condition.pooled;
    added.time_ids = condition.sizes;
    return unet_->forward(noisy, times, condition.context, added);
  }
  const std::vector<models::NamedTensor>& parameters() const override {
    return unet_->parameters();
  }
  void set_activations(tensor::Activations activations) override {
    unet_->set_activations(activations);
  }
  int64_t channels() const override { return unet_->config().in_channels; }
  int64_t context_width() const override { return unet_->config().context_width(); }
  int64_t factor() const override { return unet_->config().downscale(); }
  Wants wants() const override {
    const models::UNetConfig& c = unet_->config();
    if (c.addition_time_embed_dim == 0) return {};
    return {.pooled_width =
                c.projection_class_embeddings_input_dim - kSizeCount * c.addition_time_embed_dim,
            .sizes = true};
  }
  std::string_view name() const override { return "unet"; }
  models::ModelKind kind() const override { return models::ModelKind::kUNet; }
  Json saved_config(Json config, int64_t latent_side) const override {
    config["sample_size"] = latent_side;
    return config;
  }

 private:
  const std::unique_ptr<models::UNet2DConditionModel> unet_;
};

// Where the model predicts a variance too, that half of its output is not trained, as diffusers'
// training script has it.
class PixArtDenoiser final : public Denoiser {
 public:
  explicit PixArtDenoiser(std::unique_ptr<models::PixArtTransformer2DModel> transformer)
      : transformer_(std::move(transformer)) {}

  at::Tensor forward(const at::Tensor& noisy, const at::Tensor& times,
                     const DenoiserCondition& condition) const override {
    models::PixArtConditions added;
    if (condition.mask.defined()) added.encoder_attention_mask = condition.mask;
    if (wants().sizes) {
      added.resolution = condition.sizes.narrow(1, 4, 2);
      added.aspect_ratio = condition.sizes.narrow(1, 4, 1) / condition.sizes.narrow(1, 5, 1);
    }
    return transformer_->forward(noisy, condition.context, times, added).narrow(1, 0, channels());
  }
  const std::vector<models::NamedTensor>& parameters() const override {
    return transformer_->parameters();
  }
  void set_activations(tensor::Activations activations) override {
    transformer_->set_activations(activations);
  }
  int64_t channels() const override { return transformer_->config().in_channels; }
  int64_t context_width() const override { return transformer_->config().context_width(); }
  int64_t factor() const override { return transformer_->config().patch_size; }
  Wants wants() const override {
    return {.mask = true, .sizes = transformer_->config().use_additional_conditions};
  }
  std::string_view name() const override { return "transformer"; }
  models::ModelKind kind() const override { return models::ModelKind::kPixArt; }
  // Places are counted by the side that it was made for, whatever it is trained at last.
  Json saved_config(Json config, int64_t) const override { return config; }

 private:
  const std::unique_ptr<models::PixArtTransformer2DModel> transformer_;
};

at::Tensor narrowed(const at::Tensor& rows, int64_t begin, int64_t count) {
  return rows.defined() ? rows.narrow(0, begin, count) : rows;
}

at::Tensor stacked(const at::Tensor& above, const at::Tensor& below) {
  return above.defined() ? at::cat({above, below}) : above;
}

}  // namespace

DenoiserCondition DenoiserCondition::narrow(int64_t begin, int64_t count) const {
  return {narrowed(context, begin, count), narrowed(pooled, begin, count),
          narrowed(mask, begin, count), narrowed(sizes, begin, count)};
}

DenoiserCondition joined(const DenoiserCondition& above, const DenoiserCondition& below) {
  return {stacked(above.context, below.context), stacked(above.pooled, below.pooled),
          stacked(above.mask, below.mask), stacked(above.sizes, below.sizes)};
}

Result<std::unique_ptr<Denoiser>> make_denoiser(
    std::unique_ptr<models::UNet2DConditionModel> unet) {
  const models::UNetConfig& c = unet->config();
  if (c.in_channels != c.out_channels)
    return refused("model.unet: in_channels and out_channels must be equal");
  if (c.class_embedding != models::ClassEmbedding::kNone)
    return refused("model.unet: it wants class labels, training has captions alone");
  auto denoiser = std::make_unique<UNetDenoiser>(std::move(unet));
  if (denoiser->wants().sizes && denoiser->wants().pooled_width < 1)
    return refused(
        "model.unet: 'projection_class_embeddings_input_dim' leaves nothing for a caption beside "
        "six sizes of 'addition_time_embed_dim' each");
  return std::unique_ptr<Denoiser>(std::move(denoiser));
}

Result<std::unique_ptr<Denoiser>> make_denoiser(
    std::unique_ptr<models::PixArtTransformer2DModel> transformer) {
  const models::PixArtConfig& c = transformer->config();
  if (c.out_channels != c.in_channels && c.out_channels != 2 * c.in_channels)
    return refused(
        "model.transformer: out_channels must be in_channels, or twice that with a variance");
  // diffusers' pipeline gives sizes by sample_size alone.
  if (c.use_additional_conditions != (c.sample_size == 128))
    return refused(
        "model.transformer: 'use_additional_conditions' goes with a 'sample_size' of 128, for so "
        "PixArtAlphaPipeline has it");
  return std::unique_ptr<Denoiser>(std::make_unique<PixArtDenoiser>(std::move(transformer)));
}

}  // namespace yard::loop
