#include <ATen/ops/max.h>
#include <ATen/ops/min.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/nearest_name.h"
#include "models/model_classes_internal.h"

namespace yard::models {

std::string shape_text(at::IntArrayRef shape) {
  std::string text = "[";
  for (const int64_t side : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(side);
  return text + "]";
}

namespace {

using Outputs = std::vector<NamedTensor>;

// What an input must be: -1 in a shape stands for any size of at least one.
struct Wanted {
  std::string name;
  std::vector<int64_t> shape;
  bool whole_numbers = false;
};

bool fits(at::IntArrayRef shape, const std::vector<int64_t>& wanted) {
  if (shape.size() != wanted.size()) return false;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] < 0 ? shape[i] < 1 : shape[i] != wanted[i]) return false;
  }
  return true;
}

// The inputs of one forward pass. The first failure is kept; what is taken after it may be
// anything.
class InputReader {
 public:
  InputReader(const NamedModel::Inputs& inputs, const std::string& what) : what_(what) {
    // The reference takes some in a dictionary of that name.
    const std::string_view prefix = "added_cond_kwargs.";
    for (const auto& [name, tensor] : inputs)
      inputs_[name.starts_with(prefix) ? name.substr(prefix.size()) : name] = tensor;
  }

  at::Tensor take(const Wanted& wanted) {
    known_.push_back(wanted.name);
    const auto it = inputs_.find(wanted.name);
    if (it != inputs_.end()) return checked(it->second, wanted);
    fail("input tensor '" + wanted.name + "' is missing");
    return {};
  }
  std::optional<at::Tensor> take_if_given(const Wanted& wanted) {
    known_.push_back(wanted.name);
    if (!inputs_.contains(wanted.name)) return {};
    return take(wanted);
  }
  // The reference takes one time for the whole batch too.
  at::Tensor take_times(const std::string& name, int64_t batch) {
    const auto it = inputs_.find(name);
    if (it == inputs_.end() || it->second.numel() != 1) return take({name, {batch}});
    known_.push_back(name);
    return it->second.reshape({1}).expand({batch}).to(at::kFloat);
  }
  bool is_set(const std::string& name) {
    known_.push_back(name);
    const auto it = inputs_.find(name);
    return it != inputs_.end() && it->second.numel() == 1 && it->second.item<double>() != 0;
  }
  void fail(const std::string& why) {
    if (!failure_) failure_ = Error{Code::kInvalidArgument, what_ + ": " + why};
  }
  Status status() const { return failure_ ? Status(*failure_) : Status(Ok{}); }
  bool failed() const { return failure_.has_value(); }
  // Before the model runs: the first failure, or an input that nobody took and that would have
  // silently changed nothing.
  Status finish() {
    for (const auto& [name, tensor] : inputs_) {
      if (std::ranges::find(known_, name) == known_.end())
        fail("input tensor '" + name + "' is not one that this model takes" +
             suggestion(name, {known_.begin(), known_.end()}));
    }
    return status();
  }

 private:
  at::Tensor checked(const at::Tensor& tensor, const Wanted& wanted) {
    const std::string name = "input tensor '" + wanted.name + "'";
    if (!fits(tensor.sizes(), wanted.shape))
      fail(name + " has shape " + shape_text(tensor.sizes()) + ", the model wants " +
           shape_text(wanted.shape) + " (-1: any)");
    if (wanted.whole_numbers && !at::isIntegralType(tensor.scalar_type(), false))
      fail(name + " must hold whole numbers");
    return tensor.to(wanted.whole_numbers ? at::kLong : at::kFloat);
  }

  NamedModel::Inputs inputs_;
  const std::string& what_;
  std::vector<std::string> known_;
  std::optional<Error> failure_;
};

// Height and width of a picture that a model cuts into pieces of that size.
void check_divides(InputReader& in, const std::string& name, const at::Tensor& sample,
                   int64_t factor) {
  if (in.failed() || (sample.size(2) % factor == 0 && sample.size(3) % factor == 0)) return;
  in.fail("height and width of '" + name + "', " + shape_text(sample.sizes()) +
          ", must be multiples of " + std::to_string(factor));
}

void check_ids(InputReader& in, const std::string& name, const at::Tensor& ids, int64_t count) {
  if (in.failed() || (ids.min().item<int64_t>() >= 0 && ids.max().item<int64_t>() < count)) return;
  in.fail("'" + name + "' must hold ids from 0 to " + std::to_string(count - 1));
}

std::optional<at::Tensor> take_class_labels(InputReader& in, const UNetConfig& c, int64_t batch) {
  const std::string name = "class_labels";
  switch (c.class_embedding) {
    case ClassEmbedding::kNone:
      return {};
    case ClassEmbedding::kLookup: {
      const at::Tensor ids = in.take({name, {batch}, true});
      check_ids(in, name, ids, c.num_class_embeds);
      return ids;
    }
    case ClassEmbedding::kTimestep:
      return in.take({name, {batch}});
    case ClassEmbedding::kIdentity:
      return in.take({name, {batch, c.time_embedding_dim}});
    case ClassEmbedding::kProjection:
    case ClassEmbedding::kSimpleProjection:
      return in.take({name, {batch, c.projection_class_embeddings_input_dim}});
  }
  YARD_UNREACHABLE();
}

void take_added_conditions(InputReader& in, const UNetConfig& c, int64_t batch,
                           UNetConditions& conditions) {
  if (c.addition_time_embed_dim == 0) return;
  conditions.time_ids = in.take({"time_ids", {batch, -1}});
  if (in.failed()) return;
  const int64_t text_width = c.projection_class_embeddings_input_dim -
                             conditions.time_ids->size(1) * c.addition_time_embed_dim;
  conditions.text_embeds = in.take({"text_embeds", {batch, text_width}});
}

Result<Outputs> run(const UNet2DConditionModel& model, InputReader& in) {
  const UNetConfig& c = model.config();
  const at::Tensor sample = in.take({"sample", {-1, c.in_channels, -1, -1}});
  YARD_TRY(in.status());
  const int64_t batch = sample.size(0);
  const at::Tensor context = in.take({"encoder_hidden_states", {batch, -1, c.context_width()}});
  const at::Tensor timestep = in.take_times("timestep", batch);
  YARD_TRY(in.status());
  UNetConditions conditions;
  conditions.class_labels = take_class_labels(in, c, batch);
  take_added_conditions(in, c, batch, conditions);
  if (c.time_cond_proj_dim > 0)
    conditions.timestep_cond = in.take_if_given({"timestep_cond", {batch, c.time_cond_proj_dim}});
  conditions.encoder_attention_mask =
      in.take_if_given({"encoder_attention_mask", {batch, context.size(1)}});
  YARD_TRY(in.finish());
  return Outputs{{"sample", model.forward(sample, timestep, context, conditions)}};
}

Result<Outputs> run(const AutoencoderKL& model, InputReader& in) {
  const AutoencoderConfig& c = model.config();
  const at::Tensor sample = in.take({"sample", {-1, c.in_channels, -1, -1}});
  check_divides(in, "sample", sample, c.downscale());
  YARD_TRY(in.status());
  const AutoencoderTiling tiling(c);
  const bool by_tiles = in.is_set("use_tiling");
  if (by_tiles && tiling.latent_side_min < 4)
    in.fail("'use_tiling': the configuration's 'sample_size' is too small for tiles");
  YARD_TRY(in.finish());
  const LatentDistribution latents = by_tiles ? model.encode(sample, tiling) : model.encode(sample);
  const at::Tensor decoded =
      by_tiles ? model.decode(latents.mean, tiling) : model.decode(latents.mean);
  return Outputs{
      {"latent_mean", latents.mean}, {"latent_logvar", latents.logvar}, {"sample", decoded}};
}

Result<Outputs> run(const ClipTextModel& model, InputReader& in) {
  const ClipTextConfig& c = model.config();
  const at::Tensor ids = in.take({"input_ids", {-1, -1}, true});
  check_ids(in, "input_ids", ids, c.vocab_size);
  if (!in.failed() && ids.size(1) > c.max_position_embeddings)
    in.fail("'input_ids' must be at most " + std::to_string(c.max_position_embeddings) + " ids");
  YARD_TRY(in.status());
  const auto mask = in.take_if_given({"attention_mask", ids.sizes().vec()});
  YARD_TRY(in.finish());
  const ClipTextOutput out = model.forward(ids, mask);
  Outputs outputs = {{"last_hidden_state", out.last_hidden_state}};
  // The reference's class with a projection gives that in the pooled state's place.
  if (model.config().with_projection)
    outputs.push_back({"text_embeds", out.text_embeds});
  else
    outputs.push_back({"pooler_output", out.pooler_output});
  for (size_t i = 0; i < out.hidden_states.size(); ++i)
    outputs.push_back({"hidden_states." + std::to_string(i), out.hidden_states[i]});
  return outputs;
}

Result<Outputs> run(const ClipModel& model, InputReader& in) {
  const int64_t side = model.config().vision.image_size;
  const at::Tensor ids = in.take({"input_ids", {-1, -1}, true});
  check_ids(in, "input_ids", ids, model.config().text.vocab_size);
  if (!in.failed() && ids.size(1) > model.config().text.max_position_embeddings)
    in.fail("'input_ids' are longer than 'max_position_embeddings'");
  YARD_TRY(in.status());
  const auto mask = in.take_if_given({"attention_mask", ids.sizes().vec()});
  const at::Tensor pixels = in.take({"pixel_values", {-1, 3, side, side}});
  YARD_TRY(in.finish());
  return Outputs{{"text_embeds", model.embed_texts(ids, mask)},
                 {"image_embeds", model.embed_pictures(pixels)}};
}

Result<Outputs> run(const PixArtTransformer2DModel& model, InputReader& in) {
  const PixArtConfig& c = model.config();
  const at::Tensor sample = in.take({"hidden_states", {-1, c.in_channels, -1, -1}});
  check_divides(in, "hidden_states", sample, c.patch_size);
  YARD_TRY(in.status());
  const int64_t batch = sample.size(0);
  const at::Tensor context = in.take({"encoder_hidden_states", {batch, -1, c.context_width()}});
  const at::Tensor timestep = in.take_times("timestep", batch);
  YARD_TRY(in.status());
  PixArtConditions conditions;
  conditions.encoder_attention_mask =
      in.take_if_given({"encoder_attention_mask", {batch, context.size(1)}});
  if (c.use_additional_conditions) {
    conditions.resolution = in.take({"resolution", {batch, 2}});
    conditions.aspect_ratio = in.take({"aspect_ratio", {batch, 1}});
  }
  YARD_TRY(in.finish());
  return Outputs{{"sample", model.forward(sample, context, timestep, conditions)}};
}

template <typename Model>
class NamedModelOf : public NamedModel {
 public:
  explicit NamedModelOf(std::unique_ptr<Model> model) : model_(std::move(model)) {}
  Result<Outputs> forward(const Inputs& inputs, const std::string& what) const override {
    InputReader in(inputs, what);
    return run(*model_, in);
  }
  const std::vector<NamedTensor>& parameters() const override { return model_->parameters(); }

 private:
  std::unique_ptr<Model> model_;
};

template <typename Model, Result<std::unique_ptr<Model>> (*load)(const std::string& folder)>
Result<std::unique_ptr<NamedModel>> load_named(const std::string& folder) {
  YARD_ASSIGN(std::unique_ptr<Model> model, load(folder));
  return std::unique_ptr<NamedModel>(std::make_unique<NamedModelOf<Model>>(std::move(model)));
}

constexpr std::array<ModelClass, 6> kClasses = {{
    {ModelKind::kUNet, "UNet2DConditionModel", kDiffusersWeights,
     load_named<UNet2DConditionModel, load_unet>},
    {ModelKind::kAutoencoder, "AutoencoderKL", kDiffusersWeights,
     load_named<AutoencoderKL, load_autoencoder>},
    {ModelKind::kClipText, "CLIPTextModel", kTransformersWeights,
     load_named<ClipTextModel, load_clip_text>},
    {ModelKind::kClipTextProjection, "CLIPTextModelWithProjection", kTransformersWeights,
     load_named<ClipTextModel, load_clip_text>},
    {ModelKind::kClip, "CLIPModel", kTransformersWeights, load_named<ClipModel, load_clip>},
    {ModelKind::kPixArt, "PixArtTransformer2DModel", kDiffusersWeights,
     load_named<PixArtTransformer2DModel, load_pixart>},
}};

}  // namespace

std::span<const ModelClass> model_classes() {
  return kClasses;
}

}  // namespace yard::models
