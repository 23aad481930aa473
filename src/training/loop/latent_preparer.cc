#include "loop/latent_preparer.h"

#include <fmt/format.h>

#include <algorithm>

#include "loop/latent_shards.h"
#include "loop/pipeline_folder.h"
#include "loop/run_context_internal.h"
#include "tensor/guard_torch.h"

namespace yard::loop {
namespace {

LatentProgress progress_of(const LatentReport& report) {
  return {report.written_count, report.present_count, report.sample_count};
}

Result<LatentProgress> prepare_guarded(
    LatentJob& job, const StopToken& stop,
    const std::function<void(const LatentProgress&)>& shard_done) {
  Recipe& recipe = job.recipe;
  if (!job.source.empty()) recipe.data.shards = job.source;
  if (!recipe.model.autoencoder || recipe.model.autoencoder->from.empty())
    return Error{Code::kInvalidArgument,
                 "the recipe's autoencoder is yet to be trained: give a model that is, as its "
                 "output/pipeline, or model.autoencoder.from"};
  if (recipe.model.tokenizer.empty())
    return Error{Code::kInvalidArgument, "the recipe has no model.tokenizer"};
  if (recipe.data.shards.empty())
    return Error{Code::kInvalidArgument, "the recipe has no data.shards: give the folder"};
  set_up_torch(recipe, job.thread_count);
  YARD_ASSIGN(auto tokenizer, CaptionTokenizer::open(recipe.model));
  YARD_ASSIGN(const auto networks, Networks::create(recipe, &tokenizer));
  tokenizer.set_lengths(networks->caption_lengths());
  if (job.text && !networks->text_is_frozen())
    return Error{Code::kInvalidArgument,
                 "the recipe trains its text encoder, so that what it makes of captions changes: "
                 "set model.text_encoder.frozen, or leave --text away"};
  YARD_ASSIGN(const auto samples, Samples::open(recipe.data, recipe.seed));
  const LatentOptions options{.resolution = job.resolution,
                              .text = job.text,
                              .half = job.half,
                              .bf16 = recipe.precision == Precision::kBF16,
                              .place = {job.rank, job.rank_count}};
  YARD_ASSIGN(const LatentReport report, write_latents(*networks, &tokenizer, *samples, job.folder,
                                                       options, stop, [&](const LatentReport& r) {
                                                         if (shard_done) shard_done(progress_of(r));
                                                       }));
  return progress_of(report);
}

}  // namespace

Result<Recipe> recipe_of_model(const std::string& pipeline_dir) {
  YARD_ASSIGN(PipelineFolder folder, read_pipeline(pipeline_dir));
  return std::move(folder.recipe);
}

Result<int64_t> stage_resolution(const Recipe& recipe, const std::string& stage) {
  const auto it = std::ranges::find_if(recipe.stages, [&](const StageRecipe& s) {
    return s.train == Train::kDenoiser && (stage.empty() || s.name == stage);
  });
  if (it != recipe.stages.end()) return it->resolution;
  return Error{Code::kInvalidArgument,
               stage.empty() ? "the recipe has no denoiser stage: give --resolution"
                             : fmt::format("the recipe has no denoiser stage '{}'", stage)};
}

Result<LatentProgress> prepare_latents(
    LatentJob job, const StopToken& stop,
    const std::function<void(const LatentProgress&)>& shard_done) {
  return tensor::guard_torch("preparing latents",
                             [&] { return prepare_guarded(job, stop, shard_done); });
}

}  // namespace yard::loop
