// yard-train latents: what the frozen parts of a model make of a data set, on disk.
#include <cstdio>
#include <memory>
#include <vector>

#include "loop/latent_preparer.h"
#include "subcommands.h"

namespace yard::app {
namespace {

struct LatentArguments {
  std::vector<std::string> places;  // [RECIPE] SOURCE DEST
  std::string model;
  std::string stage;
  std::string values = "f32";
  std::vector<std::string> overrides;
  int64_t resolution = 0;
  bool text = false;
  bool bf16 = false;
};

Result<loop::LatentJob> job_of(const LatentArguments& a) {
  const size_t wanted = a.model.empty() ? 3 : 2;
  if (a.places.size() != wanted)
    return Error{Code::kInvalidArgument, a.model.empty()
                                             ? "give RECIPE SOURCE DEST, or --model DIR SOURCE DEST"
                                             : "--model goes with SOURCE DEST alone"};
  loop::LatentJob job;
  if (a.model.empty()) {
    YARD_ASSIGN(job.recipe, loop::load_recipe(a.places.front(), a.overrides));
  } else {
    YARD_ASSIGN(job.recipe, loop::recipe_of_model(a.model));
  }
  if (a.bf16) job.recipe.precision = loop::Precision::kBF16;
  job.source = a.places[wanted - 2];
  job.folder = a.places[wanted - 1];
  job.text = a.text;
  job.half = a.values == "f16";
  job.resolution = a.resolution;
  if (job.resolution == 0) {
    YARD_ASSIGN(job.resolution, loop::stage_resolution(job.recipe, a.stage));
  }
  return job;
}

Status run(const LatentArguments& arguments, const RankPlaceFacts& facts, const StopToken& stop) {
  YARD_ASSIGN(loop::LatentJob job, job_of(arguments));
  job.rank = facts.rank;
  job.rank_count = facts.world_size;
  job.thread_count = facts.thread_count;
  const std::string folder = job.folder;
  YARD_ASSIGN(const loop::LatentProgress done,
              loop::prepare_latents(std::move(job), stop, [&](const loop::LatentProgress& p) {
                std::fprintf(stderr, "rank %d: %lld shards, %lld samples\n", facts.rank,
                             static_cast<long long>(p.written_count),
                             static_cast<long long>(p.sample_count));
              }));
  std::printf("%s: %lld samples in %lld shards written, %lld shards were there already\n",
              folder.c_str(), static_cast<long long>(done.sample_count),
              static_cast<long long>(done.written_count),
              static_cast<long long>(done.present_count));
  return Ok{};
}

}  // namespace

void add_latents_command(CLI::App& app, const RankPlaceFacts& facts, Action& action) {
  auto arguments = std::make_shared<LatentArguments>();
  CLI::App* sub = app.add_subcommand(
      "latents", "encode a data set's pictures once, into shards that a stage's 'latents' reads");
  sub->add_option("places", arguments->places, "[RECIPE] SOURCE DEST: folders of shards")
      ->required()
      ->expected(2, 3);
  sub->add_option("--model", arguments->model, "a pipeline's folder, instead of a recipe");
  sub->add_option("--set", arguments->overrides, "key=value of the recipe");
  sub->add_option("--stage", arguments->stage,
                  "whose resolution is taken (default: the first denoiser stage's)");
  sub->add_option("--resolution", arguments->resolution, "side of the squares, pixels")
      ->check(CLI::Range(1, 8192));
  sub->add_flag("--text", arguments->text, "what the frozen text encoders make of captions too");
  sub->add_option("--values", arguments->values, "f32, or f16 at half the size")
      ->check(CLI::IsMember({"f32", "f16"}))
      ->capture_default_str();
  sub->add_flag("--bf16", arguments->bf16, "compute in bfloat16");
  sub->callback([arguments, &facts, &action] {
    action = [arguments, &facts](const StopToken& stop) { return run(*arguments, facts, stop); };
  });
}

}  // namespace yard::app
