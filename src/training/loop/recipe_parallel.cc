#include "loop/recipe_fields_internal.h"
#include "loop/recipe_parallel_internal.h"

namespace yard::loop {

Status read_parallel(const YamlDocument& document, const Json& map, Recipe& recipe) {
  ParallelRecipe& out = recipe.parallel;
  Fields fields(document, map, "parallel");
  fields
      .read_enum("mode", out.mode,
                 {{"ddp", ParallelMode::kDdp},
                  {"zero1", ParallelMode::kZero1},
                  {"zero2", ParallelMode::kZero2},
                  {"zero3", ParallelMode::kZero3},
                  {"hybrid", ParallelMode::kHybrid}})
      .read("shard_size", out.shard_size)
      .read_size("bucket_bytes", out.bucket_bytes)
      .in_range("bucket_bytes", out.bucket_bytes, uint64_t{1} << 10, uint64_t{1} << 40)
      .read("gathered_units", out.gathered_units)
      .in_range<int64_t>("gathered_units", out.gathered_units, 2, 1024)
      .read_enum("accumulation", out.accumulate_whole, {{"sharded", false}, {"whole", true}})
      .read_enum("parameters", out.bf16_parameters, {{"f32", false}, {"bf16", true}})
      .read_enum("rounding", out.stochastic_rounding, {{"nearest", false}, {"stochastic", true}})
      .read_enum("offload", out.offload, {{"none", false}, {"optimizer", true}})
      .read_enum("activations", out.recompute_activations, {{"kept", false}, {"recomputed", true}});
  const bool hybrid = out.mode == ParallelMode::kHybrid;
  if (hybrid && out.shard_size < 1)
    fields.fail("parallel", "parallel: hybrid needs 'shard_size', the ranks that share the model");
  if (!hybrid && fields.find("shard_size") != nullptr)
    fields.fail("parallel.shard_size", "parallel: 'shard_size' is for mode hybrid");
  if (out.bf16_parameters && recipe.precision != Precision::kBF16)
    fields.fail("parallel.parameters", "parallel: bf16 parameters need precision: bf16");
  if (out.stochastic_rounding && !out.bf16_parameters)
    fields.fail("parallel.rounding", "parallel: stochastic rounding is for bf16 parameters");
  return fields.status();
}

}  // namespace yard::loop
