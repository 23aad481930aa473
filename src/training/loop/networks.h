// Networks: the models of a run, made or loaded as the recipe says.
//
// How they are saved as a pipeline: pipeline_folder.h.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "loop/caption_tokenizer.h"
#include "loop/denoiser.h"
#include "loop/recipe.h"
#include "models/autoencoder_kl.h"
#include "models/clip_text.h"

namespace yard::loop {

// Whether a parameter has memory: under sharded parameters those that nothing has needed yet have
// none, nor those that ranks share out.
bool has_memory(const at::Tensor& parameter);
// Memory of its own for one that has none; its values are not set.
void give_memory(const at::Tensor& parameter);

// A text encoder, and how it is saved.
struct TextEncoder {
  std::unique_ptr<models::ClipTextModel> model;
  Json config;
  bool frozen = false;
};

// Not thread-safe. Parts that the recipe does not name are null.
class Networks {
 public:
  // Where the recipe shards parameters, these have no memory yet: see start() and fill_in().
  // kNotFound, kInvalidArgument: a folder or configuration is wrong, parts do not fit each other or
  // the tokenizers (null for synthetic data).
  static Result<std::unique_ptr<Networks>> create(const Recipe& recipe,
                                                  const CaptionTokenizer* tokenizer);

  const models::AutoencoderKL* autoencoder() const { return autoencoder_.get(); }
  const Denoiser* denoiser() const { return denoiser_.get(); }
  // None, one, or the two of Stable Diffusion XL.
  const std::vector<TextEncoder>& text_encoders() const { return text_encoders_; }
  const Json& autoencoder_config() const { return autoencoder_config_; }
  const Json& denoiser_config() const { return denoiser_config_; }
  ModelFactors factors() const;
  // What the denoiser's latents were multiplied by.
  double scaling_factor() const { return scaling_factor_; }
  void set_scaling_factor(double factor) { scaling_factor_ = factor; }

  // Ids per caption of each text encoder.
  std::vector<size_t> caption_lengths() const;
  bool text_is_frozen() const;
  // What the denoiser is told of captions: of CaptionTokenizer::ids(), [B, L].
  DenoiserCondition encode_captions(const at::Tensor& ids, bool bf16) const;

  // The parameters that stages of that kind train, in order of use, named "unet.conv_in.weight";
  // they alone require grad afterwards. Without those whose names match one of `freeze` ('*' and
  // '?' as in a shell, a dot is a letter as any other). kInvalidArgument: a pattern that matches
  // nothing, or nothing is left.
  Result<std::vector<models::NamedTensor>> begin_training(Train train,
                                                          const std::vector<std::string>& freeze);
  // Writes to `out` what a parameter has, or without memory how it starts: drawn, or read from its
  // folder.
  void start(const models::NamedTensor& parameter, at::Tensor& out) const;
  // Gives memory and their start to the parameters without it that stages of that kind use beside
  // those that are `trained`.
  void fill_in(Train train, const std::vector<models::NamedTensor>& trained);
  // Every parameter, named likewise.
  std::vector<models::NamedTensor> parameters() const;

 private:
  Networks() = default;
  Status build_autoencoder(const Recipe& recipe);
  Status build_denoiser(const Recipe& recipe);
  Status build_text_encoders(const Recipe& recipe, const CaptionTokenizer* tokenizer);
  Status check(const CaptionTokenizer* tokenizer) const;
  Status check_text(const CaptionTokenizer* tokenizer) const;
  Status check_context() const;
  bool is_used(size_t encoder_index, const std::string& parameter) const;

  std::unique_ptr<models::AutoencoderKL> autoencoder_;
  std::unique_ptr<Denoiser> denoiser_;
  std::vector<TextEncoder> text_encoders_;
  Json autoencoder_config_, denoiser_config_;
  // By parameter, of parts that were made without memory.
  std::map<std::string, std::function<void(at::Tensor& out)>> starts_;
  double scaling_factor_ = 1;
};

// "text_encoder", "text_encoder_2".
std::string text_encoder_name(size_t index);

}  // namespace yard::loop
