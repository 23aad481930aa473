// CaptionTokenizer: captions as the ids of every text encoder of a run.
//
// Each caption is one row: the ids of the first encoder, then those of the second where there is
// one. Thread-safe once its lengths are set.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "loop/recipe.h"
#include "text/clip_tokenizer.h"

namespace yard::loop {

class CaptionTokenizer {
 public:
  // Those that the recipe names; a second text encoder without a tokenizer of its own takes the
  // first's. kNotFound, kCorrupt as ClipTokenizer::open(). Contract: model.tokenizer is given.
  static Result<CaptionTokenizer> open(const ModelRecipe& model);

  // Of each encoder; Networks::caption_lengths().
  void set_lengths(std::vector<size_t> lengths) { lengths_ = std::move(lengths); }

  const text::ClipTokenizer& of_encoder(size_t index) const { return tokenizers_[index]; }
  // The folder that of_encoder() was read from.
  const std::string& folder(size_t index) const { return folders_[index]; }
  // [texts, the sum of lengths] i64.
  at::Tensor ids(const std::vector<std::string>& texts) const;
  size_t id_count() const;  // of a caption

 private:
  std::vector<text::ClipTokenizer> tokenizers_;
  std::vector<std::string> folders_;
  std::vector<size_t> lengths_;
};

}  // namespace yard::loop
