// Denoiser: the network that a denoiser stage trains, of whatever class.
//
// A UNet (Stable Diffusion 1, 2 and XL) or a PixArt transformer behind one interface: noisy
// latents, times and what is known of the picture in, a prediction out. forward() may run on
// several threads at once; nothing else may run beside it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "models/model_folder.h"

namespace yard::loop {

// What a denoiser is told beside the time. Undefined: not wanted, or not known.
struct DenoiserCondition {
  at::Tensor context;  // [B, L, D]: the caption's states
  at::Tensor pooled;   // [B, P]: the whole caption's
  at::Tensor mask;     // [B, L]: 1 for a state that counts
  // [B, 6] f32, pixels: height and width of the picture as it was; top and left of what was cut out
  // of it once it was resized; height and width of that (Podell et al. 2023).
  at::Tensor sizes;

  DenoiserCondition narrow(int64_t begin, int64_t count) const;
};

// The parts of each, one below the other. Contract: the same ones are defined in both.
DenoiserCondition joined(const DenoiserCondition& above, const DenoiserCondition& below);

class Denoiser {
 public:
  // Wanted of condition, beside a context of context_width().
  struct Wants {
    int64_t pooled_width = 0;  // 0: no pooled
    bool mask = false;
    bool sizes = false;
  };

  virtual ~Denoiser() = default;
  // noisy [B, channels(), h, w], times [B] -> the same shape.
  virtual at::Tensor forward(const at::Tensor& noisy, const at::Tensor& times,
                             const DenoiserCondition& condition) const = 0;
  virtual const std::vector<models::NamedTensor>& parameters() const = 0;
  virtual void set_activations(tensor::Activations activations) = 0;

  virtual int64_t channels() const = 0;
  virtual int64_t context_width() const = 0;
  virtual int64_t factor() const = 0;  // of which both sides of latents are multiples
  virtual Wants wants() const = 0;
  // What a pipeline's folder calls it, and the prefix of its parameters: "unet", "transformer".
  virtual std::string_view name() const = 0;
  virtual models::ModelKind kind() const = 0;
  // For config.json of a pipeline whose latents have that side.
  virtual Json saved_config(Json config, int64_t latent_side) const = 0;
};

// kInvalidArgument: it wants what training does not give, or gives what it cannot use.
Result<std::unique_ptr<Denoiser>> make_denoiser(std::unique_ptr<models::UNet2DConditionModel> unet);
Result<std::unique_ptr<Denoiser>> make_denoiser(
    std::unique_ptr<models::PixArtTransformer2DModel> transformer);

}  // namespace yard::loop
