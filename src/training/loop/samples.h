// Samples: the pictures and captions of a run, opened for one stage at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "loader/loader.h"
#include "loop/recipe.h"
#include "storage/object_store.h"
#include "telemetry/counters.h"
#include "text/clip_tokenizer.h"

namespace yard::loop {

// One rank's share of a step. Of pictures, latents and context a source fills what it has.
struct StepData {
  std::vector<uint64_t> ids;
  std::vector<std::string> keys;  // for messages
  at::Tensor pictures;            // [B, 3, R, R] in [-1, 1]
  at::Tensor latents;             // [B, C, h, w], scaled
  at::Tensor tokens;              // [B, L] i64
  at::Tensor context;             // [B, L, D]
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
  // kNotFound: no such folder, or no shards in it.
  static Result<std::unique_ptr<Samples>> open(const DataRecipe& recipe, uint64_t seed);

  // The stage's steps from `start` on; captions become `token_count` ids each where a tokenizer is
  // given (it must outlive the source).
  Result<std::unique_ptr<StepSource>> steps(const StageRecipe& stage, uint64_t stage_seed,
                                            RankPlace place, loader::LoaderState start,
                                            const text::ClipTokenizer* tokenizer,
                                            size_t token_count);
  // Samples one by one in the order of the stage's first epoch, from number `begin` on, neither
  // flipped nor cut at random.
  Result<std::unique_ptr<loader::Loader>> one_by_one(int64_t resolution, int64_t begin);

  CounterRegistry& counters() { return counters_; }

 private:
  Samples(const DataRecipe& recipe, uint64_t seed) : recipe_(recipe), seed_(seed) {}
  loader::LoaderOptions options(int64_t resolution) const;

  const DataRecipe recipe_;
  const uint64_t seed_;
  std::shared_ptr<storage::ObjectStore> store_;
  std::vector<std::string> shards_;
  CounterRegistry counters_;
};

// [count, token_count] i64. Texts in, ids out.
at::Tensor tokenize(const text::ClipTokenizer& tokenizer, const std::vector<std::string>& texts,
                    size_t token_count);
// [B, 3, R, R] of a loader's batch.
at::Tensor pictures_of(const loader::Batch& batch);

// Random latents and text embeddings, for measuring the step alone.
std::unique_ptr<StepSource> synthetic_steps(const SyntheticData& data, const StageRecipe& stage,
                                            uint64_t stage_seed, RankPlace place,
                                            loader::LoaderState start, int64_t channels,
                                            int64_t context_width);

}  // namespace yard::loop
