#include "loop/caption_tokenizer.h"

#include <numeric>
#include <span>

#include "tensor/host_tensor.h"

namespace yard::loop {

Result<CaptionTokenizer> CaptionTokenizer::open(const ModelRecipe& model) {
  CaptionTokenizer out;
  out.folders_.push_back(model.tokenizer);
  if (model.text_encoder_2)
    out.folders_.push_back(model.tokenizer_2.empty() ? model.tokenizer : model.tokenizer_2);
  for (const std::string& folder : out.folders_) {
    YARD_ASSIGN(text::ClipTokenizer tokenizer, text::ClipTokenizer::open(folder));
    out.tokenizers_.push_back(std::move(tokenizer));
  }
  return out;
}

size_t CaptionTokenizer::id_count() const {
  return std::accumulate(lengths_.begin(), lengths_.end(), size_t{0});
}

at::Tensor CaptionTokenizer::ids(const std::vector<std::string>& texts) const {
  std::vector<int64_t> ids;
  ids.reserve(texts.size() * id_count());
  for (const std::string& text : texts) {
    for (size_t i = 0; i < lengths_.size(); ++i) {
      const std::vector<int64_t> row = tokenizers_[i].encode(text, lengths_[i]);
      ids.insert(ids.end(), row.begin(), row.end());
    }
  }
  return tensor::copy_of(std::span<const int64_t>(ids),
                         {static_cast<int64_t>(texts.size()), static_cast<int64_t>(id_count())});
}

}  // namespace yard::loop
