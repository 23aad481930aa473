// How good the pictures of a model are that it makes for the captions of held-out samples.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "loop/picture_features.h"
#include "loop/run_context_internal.h"

namespace yard::loop {

struct PictureScoreReport {
  double frechet = 0;  // to the held-out pictures themselves: the less, the more alike
  // 100 max(cos(picture, caption), 0), mean over pictures (Hessel et al. 2021, as torchmetrics
  // scales it). Only with a CLIP.
  std::optional<double> clip_score;
  int64_t picture_count = 0;
};

// Of one stage that trains a denoiser; not thread-safe. Everything given must outlive it.
class PictureScores {
 public:
  PictureScores(RunContext& context, const StageRecipe& stage);

  bool enabled() const;
  // Makes evaluation.pictures pictures, shared out among the ranks, each from noise of its own that
  // never changes; with the weights as they are. The numbers are the first rank's on all.
  // Collective.
  Result<PictureScoreReport> measure();

 private:
  struct Features {
    at::Tensor pictures;  // [N, D] of all ranks' samples, in their order
    at::Tensor captions;  // likewise; undefined where none are known
  };
  Status load();
  at::Tensor make(int64_t begin, int64_t count) const;
  // Rounds of micro-batches, as many on every rank; `of` gives the rows of [begin, begin + count).
  template <typename Rows>
  Result<at::Tensor> gathered(Rows of) const;

  RunContext& context_;
  const StageRecipe& stage_;
  const int64_t count_;  // of all ranks
  const int64_t longest_share_;
  int64_t first_ = 0;  // number of this rank's first sample
  int64_t own_count_ = 0;
  std::vector<std::string> captions_;  // of this rank's samples
  Features real_;                      // once loaded
};

}  // namespace yard::loop
