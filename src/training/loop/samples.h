// Samples: the pictures and captions of a run, opened for one stage at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "loader/loader.h"
#include "loop/caption_tokenizer.h"
#include "loop/denoiser.h"
#include "loop/recipe.h"
#include "storage/object_store.h"
#include "telemetry/counters.h"

namespace yard::loop {

// One rank's share of a step. A source fills what it has.
struct StepData {
  std::vector<uint64_t> ids;
  std::vector<std::string> keys;  // for messages
  at::Tensor pictures;            // [B, 3, H, W] in [-1, 1]
  at::Tensor latents;             // [B, C, h, w], scaled
  at::Tensor tokens;              // [B, ids of a caption] i64
  DenoiserCondition condition;    // of captions: instead of tokens
};

// Gives the steps of a stage in order. Not thread-safe.
class StepSource {
 public:
  virtual ~StepSource() = default;
  virtual Result<StepData> next() = 0;
  virtual double wait_seconds() const = 0;           // next() has blocked so long in all
  virtual loader::LoaderState position() const = 0;  // of the next step
};

struct RankPlace {
  int rank = 0;
  int size = 1;
};

// Not thread-safe; must outlive the loaders that it opened.
class Samples {
 public:
  // kNotFound: no such folder, or no shards in it. Where the recipe names no folder there is
  // nothing to be read.
  static Result<std::unique_ptr<Samples>> open(const DataRecipe& recipe, uint64_t seed);

  // What a stage's steps have beside pictures.
  struct Wanted {
    const CaptionTokenizer* tokens = nullptr;  // must outlive the source
    bool sizes = false;
  };
  // The stage's steps from `start` on.
  Result<std::unique_ptr<StepSource>> steps(const StageRecipe& stage, uint64_t stage_seed,
                                            RankPlace place, loader::LoaderState start,
                                            const Wanted& wanted);
  // Samples one by one in the order of the stage's first epoch, from number `begin` on, neither
  // flipped nor cut at random.
  Result<std::unique_ptr<loader::Loader>> one_by_one(int64_t resolution, int64_t begin);
  // Those of one shard, in its order.
  Result<std::unique_ptr<loader::Loader>> of_shard(const std::string& shard, int64_t resolution);
  const std::vector<std::string>& shards() const { return shards_; }

  // DenoiserCondition::sizes of samples that are cut to height x width from the middle, by the
  // sizes in the shards' indexes. kInvalidArgument: an index without them.
  Result<at::Tensor> sizes(const std::vector<uint64_t>& ids, int64_t height, int64_t width);
  // Of every sample of a shard, in its order; errors likewise.
  Result<std::vector<PictureSide>> picture_sides(const std::string& shard) const;

  CounterRegistry& counters() { return counters_; }

 private:
  Samples(const DataRecipe& recipe, uint64_t seed) : recipe_(recipe), seed_(seed) {}
  loader::LoaderOptions options(int64_t resolution) const;
  Status read_picture_sides();

  const DataRecipe recipe_;
  const uint64_t seed_;
  std::shared_ptr<storage::ObjectStore> store_;
  std::vector<std::string> shards_;
  std::vector<PictureSide> picture_sides_;  // by sample; read when they are wanted first
  CounterRegistry counters_;
};

// [B, 3, H, W] of a loader's batch.
at::Tensor pictures_of(const loader::Batch& batch);
// DenoiserCondition::sizes of a picture that is resized until it covers height x width, of which
// the middle is then cut out. Pure.
std::array<float, 6> size_condition(const PictureSide& original, int64_t height, int64_t width);

// Random latents and text embeddings, for measuring the step alone. `denoiser` must outlive it.
std::unique_ptr<StepSource> synthetic_steps(const SyntheticData& data, const StageRecipe& stage,
                                            uint64_t stage_seed, RankPlace place,
                                            loader::LoaderState start, const Denoiser& denoiser);
// What a denoiser is told of made-up samples.
DenoiserCondition synthetic_condition(const Denoiser& denoiser, std::span<const uint64_t> ids,
                                      uint64_t seed, int64_t token_count, int64_t picture_side);

}  // namespace yard::loop
