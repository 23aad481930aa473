// ClipTokenizer: captions to the token ids that a CLIP text encoder reads.
//
// Ids are those of transformers' CLIPTokenizer loaded from the same folder, for every text of
// characters known to Unicode 14. Thread-safe: nothing changes after open(). Owns its tables.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace yard::text {

inline constexpr size_t kClipLength = 77;  // ids per caption, begin and end included

class ClipTokenizer {
 public:
  // Reads vocab.json, merges.txt and, where present, special_tokens_map.json (the padding token).
  // kNotFound; kCorrupt: not such files, a merge of tokens that the vocabulary lacks, or no
  // <|startoftext|> and <|endoftext|> in it.
  static Result<ClipTokenizer> open(const std::string& dir);
  // The same from the files' contents. An empty `special_tokens_json` stands for an absent file:
  // padding is then the end of text, as in Stable Diffusion 1.
  static Result<ClipTokenizer> from_text(std::string_view vocab_json, std::string_view merges_text,
                                         std::string_view special_tokens_json);

  ClipTokenizer(ClipTokenizer&&) noexcept;
  ClipTokenizer& operator=(ClipTokenizer&&) noexcept;
  ~ClipTokenizer();

  // The ids of `text` alone. "<|endoftext|>" spelled out in it is that token, as in transformers.
  std::vector<int64_t> tokens(std::string_view text) const;
  // Exactly `length` >= 2 ids: begin, the first length - 2 tokens, end, padding.
  std::vector<int64_t> encode(std::string_view text, size_t length = kClipLength) const;

  int64_t bos_id() const;
  int64_t eos_id() const;
  int64_t pad_id() const;
  int64_t vocab_size() const;  // largest id plus one: rows of the embedding

 private:
  struct Impl;
  explicit ClipTokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace yard::text
