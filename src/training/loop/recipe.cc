#include "loop/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "base/file.h"
#include "loop/recipe_fields_internal.h"
#include "loop/recipe_parallel_internal.h"
#include "loop/recipe_sections_internal.h"
#include "loop/yaml_document.h"

namespace yard::loop {
namespace {

constexpr int64_t kResolutionMax = 8192;

Status read_synthetic(const YamlDocument& document, const Json& map, DataRecipe& data) {
  data.synthetic.emplace();
  Fields fields(document, map, "data.synthetic");
  fields.require("samples", data.synthetic->samples)
      .in_range<int64_t>("samples", data.synthetic->samples, 1, kCountMax)
      .read("tokens", data.synthetic->tokens)
      .in_range<int64_t>("tokens", data.synthetic->tokens, 1, 1 << 16);
  return fields.status();
}

// Then pictures are not needed, as far as the stages with latents go.
bool any_stage_has_latents(const YamlDocument& document) {
  const Json& stages = child(document.root, "stages");
  return stages.is_array() && std::any_of(stages.begin(), stages.end(), [](const Json& stage) {
           return stage.is_object() && stage.contains("latents");
         });
}

Status read_data(const YamlDocument& document, DataRecipe& data) {
  const Json& map = child(document.root, "data");
  Fields fields(document, map, "data");
  if (const Json* synthetic = fields.find("synthetic")) {
    YARD_TRY(read_synthetic(document, *synthetic, data));
    return fields.status();
  }
  if (!any_stage_has_latents(document)) fields.require("shards", data.shards);
  fields.read("shards", data.shards)
      .read("image", data.image)
      .read("caption", data.caption)
      .read("held_out", data.held_out)
      .in_range<int64_t>("held_out", data.held_out, 0, kCountMax)
      .read_enum("bad_samples", data.skip_bad_samples, {{"fail", false}, {"skip", true}})
      .read("random_flip", data.random_flip)
      .read("random_crop", data.random_crop)
      .read_size("cache", data.cache_bytes)
      .read_size("latent_cache", data.latent_cache_bytes)
      .read("threads", data.threads)
      .in_range<int64_t>("threads", data.threads, 1, 256)
      .read("prefetch", data.prefetch)
      .in_range<int64_t>("prefetch", data.prefetch, 1, 1024);
  return fields.status();
}

// `frozen` is ours, and of text encoders; every other key beside `from` belongs to the model and is
// checked there.
Status read_frozen(Fields& fields, std::string_view key, ModelPart& part) {
  if (!key.starts_with("text_encoder") || !part.config.contains("frozen")) return Ok{};
  YARD_ASSIGN(part.frozen, json_field<bool>(part.config, "frozen", fmt::format("model.{}", key)));
  part.config.erase("frozen");
  if (part.frozen && part.from.empty())
    fields.fail(fmt::format("model.{}.frozen", key),
                fmt::format("model.{}: frozen new weights learn nothing; give 'from' too", key));
  return Ok{};
}

Result<std::optional<ModelPart>> read_part(const YamlDocument& document, Fields& fields,
                                           std::string_view key) {
  const std::string path = fmt::format("model.{}", key);
  const Json* map = fields.find(key);
  if (map == nullptr) return std::optional<ModelPart>();
  ModelPart part{.config = *map};
  if (!map->is_object())
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: 'model.{}' must be a map of keys", document.where(path), key)};
  if (map->contains("from")) {
    YARD_TRY(refuse_unknown_keys(*map, {"from", "frozen"}, document.where(path) + ": " + path));
    YARD_ASSIGN(part.from, json_field<std::string>(*map, "from", document.where(path)));
    part.config.erase("from");
  }
  YARD_TRY(read_frozen(fields, key, part));
  return std::optional<ModelPart>(std::move(part));
}

Status read_model(const YamlDocument& document, ModelRecipe& model) {
  Fields fields(document, child(document.root, "model"), "model");
  YARD_ASSIGN(model.autoencoder, read_part(document, fields, "autoencoder"));
  YARD_ASSIGN(model.unet, read_part(document, fields, "unet"));
  YARD_ASSIGN(model.transformer, read_part(document, fields, "transformer"));
  YARD_ASSIGN(model.text_encoder, read_part(document, fields, "text_encoder"));
  YARD_ASSIGN(model.text_encoder_2, read_part(document, fields, "text_encoder_2"));
  fields.read("tokenizer", model.tokenizer).read("tokenizer_2", model.tokenizer_2);
  if (model.unet && model.transformer)
    fields.fail("model.transformer", "model: either 'unet' or 'transformer' is the denoiser");
  if (model.text_encoder_2 && !model.text_encoder)
    fields.fail("model.text_encoder_2", "model: 'text_encoder_2' needs 'text_encoder' too");
  if (!model.tokenizer_2.empty() && !model.text_encoder_2)
    fields.fail("model.tokenizer_2", "model: 'tokenizer_2' is for 'text_encoder_2'");
  return fields.status();
}

// "auto" or a number.
void read_micro_batch(Fields& fields, StageRecipe& stage) {
  const Json* value = fields.find("micro_batch");
  if (value != nullptr && *value == "auto") {
    stage.micro_batch = StageRecipe::kAutoMicroBatch;
    return;
  }
  fields.read("micro_batch", stage.micro_batch)
      .in_range<int64_t>("micro_batch", stage.micro_batch, 0, 1 << 24);
}

// "512x768" is 512 wide and 768 high.
std::optional<PictureSide> parse_side(std::string_view text) {
  PictureSide side;
  const size_t x = text.find('x');
  if (x == std::string_view::npos) return std::nullopt;
  const auto read = [](std::string_view digits, int64_t& out) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    return error == std::errc() && end == digits.data() + digits.size() && out >= 1 &&
           out <= kResolutionMax;
  };
  if (!read(text.substr(0, x), side.width) || !read(text.substr(x + 1), side.height))
    return std::nullopt;
  return side;
}

void read_buckets(Fields& fields, const std::string& path, StageRecipe& stage) {
  std::vector<std::string> texts;
  fields.read("aspect_buckets", texts);
  for (const std::string& text : texts) {
    const auto side = parse_side(text);
    if (!side)
      return fields.fail(path + ".aspect_buckets",
                         fmt::format("{}: 'aspect_buckets' has '{}'; WIDTHxHEIGHT is meant, sides "
                                     "of 1 to {}",
                                     path, text, kResolutionMax));
    stage.aspect_buckets.push_back(*side);
  }
}

Status read_stage(const YamlDocument& document, size_t index, const Recipe& recipe,
                  StageRecipe& stage) {
  const std::string path = fmt::format("stages.{}", index);
  Fields fields(document, document.root["stages"][index], path);
  stage.random_flip = recipe.data.random_flip;
  stage.ema = recipe.ema;
  if (const Json* ema = fields.find("ema"))
    YARD_TRY(read_ema(document, *ema, path + ".ema", stage.ema));
  read_micro_batch(fields, stage);
  fields.require("name", stage.name)
      .require_enum("train", stage.train,
                    {{"autoencoder", Train::kAutoencoder}, {"denoiser", Train::kDenoiser}})
      .require("resolution", stage.resolution)
      .in_range<int64_t>("resolution", stage.resolution, 1, kResolutionMax)
      .require("steps", stage.steps)
      .in_range<int64_t>("steps", stage.steps, 1, kCountMax)
      .require("batch", stage.batch)
      .in_range<int64_t>("batch", stage.batch, 1, 1 << 24)
      .require("learning_rate", stage.learning_rate)
      .in_range("learning_rate", stage.learning_rate, 0.0, 1e3)
      .read("warmup_steps", stage.warmup_steps)
      .in_range<int64_t>("warmup_steps", stage.warmup_steps, 0, kCountMax)
      .read_enum("schedule", stage.schedule,
                 {{"constant", LearningRateShape::kConstant},
                  {"linear", LearningRateShape::kLinear},
                  {"cosine", LearningRateShape::kCosine},
                  {"polynomial", LearningRateShape::kPolynomial}})
      .read("final_learning_rate", stage.final_learning_rate)
      .in_range("final_learning_rate", stage.final_learning_rate, 0.0, stage.learning_rate)
      .read("power", stage.power)
      .in_range("power", stage.power, 1e-3, 100.0)
      .read("freeze", stage.freeze)
      .read("random_flip", stage.random_flip)
      .read("cache_latents", stage.cache_latents)
      .read("latents", stage.latents)
      .read("ranks", stage.ranks)
      .in_range<int64_t>("ranks", stage.ranks, 0, 1 << 20)
      .read_enum("reconstruction", stage.reconstruction,
                 {{"l1", Reconstruction::kL1}, {"mse", Reconstruction::kMse}})
      .read("kl_weight", stage.kl_weight)
      .in_range("kl_weight", stage.kl_weight, 0.0, 1e6);
  read_buckets(fields, path, stage);
  const bool word =
      !stage.name.empty() && std::all_of(stage.name.begin(), stage.name.end(), [](unsigned char c) {
        return std::isalnum(c) || c == '-' || c == '_';
      });
  if (stage.schedule != LearningRateShape::kPolynomial && fields.find("power") != nullptr)
    fields.fail(path + ".power", path + ": 'power' is for schedule: polynomial");
  if (stage.schedule == LearningRateShape::kConstant && stage.final_learning_rate > 0)
    fields.fail(path + ".final_learning_rate",
                path + ": a constant schedule has no 'final_learning_rate'");
  if (!word) fields.fail(path + ".name", path + ": 'name' takes letters, digits, '-' and '_'");
  return fields.status();
}

Status read_stages(const YamlDocument& document, Recipe& recipe) {
  const Json& list = child(document.root, "stages");
  if (!list.is_array() || list.empty())
    return Error{Code::kInvalidArgument, fmt::format("{}: 'stages' must be a list of at least one",
                                                     document.where("stages"))};
  std::set<std::string> names;
  for (size_t i = 0; i < list.size(); ++i) {
    YARD_TRY(read_stage(document, i, recipe, recipe.stages.emplace_back()));
    if (names.insert(recipe.stages.back().name).second) continue;
    return Error{
        Code::kInvalidArgument,
        fmt::format("{}: two stages are called '{}'",
                    document.where(fmt::format("stages.{}.name", i)), recipe.stages.back().name)};
  }
  return Ok{};
}

Status read_top(const YamlDocument& document, Recipe& recipe) {
  Fields fields(document, document.root, "");
  fields.read("name", recipe.name)
      .read("output", recipe.output)
      .read("seed", recipe.seed)
      .read_enum("precision", recipe.precision,
                 {{"f32", Precision::kF32}, {"bf16", Precision::kBF16}})
      .read("deterministic", recipe.deterministic)
      .read("threads", recipe.threads)
      .in_range<int64_t>("threads", recipe.threads, 0, 1024);
  for (const std::string_view section :
       {"run", "data", "model", "stages", "optimizer", "ema", "parallel", "diffusion", "guard",
        "checkpoint", "evaluation", "sampling"})
    fields.find(section);
  if (recipe.output.empty()) fields.fail("output", "'output' is empty");
  return fields.status();
}

// Whether the parts of the model and the stages fit each other; line by line it was all well.
class Consistency {
 public:
  Consistency(const YamlDocument& document, const Recipe& recipe)
      : document_(document), recipe_(recipe) {}

  Status check() const {
    if (recipe_.data.synthetic) YARD_TRY(check_synthetic());
    for (size_t i = 0; i < recipe_.stages.size(); ++i) {
      YARD_TRY(recipe_.stages[i].train == Train::kAutoencoder ? check_autoencoder_stage(i)
                                                              : check_denoiser_stage(i));
    }
    return Ok{};
  }

 private:
  Error refuse(const std::string& path, std::string_view why) const {
    return {Code::kInvalidArgument, fmt::format("{}: {}", document_.where(path), why)};
  }

  Status check_synthetic() const {
    const ModelRecipe& model = recipe_.model;
    if (model.autoencoder || model.text_encoder || !model.tokenizer.empty())
      return refuse("data.synthetic",
                    "synthetic data takes a denoiser alone: no autoencoder, "
                    "text_encoder or tokenizer");
    if (!recipe_.sampling.prompts.empty())
      return refuse("sampling.prompts", "synthetic data cannot give pictures of prompts");
    return Ok{};
  }

  Status check_autoencoder_stage(size_t i) const {
    const std::string path = fmt::format("stages.{}", i);
    if (!recipe_.model.autoencoder)
      return refuse(path, "an autoencoder stage needs model.autoencoder");
    const StageRecipe& stage = recipe_.stages[i];
    if (stage.cache_latents)
      return refuse(path + ".cache_latents", "an autoencoder stage has no latents to keep");
    if (!stage.latents.empty())
      return refuse(path + ".latents", "an autoencoder stage needs pictures, not latents");
    if (recipe_.data.shards.empty() && !recipe_.data.synthetic)
      return refuse(path, "an autoencoder stage needs pictures: data.shards");
    const bool late =
        std::any_of(recipe_.stages.begin(), recipe_.stages.begin() + static_cast<std::ptrdiff_t>(i),
                    [](const StageRecipe& before) { return before.train == Train::kDenoiser; });
    if (late) return refuse(path, "autoencoder stages come before denoiser stages");
    return Ok{};
  }

  Status check_denoiser_stage(size_t i) const {
    const std::string path = fmt::format("stages.{}", i);
    const ModelRecipe& model = recipe_.model;
    if (!model.has_denoiser())
      return refuse(path, "a denoiser stage needs model.unet or model.transformer");
    if (recipe_.data.synthetic) return check_synthetic_stage(i);
    if (!model.autoencoder || !model.text_encoder || model.tokenizer.empty())
      return refuse(path,
                    "a denoiser stage needs model.autoencoder, model.text_encoder and "
                    "model.tokenizer");
    const bool trained = recipe_.stages.front().train == Train::kAutoencoder;
    if (!trained && model.autoencoder->from.empty())
      return refuse(path,
                    "the autoencoder was never trained: put an autoencoder stage first, or "
                    "give model.autoencoder.from");
    const StageRecipe& stage = recipe_.stages[i];
    if (stage.cache_latents && (stage.random_flip || recipe_.data.random_crop))
      return refuse(path + ".cache_latents",
                    "cache_latents keeps one latent per picture: set "
                    "random_flip and random_crop to false");
    return check_data_of(i);
  }

  Status check_data_of(size_t i) const {
    const std::string path = fmt::format("stages.{}", i);
    const StageRecipe& stage = recipe_.stages[i];
    if (stage.latents.empty() && recipe_.data.shards.empty())
      return refuse(path, "the stage needs data.shards, or latents of its own");
    if (!stage.latents.empty() &&
        (stage.cache_latents || stage.random_flip || recipe_.data.random_crop))
      return refuse(path + ".latents",
                    "latents that are on disk are one per picture: set cache_latents, random_flip "
                    "and random_crop to false");
    if (stage.aspect_buckets.empty()) return Ok{};
    if (!stage.latents.empty() || stage.cache_latents)
      return refuse(path + ".aspect_buckets",
                    "pictures are put into buckets as they are read: not with latents or "
                    "cache_latents");
    if (recipe_.data.cache_bytes > 0)
      return refuse("data.cache",
                    "stages with aspect_buckets read pictures anew: set data.cache to 0");
    return Ok{};
  }

  Status check_synthetic_stage(size_t i) const {
    const StageRecipe& stage = recipe_.stages[i];
    if (stage.latents.empty() && stage.aspect_buckets.empty()) return Ok{};
    return refuse(fmt::format("stages.{}", i), "synthetic data has no latents and no buckets");
  }

  const YamlDocument& document_;
  const Recipe& recipe_;
};

}  // namespace

std::string_view to_string(Train train) {
  return train == Train::kAutoencoder ? "autoencoder" : "denoiser";
}

std::string_view to_string(BestBy best_by) {
  switch (best_by) {
    case BestBy::kLoss:
      return "loss";
    case BestBy::kFrechet:
      return "frechet";
    case BestBy::kClipScore:
      return "clip_score";
  }
  YARD_UNREACHABLE();
}

int64_t Recipe::step_count() const {
  return steps_before(stages.size());
}

int64_t Recipe::steps_before(size_t stage_index) const {
  int64_t count = 0;
  for (size_t i = 0; i < stage_index; ++i) count += stages[i].steps;
  return count;
}

bool Recipe::last_of_its_kind(size_t stage_index) const {
  return std::none_of(
      stages.begin() + static_cast<std::ptrdiff_t>(stage_index) + 1, stages.end(),
      [&](const StageRecipe& later) { return later.train == stages[stage_index].train; });
}

bool Recipe::goes_on_after(size_t stage_index) const {
  if (stage_index + 1 >= stages.size()) return false;
  const StageRecipe& stage = stages[stage_index];
  const StageRecipe& next = stages[stage_index + 1];
  return stage.train == next.train && stage.freeze == next.freeze;
}

bool Recipe::has_average() const {
  return std::any_of(stages.begin(), stages.end(),
                     [](const StageRecipe& stage) { return stage.ema.decay > 0; });
}

Result<Recipe> parse_recipe(std::string_view yaml, std::string_view name,
                            const std::vector<std::string>& overrides) {
  YARD_ASSIGN(YamlDocument document, parse_yaml(yaml, name));
  for (const std::string& assignment : overrides) YARD_TRY(apply_override(document, assignment));
  Recipe recipe;
  YARD_TRY(read_top(document, recipe));
  YARD_TRY(read_data(document, recipe.data));
  YARD_TRY(read_model(document, recipe.model));
  YARD_TRY(read_optimizer(document, recipe.optimizer));
  YARD_TRY(read_ema(document, child(document.root, "ema"), "ema", recipe.ema));
  YARD_TRY(read_stages(document, recipe));
  YARD_TRY(read_parallel(document, child(document.root, "parallel"), recipe));
  YARD_TRY(read_diffusion(document, recipe.diffusion));
  YARD_TRY(read_guard(document, recipe.guard));
  YARD_TRY(read_checkpoint(document, recipe.checkpoint));
  YARD_TRY(read_evaluation(document, recipe));
  YARD_TRY(read_sampling(document, recipe.diffusion, recipe.sampling));
  YARD_TRY(Consistency(document, recipe).check());
  return recipe;
}

Result<Recipe> load_recipe(const std::string& path, const std::vector<std::string>& overrides) {
  constexpr uint64_t kSizeMax = uint64_t{16} << 20;
  YARD_ASSIGN(const std::string text, read_file(path, kSizeMax));
  return parse_recipe(text, path, overrides);
}

}  // namespace yard::loop
