// Training of a CLIP vocabulary (byte-level byte-pair encoding) from captions.
//
// Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units", ACL 2016.
// Deterministic: the same multiset of captions gives the same files, in any order.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace yard::text {

struct BpeOptions {
  size_t vocab_size = 1024;    // with the 512 byte symbols and two special tokens: at least 514
  int64_t pair_count_min = 2;  // rarer pairs are not merged; the vocabulary may then stay smaller
};

struct ClipVocabulary {
  std::vector<std::string> tokens;  // by id; the last two are <|startoftext|> and <|endoftext|>
  std::vector<std::pair<std::string, std::string>> merges;
};

// kInvalidArgument: vocab_size below 514.
Result<ClipVocabulary> train_clip_bpe(std::span<const std::string> captions,
                                      const BpeOptions& options);

// Writes vocab.json, merges.txt, tokenizer_config.json and special_tokens_map.json into `dir`, made
// if needed: ClipTokenizer::open and transformers' CLIPTokenizer.from_pretrained read it.
Status save_clip_vocabulary(const ClipVocabulary& vocabulary, const std::string& dir);

}  // namespace yard::text
