#include "loop/picture_features.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <filesystem>
#include <span>

#include "loop/latent_cache.h"
#include "models/model_folder.h"
#include "tensor/host_tensor.h"

namespace yard::loop {
namespace {

constexpr int64_t kParts = 2;  // of each side of a picture

// Mean and deviation of each channel in each part, [B, C, h, w] -> [B, 2 * C * kParts^2].
at::Tensor statistics_by_part(const at::Tensor& latents) {
  const at::Tensor mean = at::adaptive_avg_pool2d(latents, {kParts, kParts});
  const at::Tensor square = at::adaptive_avg_pool2d(latents.square(), {kParts, kParts});
  const at::Tensor deviation = (square - mean.square()).clamp_min(0).sqrt();
  return at::cat({mean.flatten(1), deviation.flatten(1)}, 1);
}

}  // namespace

Result<std::unique_ptr<PictureFeatures>> PictureFeatures::open(const EvaluationRecipe& recipe,
                                                               const Networks& networks,
                                                               bool bf16) {
  auto features = std::unique_ptr<PictureFeatures>(new PictureFeatures(networks, bf16));
  if (!recipe.clip.empty()) YARD_TRY(features->open_clip(recipe.clip));
  return features;
}

Status PictureFeatures::open_clip(const std::string& folder) {
  YARD_ASSIGN(clip_, models::load_clip(folder));
  const bool beside = std::filesystem::exists(folder + "/vocab.json");
  YARD_ASSIGN(auto tokenizer, text::ClipTokenizer::open(beside ? folder : folder + "/tokenizer"));
  const int64_t known = clip_->config().text.vocab_size;
  if (tokenizer.vocab_size() > known)
    return Error{Code::kInvalidArgument,
                 fmt::format("evaluation.clip: {}: its tokenizer has {} tokens, the model {}",
                             folder, tokenizer.vocab_size(), known)};
  tokenizer_ = std::move(tokenizer);
  return Ok{};
}

at::Tensor PictureFeatures::of_pictures(const at::Tensor& pictures) const {
  c10::NoGradGuard no_grad;
  if (clip_) return clip_->embed_pictures(clip_->pixel_values_of(pictures));
  return statistics_by_part(encode_latents(*networks_.autoencoder(), pictures.clamp(-1, 1),
                                           networks_.scaling_factor(), bf16_));
}

at::Tensor PictureFeatures::of_captions(const std::vector<std::string>& captions) const {
  YARD_CHECK(clip_ != nullptr);
  c10::NoGradGuard no_grad;
  const auto length = static_cast<size_t>(clip_->config().text.max_position_embeddings);
  std::vector<int64_t> ids;
  for (const std::string& caption : captions) {
    const std::vector<int64_t> row = tokenizer_->encode(caption, length);
    ids.insert(ids.end(), row.begin(), row.end());
  }
  return clip_->embed_texts(
      tensor::copy_of(std::span<const int64_t>(ids),
                      {static_cast<int64_t>(captions.size()), static_cast<int64_t>(length)}));
}

}  // namespace yard::loop
