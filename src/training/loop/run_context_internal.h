// What the parts of a run share. One per run and rank; see trainer.cc for the order of things.
#pragma once

#include <memory>
#include <optional>

#include "base/clock.h"
#include "collective/collective.h"
#include "loop/caption_tokenizer.h"
#include "loop/diffusion.h"
#include "loop/heartbeat_writer.h"
#include "loop/latent_shards.h"
#include "loop/metrics_writer.h"
#include "loop/networks.h"
#include "loop/picture_features.h"
#include "loop/samples.h"
#include "loop/trainee.h"
#include "loop/trainer.h"
#include "loop/training_groups.h"

namespace yard::loop {

struct RunContext {
  const Recipe& recipe;
  const TrainerOptions& options;
  collective::Group& group;
  HeartbeatWriter& heartbeat;
  DiffusionSchedule schedule;
  std::optional<CaptionTokenizer> tokenizer;
  std::unique_ptr<Samples> samples;  // null for synthetic data
  std::unique_ptr<Networks> networks;
  std::unique_ptr<TrainingGroups> groups;
  std::unique_ptr<PictureFeatures> features;  // null where pictures are not looked at
  std::unique_ptr<LatentSet> latents;         // of the present stage, where it has them
  MetricsWriter metrics;                      // of rank 0; the others' tells nobody

  bool bf16() const { return recipe.precision == Precision::kBF16; }
  bool is_first_rank() const { return group.rank() == 0; }
  RankPlace place() const { return {group.rank(), group.size()}; }
  // Null where captions are of no use: for autoencoders and for synthetic data.
  const CaptionTokenizer* tokenizer_for(Train train) const {
    return train == Train::kDenoiser && tokenizer ? &*tokenizer : nullptr;
  }
  bool wants_sizes() const {
    return networks->denoiser() != nullptr && networks->denoiser()->wants().sizes;
  }
};

void set_up_torch(const Recipe& recipe, int thread_count);
// Opens tokenizer, networks and samples, as the recipe names them.
Status open_inputs(RunContext& context);

// What a trainee begins with: its own start, or zeros where a checkpoint gives the values.
enum class Start : uint8_t { kOwn, kZeros };
// What `stage` trains, shared out as the recipe says; everything else that it uses has memory
// afterwards. Collective.
Result<std::unique_ptr<Trainee>> make_trainee(RunContext& context, const StageRecipe& stage,
                                              Start start);

}  // namespace yard::loop
