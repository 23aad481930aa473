#include "text/bpe_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <queue>
#include <set>

#include "base/file.h"
#include "base/json.h"
#include "text/clip_tokenizer.h"
#include "text/clip_words.h"

namespace yard::text {
namespace {

constexpr size_t kSpecialCount = 2;
constexpr size_t kByteSymbolCount = 512;

using Pair = std::pair<int, int>;  // token ids

struct Word {
  std::vector<int> ids;
  int64_t count = 0;
};

// A pair and its count when it was queued; stale once the count has changed.
struct Queued {
  int64_t count;
  Pair pair;
  // For std::priority_queue: most frequent first, then the smallest ids.
  bool operator<(const Queued& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class Trainer {
 public:
  Trainer() {
    const ByteAlphabet alphabet = make_byte_alphabet();
    for (const std::string_view ending : {std::string_view(), kEndOfWord}) {
      for (const int byte : alphabet.bytes_in_order)
        add_token(alphabet.symbols[size_t(byte)] + std::string(ending));
    }
    for (size_t i = 0; i < 256; ++i) id_of_byte_[size_t(alphabet.bytes_in_order[i])] = int(i);
  }

  void add_words(const std::map<std::string, int64_t>& counts) {
    for (const auto& [text, count] : counts) {
      Word word{{}, count};
      for (const char c : text) word.ids.push_back(id_of_byte_[uint8_t(c)]);
      word.ids.back() += 256;  // the same byte at the end of a word
      words_.push_back(std::move(word));
      count_pairs(int(words_.size()) - 1, +1);
    }
    for (const auto& [pair, count] : pair_counts_) queue_.push({count, pair});
  }

  ClipVocabulary train(const BpeOptions& options) {
    while (vocabulary_.tokens.size() + kSpecialCount < options.vocab_size && !queue_.empty()) {
      const Queued best = queue_.top();
      queue_.pop();
      const int64_t count = pair_counts_[best.pair];
      if (count != best.count) continue;  // queued again when it changed
      if (count < options.pair_count_min) break;
      merge(best.pair);
    }
    vocabulary_.tokens.emplace_back(kStartOfText);
    vocabulary_.tokens.emplace_back(kEndOfText);
    return std::move(vocabulary_);
  }

 private:
  int add_token(const std::string& token) {
    const auto [entry, added] = ids_.emplace(token, int(vocabulary_.tokens.size()));
    if (added) vocabulary_.tokens.push_back(token);
    return entry->second;  // two merges may spell the same token
  }

  void count_pairs(int word_index, int64_t sign) {
    const Word& word = words_[size_t(word_index)];
    for (size_t i = 0; i + 1 < word.ids.size(); ++i) {
      const Pair pair = {word.ids[i], word.ids[i + 1]};
      pair_counts_[pair] += sign * word.count;
      if (sign > 0) pair_words_[pair].insert(word_index);
      changed_.insert(pair);
    }
  }

  void merge(const Pair& pair) {
    const auto& tokens = vocabulary_.tokens;
    const std::string left = tokens[size_t(pair.first)];
    const std::string right = tokens[size_t(pair.second)];
    const int joined = add_token(left + right);
    vocabulary_.merges.emplace_back(left, right);

    changed_.clear();
    const std::set<int> touched = std::move(pair_words_[pair]);
    pair_words_.erase(pair);
    for (const int word_index : touched) {
      count_pairs(word_index, -1);
      join(pair, joined, words_[size_t(word_index)].ids);
      count_pairs(word_index, +1);
    }
    for (const Pair& changed : changed_) {
      const int64_t count = pair_counts_[changed];
      if (count > 0) queue_.push({count, changed});
    }
  }

  static void join(const Pair& pair, int joined, std::vector<int>& ids) {
    size_t kept = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      const bool here = i + 1 < ids.size() && ids[i] == pair.first && ids[i + 1] == pair.second;
      ids[kept++] = here ? joined : ids[i];
      if (here) ++i;
    }
    ids.resize(kept);
  }

  ClipVocabulary vocabulary_;
  std::map<std::string, int> ids_;
  int id_of_byte_[256] = {};
  std::vector<Word> words_;
  std::map<Pair, int64_t> pair_counts_;
  std::map<Pair, std::set<int>> pair_words_;  // words that hold the pair, or once did
  std::set<Pair> changed_;
  std::priority_queue<Queued> queue_;
};

std::string vocab_json_of(const ClipVocabulary& vocabulary) {
  std::string text = "{";
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id)
    text += fmt::format("{}{}: {}", id == 0 ? "" : ", ", Json(vocabulary.tokens[id]).dump(), id);
  return text + "}\n";
}

std::string merges_text_of(const ClipVocabulary& vocabulary) {
  std::string text = "#version: 0.2\n";
  for (const auto& [left, right] : vocabulary.merges) text += left + " " + right + "\n";
  return text;
}

}  // namespace

Result<ClipVocabulary> train_clip_bpe(std::span<const std::string> captions,
                                      const BpeOptions& options) {
  if (options.vocab_size < kByteSymbolCount + kSpecialCount) {
    return Error{Code::kInvalidArgument,
                 fmt::format("vocabulary size {}: at least {} are needed for the single bytes",
                             options.vocab_size, kByteSymbolCount + kSpecialCount)};
  }
  std::map<std::string, int64_t> word_counts;
  for (const std::string& caption : captions) {
    for (std::string& word : clip_words(caption)) ++word_counts[std::move(word)];
  }
  Trainer trainer;
  trainer.add_words(word_counts);
  return trainer.train(options);
}

Status save_clip_vocabulary(const ClipVocabulary& vocabulary, const std::string& dir) {
  const Json special = {{"bos_token", kStartOfText},
                        {"eos_token", kEndOfText},
                        {"pad_token", kEndOfText},
                        {"unk_token", kEndOfText}};
  Json config = special;
  config["add_prefix_space"] = false;
  config["do_lower_case"] = true;
  config["errors"] = "replace";
  config["model_max_length"] = kClipLength;
  config["tokenizer_class"] = "CLIPTokenizer";
  YARD_TRY(make_directories(dir));
  YARD_TRY(write_file_atomic(dir + "/vocab.json", vocab_json_of(vocabulary)));
  YARD_TRY(write_file_atomic(dir + "/merges.txt", merges_text_of(vocabulary)));
  YARD_TRY(write_file_atomic(dir + "/special_tokens_map.json", special.dump(2) + "\n"));
  return write_file_atomic(dir + "/tokenizer_config.json", config.dump(2) + "\n");
}

}  // namespace yard::text
