#include "text/clip_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <queue>
#include <unordered_map>

#include "base/file.h"
#include "base/json.h"
#include "text/clip_words.h"

namespace yard::text {
namespace {

using Vocabulary = std::unordered_map<std::string, int64_t>;

struct Merge {
  int64_t rank = 0;  // lower first
  int64_t id = 0;    // of the joined token
};

uint64_t pair_key(int64_t left, int64_t right) {
  return uint64_t(left) << 32 | uint64_t(right);
}

Result<Vocabulary> parse_vocabulary(std::string_view text) {
  Result<Json> json = parse_json(text, "vocab.json");
  if (!json) return Error{Code::kCorrupt, json.error().message};
  if (!json->is_object() || json->empty())
    return Error{Code::kCorrupt, "vocab.json: not an object of token ids"};
  Vocabulary vocabulary;
  for (const auto& [token, id] : json->items()) {
    if (!id.is_number_integer() || id < 0 || id > std::numeric_limits<int32_t>::max()) {
      return Error{Code::kCorrupt,
                   fmt::format("vocab.json: token '{}' has the id {}", token, id.dump())};
    }
    vocabulary.emplace(token, id.get<int64_t>());
  }
  return vocabulary;
}

Result<int64_t> find_token(const Vocabulary& vocabulary, std::string_view token) {
  const auto entry = vocabulary.find(std::string(token));
  if (entry == vocabulary.end())
    return Error{Code::kCorrupt, fmt::format("vocab.json: no token '{}'", token)};
  return entry->second;
}

using Merges = std::unordered_map<uint64_t, Merge>;

Result<Merges> parse_merges(std::string_view text, const Vocabulary& vocabulary) {
  Merges merges;
  int64_t line_number = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    ++line_number;
    if (line.empty() || line.starts_with("#version")) continue;
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      return Error{Code::kCorrupt,
                   fmt::format("merges.txt: line {} is not two tokens", line_number)};
    }
    const std::string left(line.substr(0, space));
    const std::string right(line.substr(space + 1));
    std::array<int64_t, 3> ids = {};
    const std::array<std::string, 3> tokens = {left, right, left + right};
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto entry = vocabulary.find(tokens[i]);
      if (entry == vocabulary.end()) {
        return Error{Code::kCorrupt, fmt::format("merges.txt: line {}: no token '{}' in vocab.json",
                                                 line_number, tokens[i])};
      }
      ids[i] = entry->second;
    }
    merges.insert_or_assign(pair_key(ids[0], ids[1]), Merge{line_number, ids[2]});
  }
  return merges;
}

// The padding token's text; the file gives it as a string or as an object with "content".
Result<std::string> parse_pad_token(std::string_view text) {
  if (text.empty()) return std::string(kEndOfText);
  Result<Json> json = parse_json(text, "special_tokens_map.json");
  if (!json) return Error{Code::kCorrupt, json.error().message};
  if (!json->is_object() || !json->contains("pad_token")) return std::string(kEndOfText);
  const Json& pad = (*json)["pad_token"];
  if (pad.is_string()) return pad.get<std::string>();
  if (pad.is_object() && pad.contains("content") && pad["content"].is_string())
    return pad["content"].get<std::string>();
  return Error{Code::kCorrupt, "special_tokens_map.json: pad_token names no token"};
}

// A word being merged: a list of symbols linked by position, so that a join is O(1).
struct Symbol {
  int64_t id;
  int previous;
  int next;  // -1 at the ends; a joined symbol's right part has id -1
};

struct Candidate {
  int64_t rank;
  int position;  // of the left symbol
  int64_t left_id;
  int64_t right_id;
  int64_t joined_id;
  // For std::priority_queue, whose top is the largest: lowest rank, then leftmost.
  bool operator<(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

class WordMerger {
 public:
  WordMerger(const std::vector<int64_t>& ids, const Merges& merges) : merges_(merges) {
    const int count = int(ids.size());
    for (int i = 0; i < count; ++i)
      symbols_.push_back({ids[size_t(i)], i - 1, i + 1 < count ? i + 1 : -1});
    for (int i = 0; i + 1 < count; ++i) offer(i);
  }

  void append_merged(std::vector<int64_t>& out) {
    while (!candidates_.empty()) {
      const Candidate best = candidates_.top();
      candidates_.pop();
      if (is_current(best)) join(best);
    }
    for (const Symbol& symbol : symbols_) {
      if (symbol.id >= 0) out.push_back(symbol.id);
    }
  }

 private:
  Symbol& at(int position) { return symbols_[size_t(position)]; }

  void offer(int position) {
    const int next = at(position).next;
    if (next < 0) return;
    const int64_t left_id = at(position).id;
    const int64_t right_id = at(next).id;
    const auto merge = merges_.find(pair_key(left_id, right_id));
    if (merge == merges_.end()) return;
    candidates_.push({merge->second.rank, position, left_id, right_id, merge->second.id});
  }

  bool is_current(const Candidate& candidate) {
    const Symbol& left = at(candidate.position);
    return left.id == candidate.left_id && left.next >= 0 && at(left.next).id == candidate.right_id;
  }

  void join(const Candidate& candidate) {
    Symbol& left = at(candidate.position);
    Symbol& right = at(left.next);
    left.id = candidate.joined_id;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) at(left.next).previous = candidate.position;
    offer(candidate.position);
    if (left.previous >= 0) offer(left.previous);
  }

  const Merges& merges_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate> candidates_;
};

}  // namespace

struct ClipTokenizer::Impl {
  Merges merges;
  std::array<int64_t, 256> byte_ids = {};         // inside a word
  std::array<int64_t, 256> ending_byte_ids = {};  // at its end
  int64_t bos_id = 0;
  int64_t eos_id = 0;
  int64_t pad_id = 0;
  int64_t vocab_size = 0;

  void append_word(std::string_view word, std::vector<int64_t>& out) const {
    std::vector<int64_t> ids;
    for (const char c : word) ids.push_back(byte_ids[uint8_t(c)]);
    ids.back() = ending_byte_ids[uint8_t(word.back())];
    WordMerger(ids, merges).append_merged(out);
  }

  void append_plain(std::string_view text, std::vector<int64_t>& out) const {
    for (const std::string& word : clip_words(text)) append_word(word, out);
  }
};

ClipTokenizer::ClipTokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ClipTokenizer::ClipTokenizer(ClipTokenizer&&) noexcept = default;
ClipTokenizer& ClipTokenizer::operator=(ClipTokenizer&&) noexcept = default;
ClipTokenizer::~ClipTokenizer() = default;

Result<ClipTokenizer> ClipTokenizer::from_text(std::string_view vocab_json,
                                               std::string_view merges_text,
                                               std::string_view special_tokens_json) {
  YARD_ASSIGN(const Vocabulary vocabulary, parse_vocabulary(vocab_json));
  auto impl = std::make_unique<Impl>();
  YARD_ASSIGN(impl->merges, parse_merges(merges_text, vocabulary));
  YARD_ASSIGN(impl->bos_id, find_token(vocabulary, kStartOfText));
  YARD_ASSIGN(impl->eos_id, find_token(vocabulary, kEndOfText));
  YARD_ASSIGN(const std::string pad_token, parse_pad_token(special_tokens_json));
  YARD_ASSIGN(impl->pad_id, find_token(vocabulary, pad_token));
  for (const auto& [token, id] : vocabulary) impl->vocab_size = std::max(impl->vocab_size, id + 1);

  // A byte that the vocabulary lacks is an unknown token, which CLIP writes as the end of text.
  const ByteAlphabet alphabet = make_byte_alphabet();
  const auto id_or_unknown = [&](const std::string& token) {
    const auto entry = vocabulary.find(token);
    return entry == vocabulary.end() ? impl->eos_id : entry->second;
  };
  for (size_t byte = 0; byte < 256; ++byte) {
    impl->byte_ids[byte] = id_or_unknown(alphabet.symbols[byte]);
    impl->ending_byte_ids[byte] = id_or_unknown(alphabet.symbols[byte] + std::string(kEndOfWord));
  }
  return ClipTokenizer(std::move(impl));
}

Result<ClipTokenizer> ClipTokenizer::open(const std::string& dir) {
  YARD_ASSIGN(const std::string vocab_json, read_file(dir + "/vocab.json"));
  YARD_ASSIGN(const std::string merges_text, read_file(dir + "/merges.txt"));
  Result<std::string> special = read_file(dir + "/special_tokens_map.json");
  if (!special && special.error().code != Code::kNotFound) return std::move(special).error();
  Result<ClipTokenizer> tokenizer =
      from_text(vocab_json, merges_text, special ? *special : std::string());
  if (!tokenizer) return std::move(tokenizer).error().while_("opening tokenizer " + dir);
  return tokenizer;
}

std::vector<int64_t> ClipTokenizer::tokens(std::string_view text) const {
  std::vector<int64_t> ids;
  while (!text.empty()) {
    const size_t begin = text.find(kStartOfText);
    const size_t end = text.find(kEndOfText);
    const size_t special = std::min(begin, end);
    impl_->append_plain(text.substr(0, special), ids);
    if (special == std::string_view::npos) break;
    ids.push_back(begin < end ? impl_->bos_id : impl_->eos_id);
    text.remove_prefix(special + (begin < end ? kStartOfText : kEndOfText).size());
  }
  return ids;
}

std::vector<int64_t> ClipTokenizer::encode(std::string_view text, size_t length) const {
  YARD_CHECK(length >= 2);
  std::vector<int64_t> ids = {impl_->bos_id};
  const std::vector<int64_t> inner = tokens(text);
  ids.insert(ids.end(), inner.begin(),
             inner.begin() + ptrdiff_t(std::min(inner.size(), length - 2)));
  ids.push_back(impl_->eos_id);
  ids.resize(length, impl_->pad_id);
  return ids;
}

int64_t ClipTokenizer::bos_id() const {
  return impl_->bos_id;
}
int64_t ClipTokenizer::eos_id() const {
  return impl_->eos_id;
}
int64_t ClipTokenizer::pad_id() const {
  return impl_->pad_id;
}
int64_t ClipTokenizer::vocab_size() const {
  return impl_->vocab_size;
}

}  // namespace yard::text
