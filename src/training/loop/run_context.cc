#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include "loop/run_context_internal.h"
#include "loop/sampler.h"

namespace yard::loop {

void set_up_torch(const Recipe& recipe, int thread_count) {
  at::set_num_threads(thread_count);
  if (at::get_num_interop_threads() != 1) at::set_num_interop_threads(1);  // may be set once
  at::globalContext().setFlushDenormal(true);
  at::globalContext().setDeterministicAlgorithms(recipe.deterministic, /*warn_only=*/true);
  // It would fill each new tensor before its first use: 2 % of a step, for reads that do not
  // happen.
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

Status open_inputs(RunContext& context) {
  const Recipe& recipe = context.recipe;
  if (!recipe.model.tokenizer.empty()) {
    YARD_ASSIGN(context.tokenizer, CaptionTokenizer::open(recipe.model));
  }
  YARD_ASSIGN(context.networks,
              Networks::create(recipe, context.tokenizer ? &*context.tokenizer : nullptr));
  if (context.tokenizer) context.tokenizer->set_lengths(context.networks->caption_lengths());
  if (context.wants_sizes() && recipe.data.random_crop)
    return Error{Code::kInvalidArgument,
                 "data.random_crop: the denoiser is told where pictures were cut, and they must be "
                 "cut from the middle"};
  const bool makes_pictures = recipe.evaluation.pictures > 0;
  if (makes_pictures || !recipe.sampling.prompts.empty()) YARD_TRY(sampling_plan_of(recipe));
  if (makes_pictures) {
    YARD_ASSIGN(context.features,
                PictureFeatures::open(recipe.evaluation, *context.networks, context.bf16()));
  }
  if (!recipe.data.synthetic) {
    YARD_ASSIGN(context.samples, Samples::open(recipe.data, recipe.seed));
  }
  return Ok{};
}

Result<std::unique_ptr<Trainee>> make_trainee(RunContext& context, const StageRecipe& stage,
                                              Start start) {
  const Recipe& recipe = context.recipe;
  Networks& networks = *context.networks;
  YARD_ASSIGN(const auto parameters, networks.begin_training(stage.train, stage.freeze));
  networks.fill_in(stage.train, parameters);
  const auto value = [&](size_t index, at::Tensor& out) -> Status {
    if (start == Start::kZeros)
      out.zero_();
    else
      networks.start(parameters[index], out);
    return Ok{};
  };
  return Trainee::create(parameters, context.groups->of_trainee(),
                         {.optimizer = recipe.optimizer,
                          .ema = stage.ema,
                          .has_average = recipe.has_average(),
                          .parallel = recipe.parallel,
                          .seed = recipe.seed},
                         value);
}

}  // namespace yard::loop
