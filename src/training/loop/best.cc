#include "loop/best.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/file.h"
#include "base/log.h"
#include "loop/pipeline_folder.h"

namespace yard::loop {
namespace {

namespace fs = std::filesystem;

Status save(const RunContext& context, const StageRecipe& stage, const std::string& dir,
            const std::vector<models::NamedTensor>& weights) {
  const Networks& networks = *context.networks;
  if (stage.train == Train::kAutoencoder)
    return save_autoencoder(networks, dir + "/vae", stage.resolution, weights);
  return save_pipeline(networks, dir, context.recipe, stage.resolution, weights);
}

// A folder that best.json does not name is nothing to anybody.
void remove_others(const std::string& folder, const std::string& kept) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.is_directory() && entry.path().filename() != kept)
      fs::remove_all(entry.path(), error);
  if (error) log_warning("{}: {}", folder, error.message());
}

Status replace_best(const RunContext& context, const StageRecipe& stage, int64_t global_step,
                    const Json& numbers, const std::vector<models::NamedTensor>& weights) {
  const std::string folder = context.options.output_dir + "/best/" + stage.name;
  const std::string name = fmt::format("step-{:08}", global_step);
  YARD_TRY(save(context, stage, folder + "/" + name, weights));
  Json facts = numbers;
  facts.update({{"path", name}, {"global_step", global_step}});
  YARD_TRY(write_file_atomic(folder + "/best.json", facts.dump(2) + "\n"));
  remove_others(folder, name);
  return Ok{};
}

}  // namespace

Status keep_best(RunContext& context, const StageRecipe& stage, const Trainee& trainee,
                 int64_t global_step, const Json& numbers) {
  const auto weights = trainee.weights_on_disk(context.options.output_dir, context.is_first_rank());
  if (!weights && weights.error().code == Code::kUnavailable) return weights.error();
  if (!context.is_first_rank()) return Ok{};
  const Status saved = weights ? replace_best(context, stage, global_step, numbers, *weights)
                               : Status(weights.error());
  if (!saved) {
    log_error("ALARM: keeping the best model: {}; training goes on", saved.error().message);
    context.heartbeat.tell(
        "alarm", {{"code", to_string(saved.error().code)}, {"message", saved.error().message}});
  }
  return Ok{};
}

}  // namespace yard::loop
