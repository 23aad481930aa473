#include "text/clip_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/ids.h"
#include "text/bpe_trainer.h"
#include "text/clip_words.h"

namespace yard::text {
namespace {

const std::vector<std::string> kCaptions = {"red apple",  "green apple", "red heart",
                                            "red circle", "apple tree",  "the artist's apple"};

ClipVocabulary vocabulary_of(const std::vector<std::string>& captions, size_t vocab_size) {
  return *train_clip_bpe(captions, {.vocab_size = vocab_size});
}

class TokenizerDir : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "/tokenizer-" + random_name(10);
    ASSERT_TRUE(save_clip_vocabulary(vocabulary_of(kCaptions, 540), dir_).has_value());
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void overwrite(const std::string& name, const std::string& content) {
    std::ofstream(dir_ + "/" + name) << content;
  }
  Code open_code() {
    const auto tokenizer = ClipTokenizer::open(dir_);
    EXPECT_FALSE(tokenizer.has_value());
    return tokenizer ? Code::kInternal : tokenizer.error().code;
  }

  std::string dir_;
};

using Words = std::vector<std::string>;

TEST(ClipWords, SplitsAsClipDoes) {
  EXPECT_EQ(clip_words("  Red\tAPPLE \n"), (Words{"red", "apple"}));
  EXPECT_EQ(clip_words("it's they'll we'd"), (Words{"it", "'s", "they", "'ll", "we", "'d"}));
  EXPECT_EQ(clip_words("'tis"), (Words{"'t", "is"}));
  EXPECT_EQ(clip_words("a12b"), (Words{"a", "1", "2", "b"}));
  EXPECT_EQ(clip_words("flag: U.S.!?"), (Words{"flag", ":", "u", ".", "s", ".!?"}));
  EXPECT_EQ(clip_words("Crème\u00a0BRÛLÉE"), (Words{"crème", "brûlée"}));
  EXPECT_EQ(clip_words("<|ENDOFTEXT|>!"), (Words{"<|", "endoftext", "|>", "!"}));
  EXPECT_TRUE(clip_words("").empty());
  EXPECT_TRUE(clip_words(" \u3000 ").empty());
}

TEST(ByteAlphabet, NumbersPrintableBytesFirst) {
  const ByteAlphabet alphabet = make_byte_alphabet();
  EXPECT_EQ(alphabet.symbols['a'], "a");
  EXPECT_EQ(alphabet.symbols[' '], "\u0120");
  EXPECT_EQ(alphabet.bytes_in_order.front(), '!');
  EXPECT_EQ(alphabet.bytes_in_order.back(), 0xad);
  EXPECT_EQ(alphabet.bytes_in_order.size(), 256U);
}

TEST(Trainer, MergesTheMostFrequentPairFirst) {
  const ClipVocabulary vocabulary = vocabulary_of({"aab aab ab"}, 516);
  // a b</w> is counted three times, a a twice; then a ab</w> twice.
  ASSERT_EQ(vocabulary.merges.size(), 2U);
  EXPECT_EQ(vocabulary.merges[0], (std::pair<std::string, std::string>{"a", "b</w>"}));
  EXPECT_EQ(vocabulary.merges[1], (std::pair<std::string, std::string>{"a", "ab</w>"}));
  EXPECT_EQ(vocabulary.tokens[512], "ab</w>");
  EXPECT_EQ(vocabulary.tokens[514], kStartOfText);
  EXPECT_EQ(vocabulary.tokens[515], kEndOfText);
}

TEST(Trainer, OrderOfCaptionsDoesNotMatter) {
  std::vector<std::string> reversed(kCaptions.rbegin(), kCaptions.rend());
  EXPECT_EQ(vocabulary_of(kCaptions, 600).tokens, vocabulary_of(reversed, 600).tokens);
  EXPECT_EQ(vocabulary_of(kCaptions, 600).merges, vocabulary_of(reversed, 600).merges);
}

TEST(Trainer, StopsWhenNothingRepeats) {
  EXPECT_EQ(vocabulary_of({"abc"}, 1024).tokens.size(), 514U);
  EXPECT_EQ(vocabulary_of({}, 1024).tokens.size(), 514U);
}

TEST(Trainer, VocabularySmallerThanTheBytesIsInvalidArgument) {
  const auto vocabulary = train_clip_bpe({}, {.vocab_size = 513});
  ASSERT_FALSE(vocabulary.has_value());
  EXPECT_EQ(vocabulary.error().code, Code::kInvalidArgument);
}

TEST(Trainer, UnwritableFolderIsAnError) {
  EXPECT_FALSE(save_clip_vocabulary(vocabulary_of({}, 514), "/proc/none/here").has_value());
}

ClipTokenizer tokenizer_of_merges(std::string_view merges) {
  constexpr std::string_view kVocabulary = R"({"a": 0, "b": 1, "c": 2, "a</w>": 3, "b</w>": 4,
    "c</w>": 5, "aa": 6, "ab": 7, "bc</w>": 8, "<|startoftext|>": 9, "<|endoftext|>": 10})";
  return *ClipTokenizer::from_text(kVocabulary, merges, "");
}

TEST(Merging, EarlierLinesOfTheFileGoFirst) {
  using Ids = std::vector<int64_t>;
  EXPECT_EQ(tokenizer_of_merges("#version: 0.2\na b\nb c</w>\n").tokens("abc"), (Ids{7, 5}));
  EXPECT_EQ(tokenizer_of_merges("#version: 0.2\nb c</w>\na b\n").tokens("abc"), (Ids{0, 8}));
}

TEST(Merging, GoesFromLeftToRightAndUsesASymbolOnce) {
  EXPECT_EQ(tokenizer_of_merges("a a").tokens("aaab"), (std::vector<int64_t>{6, 0, 4}));
  EXPECT_EQ(tokenizer_of_merges("a a").tokens("aaaab"), (std::vector<int64_t>{6, 6, 4}));
}

TEST(Merging, BytesWithoutATokenAreUnknown) {
  EXPECT_EQ(tokenizer_of_merges("").tokens("axb"), (std::vector<int64_t>{0, 10, 4}));
}

TEST_F(TokenizerDir, FrequentWordsAreOneToken) {
  const auto tokenizer = ClipTokenizer::open(dir_);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->tokens("Red APPLE").size(), 2U);
  EXPECT_EQ(tokenizer->tokens("red apple"), tokenizer->tokens(" RED  apple"));
  EXPECT_EQ(tokenizer->vocab_size(), tokenizer->eos_id() + 1);
}

TEST_F(TokenizerDir, EncodePadsAndCutsToTheLength) {
  const ClipTokenizer tokenizer = *ClipTokenizer::open(dir_);
  const std::vector<int64_t> ids = tokenizer.encode("red apple", 6);
  ASSERT_EQ(ids.size(), 6U);
  EXPECT_EQ(ids[0], tokenizer.bos_id());
  EXPECT_EQ(ids[3], tokenizer.eos_id());
  EXPECT_EQ(ids[5], tokenizer.pad_id());
  const std::vector<int64_t> cut = tokenizer.encode("red red red red red red", 4);
  EXPECT_EQ(cut, (std::vector<int64_t>{ids[0], ids[1], ids[1], ids[3]}));
  EXPECT_EQ(tokenizer.encode("").size(), kClipLength);
}

TEST_F(TokenizerDir, SpelledOutSpecialTokensAreTokens) {
  const ClipTokenizer tokenizer = *ClipTokenizer::open(dir_);
  const auto ids = tokenizer.tokens("red<|endoftext|> <|startoftext|>red");
  ASSERT_EQ(ids.size(), 4U);
  EXPECT_EQ(ids[1], tokenizer.eos_id());
  EXPECT_EQ(ids[2], tokenizer.bos_id());
}

TEST_F(TokenizerDir, AVeryLongWordIsNoTrouble) {
  const ClipTokenizer tokenizer = *ClipTokenizer::open(dir_);
  EXPECT_GT(tokenizer.tokens(std::string(300000, 'p')).size(), 1000U);
}

TEST_F(TokenizerDir, PaddingTokenIsReadFromTheFolder) {
  overwrite("special_tokens_map.json", R"({"pad_token": "!"})");
  EXPECT_EQ(ClipTokenizer::open(dir_)->pad_id(), 0);
  overwrite("special_tokens_map.json", R"({"pad_token": {"content": "!", "lstrip": false}})");
  EXPECT_EQ(ClipTokenizer::open(dir_)->pad_id(), 0);
  std::filesystem::remove(dir_ + "/special_tokens_map.json");
  EXPECT_EQ(ClipTokenizer::open(dir_)->pad_id(), ClipTokenizer::open(dir_)->eos_id());
}

TEST_F(TokenizerDir, DamagedFilesAreCorrupt) {
  overwrite("merges.txt", "#version: 0.2\nq u\n");
  EXPECT_EQ(open_code(), Code::kCorrupt);  // "qu" is in no caption
  overwrite("merges.txt", "a b c\n");
  EXPECT_EQ(open_code(), Code::kCorrupt);
  overwrite("merges.txt", "");
  overwrite("special_tokens_map.json", R"({"pad_token": 7})");
  EXPECT_EQ(open_code(), Code::kCorrupt);
  for (const char* vocab : {"", "[]", "{}", R"({"a": 0})", R"({"a": "b"})", R"({"a": -1})"}) {
    overwrite("vocab.json", vocab);
    EXPECT_EQ(open_code(), Code::kCorrupt) << vocab;
  }
}

TEST_F(TokenizerDir, MissingFilesAreNotFound) {
  std::filesystem::remove(dir_ + "/merges.txt");
  EXPECT_EQ(open_code(), Code::kNotFound);
  std::filesystem::remove_all(dir_);
  EXPECT_EQ(open_code(), Code::kNotFound);
}

}  // namespace
}  // namespace yard::text
