#include "loop/picture_maker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <span>

#include "base/file.h"
#include "base/nearest_name.h"
#include "images/picture.h"
#include "loop/pipeline_folder.h"
#include "loop/run_context_internal.h"
#include "loop/sampler.h"
#include "tensor/guard_torch.h"
#include "tensor/host_tensor.h"

namespace yard::loop {
namespace {

constexpr int kGap = 2;
constexpr int64_t kPicturesAtOnce = 4;

Result<models::SchedulerKind> kind_of(const std::string& name) {
  static const std::map<std::string_view, models::SchedulerKind> kKinds = {
      {"ddim", models::SchedulerKind::kDdim},
      {"ddpm", models::SchedulerKind::kDdpm},
      {"dpm++", models::SchedulerKind::kDpmSolverMultistep},
      {"euler", models::SchedulerKind::kEuler},
      {"flow", models::SchedulerKind::kFlowMatchEuler}};
  if (const auto it = kKinds.find(name); it != kKinds.end()) return it->second;
  std::vector<std::string_view> known;
  for (const auto& [key, kind] : kKinds) known.push_back(key);
  return Error{Code::kInvalidArgument,
               fmt::format("there is no scheduler '{}'{}", name, suggestion(name, known))};
}

// The folder's own scheduler, or another with its noise levels.
Result<models::SchedulerConfig> scheduler_for(const PipelineFolder& folder,
                                              const PictureOptions& options) {
  if (options.scheduler.empty()) return folder.scheduler;
  YARD_ASSIGN(const models::SchedulerKind kind, kind_of(options.scheduler));
  const bool flow = folder.scheduler.prediction_type == models::PredictionType::kFlow;
  if (flow != (kind == models::SchedulerKind::kFlowMatchEuler) && kind != folder.scheduler.kind)
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: its model {} a rectified flow, and the scheduler '{}' is {}",
                             options.model, flow ? "is" : "is not", options.scheduler,
                             flow ? "not for one" : "for one")};
  const std::string what = options.model + "/scheduler/scheduler_config.json";
  YARD_ASSIGN(models::SchedulerConfig config,
              models::SchedulerConfig::parse_as(kind, folder.scheduler.to_json(), what));
  if (flow && kind == models::SchedulerKind::kFlowMatchEuler &&
      folder.scheduler.kind == models::SchedulerKind::kDpmSolverMultistep)
    config.shift = folder.scheduler.flow_shift;
  return config;
}

Status check_side(const Networks& networks, std::string_view name, int64_t side) {
  const ModelFactors factors = networks.factors();
  const int64_t unit = factors.autoencoder * factors.denoiser;
  if (side >= unit && side % unit == 0) return Ok{};
  const int64_t below = std::max(side / unit, int64_t{1}) * unit;
  return Error{Code::kInvalidArgument,
               fmt::format("a {} of {} is not a multiple of {}, which the model halves; {} or {} "
                           "would fit",
                           name, side, unit, below, below + unit)};
}

class PictureMaker {
 public:
  PictureMaker(const PictureOptions& options, const Networks& networks,
               const CaptionTokenizer& tokenizer, models::SamplingPlan plan)
      : options_(options), networks_(networks), tokenizer_(tokenizer), plan_(std::move(plan)) {}

  // The pictures [begin, end) of all.
  std::vector<images::Picture> make(int64_t begin, int64_t end) const {
    std::vector<std::string> prompts;
    std::vector<uint64_t> indices;
    for (int64_t i = begin; i < end; ++i) {
      prompts.push_back(options_.prompts[static_cast<size_t>(i / options_.count)]);
      indices.push_back(static_cast<uint64_t>(i));
    }
    const at::Tensor pictures =
        sample_pictures(networks_, plan_,
                        {.tokens = tokenizer_.ids(prompts),
                         .empty_tokens = tokenizer_.ids({options_.negative_prompt}),
                         .indices = indices,
                         .height = options_.height,
                         .width = options_.width,
                         .seed = options_.seed,
                         .guidance = options_.guidance,
                         .guidance_rescale = options_.guidance_rescale,
                         .bf16 = options_.bf16})
            .contiguous();
    std::vector<images::Picture> out;
    for (int64_t i = 0; i < pictures.size(0); ++i)
      out.push_back(images::from_floats(tensor::floats_of(pictures[i]),
                                        static_cast<int>(options_.width),
                                        static_cast<int>(options_.height)));
    return out;
  }

 private:
  const PictureOptions& options_;
  const Networks& networks_;
  const CaptionTokenizer& tokenizer_;
  const models::SamplingPlan plan_;
};

int columns_of(const PictureOptions& options, size_t picture_count) {
  if (options.columns > 0) return static_cast<int>(options.columns);
  if (options.count > 1) return static_cast<int>(options.count);
  return static_cast<int>(std::ceil(std::sqrt(static_cast<double>(picture_count))));
}

Status write_grid(const std::string& path, const std::vector<images::Picture>& pictures,
                  int columns) {
  YARD_ASSIGN(const auto encoded, images::encode_png(images::grid(pictures, columns, kGap)));
  const std::string folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) YARD_TRY(make_directories(folder));
  return write_file_atomic(
      path, std::string_view(reinterpret_cast<const char*>(encoded.data()), encoded.size()));
}

Status write_guarded(PictureOptions options, const std::string& path, const StopToken& stop,
                     const std::function<void(int64_t)>& picture_done) {
  YARD_ASSIGN(const PipelineFolder folder, read_pipeline(options.model));
  set_up_torch(folder.recipe, options.thread_count);
  YARD_ASSIGN(const models::SchedulerConfig scheduler, scheduler_for(folder, options));
  YARD_ASSIGN(auto plan, models::plan_sampling(scheduler, {.step_count = options.steps}));
  YARD_ASSIGN(auto tokenizer, CaptionTokenizer::open(folder.recipe.model));
  YARD_ASSIGN(const auto networks, Networks::create(folder.recipe, &tokenizer));
  tokenizer.set_lengths(networks->caption_lengths());
  if (options.width == 0) options.width = folder.side;
  if (options.height == 0) options.height = folder.side;
  YARD_TRY(check_side(*networks, "width", options.width));
  YARD_TRY(check_side(*networks, "height", options.height));
  const PictureMaker maker(options, *networks, tokenizer, std::move(plan));
  const int64_t count = static_cast<int64_t>(options.prompts.size()) * options.count;
  std::vector<images::Picture> pictures;
  for (int64_t begin = 0; begin < count; begin += kPicturesAtOnce) {
    if (stop.stopped()) return Error{Code::kCancelled, "making pictures was stopped"};
    const int64_t end = std::min(count, begin + kPicturesAtOnce);
    for (images::Picture& picture : maker.make(begin, end)) pictures.push_back(std::move(picture));
    if (picture_done) picture_done(end);
  }
  return write_grid(path, pictures, columns_of(options, pictures.size()));
}

}  // namespace

Status write_pictures(const PictureOptions& options, const std::string& png_path,
                      const StopToken& stop, const std::function<void(int64_t)>& picture_done) {
  if (options.prompts.empty() || options.count < 1)
    return Error{Code::kInvalidArgument, "there is no picture to be made: give a prompt"};
  return tensor::guard_torch("making pictures", [&]() -> Status {
    return write_guarded(options, png_path, stop, picture_done);
  });
}

}  // namespace yard::loop
