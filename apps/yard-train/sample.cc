// yard-train sample: pictures of a saved model.
#include <cstdio>
#include <memory>

#include "loop/picture_maker.h"
#include "subcommands.h"

namespace yard::app {
namespace {

struct SampleArguments {
  loop::PictureOptions options;
  std::string out = "samples.png";
};

Status run(const SampleArguments& arguments, const RankPlaceFacts& facts, const StopToken& stop) {
  loop::PictureOptions options = arguments.options;
  options.thread_count = facts.thread_count;
  const int64_t count = static_cast<int64_t>(options.prompts.size()) * options.count;
  YARD_TRY(loop::write_pictures(options, arguments.out, stop, [count](int64_t done) {
    std::fprintf(stderr, "%lld of %lld pictures\n", static_cast<long long>(done),
                 static_cast<long long>(count));
  }));
  std::printf("%s\n", arguments.out.c_str());
  return Ok{};
}

}  // namespace

void add_sample_command(CLI::App& app, const RankPlaceFacts& facts, Action& action) {
  auto arguments = std::make_shared<SampleArguments>();
  loop::PictureOptions& o = arguments->options;
  CLI::App* sub = app.add_subcommand("sample", "pictures of a saved model for prompts, as one PNG");
  sub->add_option("model", o.model, "folder of a pipeline, as training leaves it")->required();
  sub->add_option("prompts", o.prompts, "one or more captions")->required();
  sub->add_option("--out", arguments->out, "the PNG file")->capture_default_str();
  sub->add_option("--count", o.count, "pictures of each prompt")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  sub->add_option("--negative", o.negative_prompt, "what pictures are to be led away from");
  sub->add_option("--steps", o.steps, "of the sampler")->capture_default_str();
  sub->add_option("--guidance", o.guidance, "classifier-free; 1: none")->capture_default_str();
  sub->add_option("--guidance-rescale", o.guidance_rescale)->check(CLI::Range(0.0, 1.0));
  sub->add_option("--scheduler", o.scheduler,
                  "ddim, ddpm, euler, dpm++ or flow (default: the model's own)");
  sub->add_option("--seed", o.seed, "of the noise that pictures begin as")->capture_default_str();
  sub->add_option("--width", o.width, "pixels (default: the model's)")->check(CLI::Range(1, 8192));
  sub->add_option("--height", o.height)->check(CLI::Range(1, 8192));
  sub->add_option("--columns", o.columns, "pictures a row")->check(CLI::Range(1, 1024));
  sub->add_flag("--bf16", o.bf16, "compute in bfloat16");
  sub->callback([arguments, &facts, &action] {
    action = [arguments, &facts](const StopToken& stop) { return run(*arguments, facts, stop); };
  });
}

}  // namespace yard::app
