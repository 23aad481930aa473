// Networks: the models of a run, made or loaded as the recipe says, and how they are saved.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "loop/recipe.h"
#include "models/autoencoder_kl.h"
#include "models/clip_text.h"
#include "models/unet_2d_condition.h"
#include "text/clip_tokenizer.h"

namespace yard::loop {

// Whether a parameter has memory: under sharded parameters those that nothing has needed yet have
// none, nor those that ranks share out.
bool has_memory(const at::Tensor& parameter);
// Memory of its own for one that has none; its values are not set.
void give_memory(const at::Tensor& parameter);

// Not thread-safe. Parts that the recipe does not name are null.
class Networks {
 public:
  // Where the recipe shards parameters, these have no memory yet: see start() and fill_in().
  // kNotFound, kInvalidArgument: a folder or configuration is wrong, parts do not fit each other or
  // the tokenizer (null for synthetic data).
  static Result<std::unique_ptr<Networks>> create(const Recipe& recipe,
                                                  const text::ClipTokenizer* tokenizer);

  const models::AutoencoderKL* autoencoder() const { return autoencoder_.get(); }
  const models::UNet2DConditionModel* unet() const { return unet_.get(); }
  const models::ClipTextModel* text_encoder() const { return text_encoder_.get(); }
  ModelFactors factors() const;
  // What the denoiser's latents were multiplied by.
  double scaling_factor() const { return scaling_factor_; }
  void set_scaling_factor(double factor) { scaling_factor_ = factor; }

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

  // Writes `dir` as StableDiffusionPipeline.from_pretrained wants it; tokenizer files are copied.
  // `sample_side`: pixels, the side that pictures are made at. `instead`: values of parameters, by
  // their names, that are saved in place of what the models hold.
  Status save_pipeline(const std::string& dir, const Recipe& recipe, int64_t sample_side,
                       const std::vector<models::NamedTensor>& instead = {}) const;
  // The autoencoder alone, for runs that train nothing else.
  Status save_autoencoder(const std::string& dir, int64_t sample_side,
                          const std::vector<models::NamedTensor>& instead = {}) const;

 private:
  Networks() = default;
  Status build(const Recipe& recipe, const text::ClipTokenizer* tokenizer);
  Status check(const Recipe& recipe, const text::ClipTokenizer* tokenizer) const;

  std::unique_ptr<models::AutoencoderKL> autoencoder_;
  std::unique_ptr<models::UNet2DConditionModel> unet_;
  std::unique_ptr<models::ClipTextModel> text_encoder_;
  Json autoencoder_config_, unet_config_, text_encoder_config_;
  bool text_encoder_frozen_ = false;
  // By parameter, of parts that were made without memory.
  std::map<std::string, std::function<void(at::Tensor& out)>> starts_;
  double scaling_factor_ = 1;
};

}  // namespace yard::loop
