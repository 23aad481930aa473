#include "loop/evaluation.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <span>

#include "base/file.h"
#include "base/log.h"
#include "images/picture.h"
#include "loop/agreement.h"
#include "loop/latent_cache.h"
#include "loop/losses.h"
#include "loop/sampler.h"
#include "tensor/host_tensor.h"

namespace yard::loop {
namespace {

constexpr int64_t kPicturesAtOnce = 16;
constexpr int kGridGap = 2;

std::string told_path(const RunContext& context, const std::string& path) {
  if (context.options.job_dir.empty()) return path;
  return std::filesystem::relative(path, context.options.job_dir).string();
}

// The prompts that this rank draws: rank, rank + size, ...
std::vector<uint64_t> prompts_of_rank(const RunContext& context) {
  std::vector<uint64_t> indices;
  for (size_t i = static_cast<size_t>(context.group.rank());
       i < context.recipe.sampling.prompts.size(); i += static_cast<size_t>(context.group.size()))
    indices.push_back(i);
  return indices;
}

at::Tensor sample_some(RunContext& context, int64_t resolution, std::span<const uint64_t> indices) {
  std::vector<std::string> prompts;
  for (const uint64_t i : indices) prompts.push_back(context.recipe.sampling.prompts[i]);
  const SamplingRecipe& sampling = context.recipe.sampling;
  const auto plan = sampling_plan_of(context.recipe);
  YARD_CHECK(plan);  // open_inputs() has made it before
  return sample_pictures(*context.networks, *plan,
                         {.tokens = context.tokenizer->ids(prompts),
                          .empty_tokens = context.tokenizer->ids({""}),
                          .indices = {indices.begin(), indices.end()},
                          .height = resolution,
                          .width = resolution,
                          .seed = context.recipe.seed,
                          .guidance = sampling.guidance,
                          .guidance_rescale = sampling.guidance_rescale,
                          .bf16 = context.bf16()});
}

// Pictures of all prompts, in their order, on every rank.
Result<std::vector<images::Picture>> sample_all(RunContext& context, int64_t resolution) {
  const std::vector<uint64_t> mine = prompts_of_rank(context);
  const auto ranks = static_cast<size_t>(context.group.size());
  const size_t prompt_count = context.recipe.sampling.prompts.size();
  const size_t picture_bytes = static_cast<size_t>(resolution * resolution) * 3;
  std::vector<std::byte> own((prompt_count + ranks - 1) / ranks * picture_bytes);
  const uint64_t first_prompt = 0;
  // As many rounds as the rank with most prompts has, for under sharding each needs the others'
  // parameters: one without prompts left draws the first again, and drops it.
  for (size_t begin = 0; begin < (prompt_count + ranks - 1) / ranks; begin += kPicturesAtOnce) {
    if (begin >= mine.size()) {
      (void)sample_some(context, resolution, std::span(&first_prompt, 1));
      continue;
    }
    const auto some =
        std::span(mine).subspan(begin, std::min<size_t>(kPicturesAtOnce, mine.size() - begin));
    const at::Tensor pictures = sample_some(context, resolution, some).contiguous();
    for (size_t i = 0; i < some.size(); ++i) {
      const images::Picture picture =
          images::from_floats(tensor::floats_of(pictures[static_cast<int64_t>(i)]),
                              static_cast<int>(resolution), static_cast<int>(resolution));
      std::memcpy(own.data() + (begin + i) * picture_bytes, picture.pixels.data(), picture_bytes);
    }
  }
  std::vector<std::byte> all(own.size() * ranks);
  YARD_TRY(context.group.all_gather(own, all)->wait());
  std::vector<images::Picture> out;
  for (size_t i = 0; i < prompt_count; ++i) {
    const auto* begin = reinterpret_cast<const uint8_t*>(all.data()) + (i % ranks) * own.size() +
                        (i / ranks) * picture_bytes;
    out.push_back({static_cast<int>(resolution),
                   static_cast<int>(resolution),
                   {begin, begin + picture_bytes}});
  }
  return out;
}

images::Picture grid_of(const std::vector<images::Picture>& pictures, int64_t columns) {
  if (columns == 0)
    columns = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(pictures.size()))));
  return images::grid(pictures, static_cast<int>(columns), kGridGap);
}

Status write_png(const std::string& path, std::string_view png) {
  YARD_TRY(make_directories(std::filesystem::path(path).parent_path()));
  return write_file_atomic(path, png);
}

}  // namespace

HeldOutLoss::HeldOutLoss(RunContext& context, const StageRecipe& stage)
    : context_(context),
      stage_(stage),
      bucket_count_(
          stage.train == Train::kAutoencoder
              ? 1
              : std::min(context.recipe.evaluation.buckets, context.schedule.timestep_count())) {}

Status HeldOutLoss::load() {
  const int64_t count = context_.recipe.evaluation.samples;
  const int64_t ranks = context_.group.size(), rank = context_.group.rank();
  loaded_ = true;
  if (count == 0) return Ok{};
  // Every rank takes part in as many forward passes, for under sharding each needs the others'
  // parameters: one without samples of its own looks at the first again, and does not count it.
  own_count_ = count * (rank + 1) / ranks - count * rank / ranks;
  longest_share_ = (count + ranks - 1) / ranks;
  first_ = own_count_ == 0 ? 0 : count * rank / ranks;
  const int64_t begin = first_, end = begin + std::max<int64_t>(own_count_, 1);
  if (context_.latents) {
    YARD_ASSIGN(share_, context_.latents->held_out(begin, end - begin));
    return Ok{};
  }
  YARD_ASSIGN(auto loader, context_.samples->one_by_one(stage_.resolution, 0));
  YARD_ASSIGN(const loader::Batch batch, loader->held_out(begin, end - begin));
  share_.ids = batch.sample_ids;
  share_.pictures = pictures_of(batch);
  if (stage_.train == Train::kAutoencoder) return Ok{};
  share_.tokens = context_.tokenizer->ids(batch.captions);
  if (context_.wants_sizes()) {
    YARD_ASSIGN(share_.condition.sizes,
                context_.samples->sizes(share_.ids, stage_.resolution, stage_.resolution));
  }
  return Ok{};
}

at::Tensor HeldOutLoss::losses(int64_t begin, int64_t count, int64_t look) const {
  const Networks& networks = *context_.networks;
  const auto ids =
      std::span(share_.ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
  if (stage_.train == Train::kAutoencoder)
    return autoencoder_loss(*networks.autoencoder(), stage_,
                            share_.pictures.narrow(0, begin, count), ids, nullptr, context_.bf16())
        .expand({count});
  DenoiserCondition condition = share_.condition.narrow(begin, count);
  if (!condition.context.defined()) {
    const at::Tensor sizes = condition.sizes;
    condition = networks.encode_captions(share_.tokens.narrow(0, begin, count), context_.bf16());
    condition.sizes = sizes;
  }
  const at::Tensor latents =
      share_.latents.defined()
          ? share_.latents.narrow(0, begin, count)
          : encode_latents(*networks.autoencoder(), share_.pictures.narrow(0, begin, count),
                           networks.scaling_factor(), context_.bf16());
  return denoiser_losses(*networks.denoiser(), context_.schedule, latents, condition, ids,
                         {.seed = context_.recipe.seed,
                          .step = static_cast<uint64_t>(look),
                          .noise = tensor::Purpose::kEvaluationNoise,
                          .timestep = tensor::Purpose::kEvaluationTimestep,
                          .bucket_count = bucket_count_,
                          .first_bucket = first_ + begin + look},
                         context_.bf16());
}

std::vector<double> HeldOutLoss::sums() const {
  c10::NoGradGuard no_grad;
  std::vector<double> sums(static_cast<size_t>(2 * bucket_count_));
  const int64_t looks = stage_.train == Train::kAutoencoder ? 1 : context_.recipe.evaluation.looks;
  for (int64_t look = 0; look < looks; ++look) {
    for (int64_t at = 0; at < longest_share_; at += stage_.micro_batch) {
      const bool own = at < own_count_;
      const int64_t begin = own ? at : 0;
      const int64_t count = own ? std::min(stage_.micro_batch, own_count_ - begin) : 1;
      const at::Tensor found = losses(begin, count, look).contiguous();
      for (int64_t i = 0; own && i < count; ++i) {
        const int64_t bucket = (first_ + begin + look + i) % bucket_count_;
        sums[static_cast<size_t>(bucket)] += found[i].item<double>();
        sums[static_cast<size_t>(bucket_count_ + bucket)] += 1;
      }
    }
  }
  return sums;
}

Result<HeldOutReport> HeldOutLoss::measure() {
  const Status loading = loaded_ ? Status(Ok{}) : load();
  YARD_TRY(agree(context_.group, loading, "reading held-out samples"));
  std::vector<double> totals = sums();
  YARD_TRY(context_.group
               .all_reduce(std::as_writable_bytes(std::span(totals)), collective::DType::kF64,
                           collective::ReduceOp::kSum)
               ->wait());
  HeldOutReport report;
  double sum = 0, count = 0;
  for (size_t b = 0; b < totals.size() / 2; ++b) {
    const double in_bucket = totals[totals.size() / 2 + b];
    sum += totals[b];
    count += in_bucket;
    if (stage_.train == Train::kDenoiser) report.bucket_losses.push_back(totals[b] / in_bucket);
  }
  report.loss = sum / count;
  return report;
}

Status write_sample_grid(RunContext& context, const StageRecipe& stage, int64_t global_step) {
  YARD_ASSIGN(const auto pictures, sample_all(context, stage.resolution));
  if (!context.is_first_rank()) return Ok{};
  const std::string path =
      fmt::format("{}/samples/step-{:08}.png", context.options.output_dir, global_step);
  const images::Picture grid = grid_of(pictures, context.recipe.sampling.columns);
  YARD_ASSIGN(const auto encoded, images::encode_png(grid));
  const std::string_view png(reinterpret_cast<const char*>(encoded.data()), encoded.size());
  context.metrics.image("samples/" + stage.name, global_step, grid.width, grid.height, png);
  if (Status written = write_png(path, png); !written) {
    log_error("ALARM: sample grid: {}", written.error().message);
    return Ok{};
  }
  context.heartbeat.tell("sample", {{"stage", stage.name},
                                    {"global_step", global_step},
                                    {"path", told_path(context, path)},
                                    {"prompts", context.recipe.sampling.prompts}});
  return Ok{};
}

}  // namespace yard::loop
