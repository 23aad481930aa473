#include "loop/picture_scores.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <span>

#include "loop/agreement.h"
#include "loop/frechet.h"
#include "loop/sampler.h"
#include "tensor/host_tensor.h"

namespace yard::loop {
namespace {

constexpr int64_t kPicturesAtOnce = 16;

// 100 cos, not below 0, of rows of length 1.
double mean_clip_score(const at::Tensor& pictures, const at::Tensor& captions) {
  return (100 * (pictures * captions).sum(1)).clamp_min(0).mean().item<double>();
}

}  // namespace

PictureScores::PictureScores(RunContext& context, const StageRecipe& stage)
    : context_(context),
      stage_(stage),
      count_(context.recipe.evaluation.pictures),
      longest_share_((count_ + context.group.size() - 1) / context.group.size()) {
  const int64_t ranks = context.group.size(), rank = context.group.rank();
  own_count_ = count_ * (rank + 1) / ranks - count_ * rank / ranks;
  // A rank without samples of its own looks at the first again, and does not count it.
  first_ = own_count_ == 0 ? 0 : count_ * rank / ranks;
}

bool PictureScores::enabled() const {
  return context_.features != nullptr && stage_.train == Train::kDenoiser;
}

template <typename Rows>
Result<at::Tensor> PictureScores::gathered(Rows of) const {
  std::vector<at::Tensor> parts;
  for (int64_t begin = 0; begin < longest_share_; begin += kPicturesAtOnce) {
    const bool own = begin < own_count_;
    const int64_t left = (own ? own_count_ : longest_share_) - begin;
    const at::Tensor rows = own ? of(begin, std::min(kPicturesAtOnce, left)) : of(0, 1);
    if (own)
      parts.push_back(rows);
    else if (parts.empty())
      parts.push_back(rows.narrow(0, 0, 0));
  }
  at::Tensor mine = at::cat(parts).to(at::kFloat);
  const int64_t missing = longest_share_ - mine.size(0);
  mine = at::cat({mine, at::zeros({missing, mine.size(1)})}).contiguous();
  const int64_t ranks = context_.group.size();
  at::Tensor all = at::zeros({ranks, longest_share_, mine.size(1)});
  YARD_TRY(context_.group.all_gather(tensor::bytes_of(mine), tensor::bytes_of(all))->wait());
  std::vector<at::Tensor> shares;
  for (int64_t r = 0; r < ranks; ++r)
    shares.push_back(all[r].narrow(0, 0, count_ * (r + 1) / ranks - count_ * r / ranks));
  return at::cat(shares);
}

Status PictureScores::load() {
  const PictureFeatures& features = *context_.features;
  loader::Batch batch;
  const auto read = [&]() -> Status {
    YARD_ASSIGN(auto loader, context_.samples->one_by_one(stage_.resolution, 0));
    YARD_ASSIGN(batch, loader->held_out(first_, std::max<int64_t>(own_count_, 1)));
    return Ok{};
  };
  YARD_TRY(agree(context_.group, read(), "reading held-out samples"));
  captions_ = batch.captions;
  const at::Tensor pictures = pictures_of(batch);
  YARD_ASSIGN(real_.pictures, gathered([&](int64_t begin, int64_t count) {
                return features.of_pictures(pictures.narrow(0, begin, count));
              }));
  if (!features.knows_captions()) return Ok{};
  YARD_ASSIGN(
      real_.captions, gathered([&](int64_t begin, int64_t count) {
        return features.of_captions({captions_.begin() + begin, captions_.begin() + begin + count});
      }));
  return Ok{};
}

at::Tensor PictureScores::make(int64_t begin, int64_t count) const {
  const Recipe& recipe = context_.recipe;
  std::vector<uint64_t> indices(static_cast<size_t>(count));
  std::iota(indices.begin(), indices.end(), static_cast<uint64_t>(first_ + begin));
  const auto plan = sampling_plan_of(recipe);
  YARD_CHECK(plan);  // open_inputs() has made it before
  return sample_pictures(*context_.networks, *plan,
                         {.tokens = context_.tokenizer->ids(
                              {captions_.begin() + begin, captions_.begin() + begin + count}),
                          .empty_tokens = context_.tokenizer->ids({""}),
                          .indices = indices,
                          .height = stage_.resolution,
                          .width = stage_.resolution,
                          .seed = recipe.seed,
                          .guidance = recipe.sampling.guidance,
                          .guidance_rescale = recipe.sampling.guidance_rescale,
                          .bf16 = context_.bf16()});
}

Result<PictureScoreReport> PictureScores::measure() {
  c10::NoGradGuard no_grad;
  if (!real_.pictures.defined()) YARD_TRY(load());
  YARD_ASSIGN(const at::Tensor made, gathered([&](int64_t begin, int64_t count) {
                return context_.features->of_pictures(make(begin, count));
              }));
  std::array<double, 2> scores = {
      frechet_distance(statistics_of(real_.pictures), statistics_of(made)), 0};
  if (real_.captions.defined()) scores[1] = mean_clip_score(made, real_.captions);
  // What is best is decided by them: all decide alike, whatever rounding there is between hosts.
  YARD_TRY(context_.group.broadcast(std::as_writable_bytes(std::span(scores)), 0)->wait());
  PictureScoreReport report{.frechet = scores[0], .clip_score = {}, .picture_count = count_};
  if (real_.captions.defined()) report.clip_score = scores[1];
  return report;
}

}  // namespace yard::loop
