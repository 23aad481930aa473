// Recipe: everything that `yard-train` needs to know, read from YAML and checked.
//
// docs/formats/recipe.md has the meaning of each key; names and defaults here are the same. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace yard::loop {

enum class Precision : uint8_t { kF32, kBF16 };
enum class Train : uint8_t { kAutoencoder, kDenoiser };
enum class LearningRateShape : uint8_t { kConstant, kLinear, kCosine, kPolynomial };
enum class Reconstruction : uint8_t { kL1, kMse };
enum class BetaSchedule : uint8_t { kLinear, kScaledLinear, kSquaredCosCap };
// What the model's output is; kFlow: rectified flow, every other one a variance-preserving process.
enum class Prediction : uint8_t { kEpsilon, kVelocity, kSample, kFlow };
enum class TimestepSampling : uint8_t { kUniform, kLogitNormal };
enum class OptimizerKind : uint8_t { kAdamW, kAdamW8bit, kSgd };
enum class ParallelMode : uint8_t { kDdp, kZero1, kZero2, kZero3, kHybrid };

struct SyntheticData {
  int64_t samples = 0;
  int64_t tokens = 77;
};

struct DataRecipe {
  std::string shards;
  std::string image = "png,jpg,jpeg";
  std::string caption = "txt";
  int64_t held_out = 0;
  bool skip_bad_samples = false;
  bool random_flip = false;
  bool random_crop = false;
  uint64_t cache_bytes = uint64_t{256} << 20;
  uint64_t latent_cache_bytes = uint64_t{1} << 30;
  int64_t threads = 1;
  int64_t prefetch = 4;
  std::optional<SyntheticData> synthetic;
};

struct ModelPart {
  std::string from;  // folder; empty: new weights
  Json config;       // the keys of config.json given in the recipe, an object
  bool frozen = false;
};

struct ModelRecipe {
  std::optional<ModelPart> autoencoder;
  std::optional<ModelPart> unet;         // the denoiser: either this
  std::optional<ModelPart> transformer;  // or this
  std::optional<ModelPart> text_encoder;
  std::optional<ModelPart> text_encoder_2;  // as Stable Diffusion XL has it
  std::string tokenizer;
  std::string tokenizer_2;  // empty: the first

  bool has_denoiser() const { return unet || transformer; }
};

struct PictureSide {
  int64_t width = 0;
  int64_t height = 0;
  bool operator==(const PictureSide&) const = default;
};

struct EmaRecipe {
  double decay = 0.999;
  int64_t start_step = 0;
  int64_t update_every = 1;
  bool warm_up = true;
};

struct StageRecipe {
  static constexpr int64_t kAutoMicroBatch = -1;

  std::string name;
  Train train = Train::kDenoiser;
  int64_t resolution = 0;
  int64_t steps = 0;
  int64_t batch = 0;              // samples of an optimiser step, all ranks
  int64_t micro_batch = 0;        // of one rank at once; 0: batch / ranks; kAutoMicroBatch: probed
  int64_t asked_micro_batch = 0;  // what micro_batch was before memory had a say
  double learning_rate = 0;
  int64_t warmup_steps = 0;
  LearningRateShape schedule = LearningRateShape::kConstant;
  double final_learning_rate = 0;  // at the stage's end, of every shape but kConstant
  double power = 1;                // of kPolynomial
  EmaRecipe ema;
  std::vector<std::string> freeze;  // patterns of parameter names
  bool random_flip = false;
  bool cache_latents = false;
  std::string latents;  // folder of shards that `yard prep latents` made; empty: none
  // Each batch is of one of these sizes, each picture of that whose aspect is nearest its own.
  std::vector<PictureSide> aspect_buckets;
  int64_t ranks = 0;  // that the stage is meant for; 0: any
  Reconstruction reconstruction = Reconstruction::kL1;
  double kl_weight = 1e-6;
};

struct OptimizerRecipe {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double momentum = 0.9;  // of kSgd, as nesterov
  bool nesterov = false;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  double clip = 1.0;
};

// docs/parallel.md has the memory and the communication of each mode.
struct ParallelRecipe {
  ParallelMode mode = ParallelMode::kDdp;
  int64_t shard_size = 0;  // ranks that share the model out, of kHybrid
  uint64_t bucket_bytes = uint64_t{4} << 20;
  int64_t gathered_units = 2;
  bool accumulate_whole = false;
  bool bf16_parameters = false;
  bool stochastic_rounding = false;
  bool offload = false;
  bool recompute_activations = false;
};

struct DiffusionRecipe {
  int64_t train_timesteps = 1000;
  BetaSchedule beta_schedule = BetaSchedule::kScaledLinear;
  double beta_start = 0.00085;
  double beta_end = 0.012;
  Prediction prediction = Prediction::kEpsilon;
  double caption_dropout = 0.1;
  double min_snr_gamma = 0;
  double p2_gamma = 0;
  double p2_k = 1;
  double noise_offset = 0;
  bool zero_terminal_snr = false;
  TimestepSampling timestep_sampling = TimestepSampling::kUniform;
  double logit_mean = 0;
  double logit_std = 1;
  double flow_shift = 1;
};

// What is done about losses and gradients that go wrong.
struct GuardRecipe {
  int64_t skip_steps = 3;         // of a stage, whose loss or gradient is not finite
  double spike_factor = 0;        // loss over the running mean; 0: spikes are let pass
  int64_t spike_steps = 1;        // in a row, before the run goes back
  int64_t spike_warmup = 100;     // steps of a stage before spikes are looked for
  int64_t rewinds = 3;            // of a stage
  double slow_rank_factor = 1.3;  // computing time over the median's; 0: not looked for
  double data_wait_share = 0.05;  // of a step's time, over which it is explained; 0: never
};

struct CheckpointRecipe {
  int64_t every_steps = 500;
  double every_minutes = 0;  // besides; 0: never
  int64_t keep = 2;
};

enum class BestBy : uint8_t { kLoss, kFrechet, kClipScore };

struct EvaluationRecipe {
  int64_t every_steps = 0;
  int64_t samples = 0;
  int64_t buckets = 4;
  int64_t looks = 1;
  int64_t pictures = 0;  // made for as many held-out captions; 0: none
  std::string clip;      // folder of a CLIPModel; empty: none
  BestBy best_by = BestBy::kLoss;
  bool keep_best = true;
};

struct SamplingRecipe {
  std::vector<std::string> prompts;
  int64_t steps = 25;
  double guidance = 5.0;
  double guidance_rescale = 0;
  int64_t columns = 0;
  int64_t every_steps = 0;
  bool at_stage_end = true;
};

struct Recipe {
  std::string name = "run";
  std::string output = "output";
  uint64_t seed = 0;
  Precision precision = Precision::kF32;
  bool deterministic = true;
  int64_t threads = 0;
  DataRecipe data;
  ModelRecipe model;
  std::vector<StageRecipe> stages;
  OptimizerRecipe optimizer;
  EmaRecipe ema;
  ParallelRecipe parallel;
  DiffusionRecipe diffusion;
  GuardRecipe guard;
  CheckpointRecipe checkpoint;
  EvaluationRecipe evaluation;
  SamplingRecipe sampling;

  // Whether any stage keeps a moving average of weights.
  bool has_average() const;
  int64_t step_count() const;                       // of all stages
  int64_t steps_before(size_t stage_index) const;   // of the stages before that one
  bool last_of_its_kind(size_t stage_index) const;  // no later stage trains the same part
  // The same parameters: optimiser state and average go on.
  bool goes_on_after(size_t stage_index) const;
  // What decides the weights, defaults filled in. Without the keys that may change when a run is
  // resumed: where output goes, when it is saved and looked at, caches, threads, micro-batches.
  Json identity() const;
};

// kInvalidArgument, with the line: not YAML, an unknown key (nearest named), a value of the wrong
// type or out of range, parts or stages that do not fit each other.
Result<Recipe> parse_recipe(std::string_view yaml, std::string_view name,
                            const std::vector<std::string>& overrides);
// kNotFound besides.
Result<Recipe> load_recipe(const std::string& path, const std::vector<std::string>& overrides);

// Factors by which a picture and its latents must divide; 1: no such part.
struct ModelFactors {
  int64_t autoencoder = 1;
  int64_t denoiser = 1;
};

// Fills in micro_batch where it was left out. kInvalidArgument: a batch that `rank_count` ranks
// cannot share, a resolution that the model cannot halve; the message says what would fit.
Status fit_stages(Recipe& recipe, int rank_count, const ModelFactors& factors);

std::string_view to_string(Train train);
std::string_view to_string(BestBy best_by);  // "loss", "frechet", "clip_score"

}  // namespace yard::loop
