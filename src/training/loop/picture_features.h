// PictureFeatures: numbers of a picture by which sets of pictures are compared.
//
// Of a CLIP that the recipe names: its picture embeddings, and the captions' beside them. Without
// one, of the run's own autoencoder: mean and deviation of each latent channel in each quarter of
// the picture. These tell colours and coarse shape, are comparable within a run alone, and are not
// the Inception features of published FIDs.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "loop/networks.h"
#include "loop/recipe.h"
#include "models/clip.h"
#include "text/clip_tokenizer.h"

namespace yard::loop {

// Not thread-safe. `networks` must outlive it.
class PictureFeatures {
 public:
  // evaluation.clip: a folder of a CLIPModel with its tokenizer's files, in it or in `tokenizer/`.
  // kNotFound, kInvalidArgument, kCorrupt as they come.
  static Result<std::unique_ptr<PictureFeatures>> open(const EvaluationRecipe& recipe,
                                                       const Networks& networks, bool bf16);

  std::string_view name() const { return clip_ ? "clip" : "latents"; }
  bool knows_captions() const { return clip_ != nullptr; }
  // pictures [B, 3, H, W] in [-1, 1] -> [B, D] f32.
  at::Tensor of_pictures(const at::Tensor& pictures) const;
  // Of length 1, as those of pictures are. Only where captions are known.
  at::Tensor of_captions(const std::vector<std::string>& captions) const;

 private:
  PictureFeatures(const Networks& networks, bool bf16) : networks_(networks), bf16_(bf16) {}
  Status open_clip(const std::string& folder);

  const Networks& networks_;
  const bool bf16_;
  std::unique_ptr<models::ClipModel> clip_;
  std::optional<text::ClipTokenizer> tokenizer_;
};

}  // namespace yard::loop
