#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include "loop/run_context_internal.h"

namespace yard::loop {

void set_up_torch(const Recipe& recipe, int thread_count) {
  at::set_num_threads(thread_count);
  if (at::get_num_interop_threads() != 1) at::set_num_interop_threads(1);  // may be set once
  at::globalContext().setFlushDenormal(true);
  at::globalContext().setDeterministicAlgorithms(recipe.deterministic, /*warn_only=*/true);
}

Status open_inputs(RunContext& context) {
  const Recipe& recipe = context.recipe;
  if (!recipe.model.tokenizer.empty()) {
    YARD_ASSIGN(context.tokenizer, text::ClipTokenizer::open(recipe.model.tokenizer));
  }
  YARD_ASSIGN(context.networks,
              Networks::create(recipe, context.tokenizer ? &*context.tokenizer : nullptr));
  if (!recipe.data.synthetic) {
    YARD_ASSIGN(context.samples, Samples::open(recipe.data, recipe.seed));
  }
  return Ok{};
}

}  // namespace yard::loop
