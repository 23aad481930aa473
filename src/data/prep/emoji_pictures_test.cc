#include "prep/emoji_pictures.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "base/file.h"
#include "base/ids.h"
#include "base/json.h"
#include "images/picture.h"
#include "prep/cldr_names.h"
#include "prep/emoji_font.h"

namespace yard::prep {
namespace {

namespace fs = std::filesystem;

// Five emoji, one sequence each of skin tone, flag, keycap and joined people, and what is no emoji.
constexpr std::string_view kAnnotations = R"(<?xml version="1.0" encoding="UTF-8" ?>
<!DOCTYPE ldml SYSTEM "../../common/dtd/ldml.dtd">
<ldml><annotations>
  <annotation cp="🍎">apple | fruit | red</annotation>
  <annotation cp="🍎" type="tts">red apple</annotation>
  <annotation cp="❤" type="tts">red heart</annotation>
  <annotation cp="{" type="tts">open curly bracket</annotation>
  <annotation cp="⇥" type="tts">rightwards arrow to bar</annotation>
  <annotation cp="7" type="tts">seven</annotation>
  <annotation cp="🍏">keywords alone</annotation>
</annotations></ldml>
)";
constexpr std::string_view kDerived = R"(<ldml><annotations>
  <annotation cp="👋🏽" type="tts">waving hand: medium skin tone</annotation>
  <annotation cp="🇫🇷" type="tts">flag: France</annotation>
  <annotation cp="#⃣" type="tts">keycap: #</annotation>
  <annotation cp="👩‍🚀" type="tts">woman astronaut</annotation>
  <annotation cp="🍎🍎" type="tts">two apples</annotation>
</annotations></ldml>
)";

void write(const std::string& path, std::string_view content) {
  std::ofstream(path, std::ios::binary) << content;
}

class Emoji : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "/emoji-" + random_name(10);
    fs::create_directories(root_ + "/common/annotations");
    fs::create_directories(root_ + "/common/annotationsDerived");
    write(root_ + "/common/annotations/en.xml", kAnnotations);
    write(root_ + "/common/annotationsDerived/en.xml", kDerived);
    options_.cldr_dir = root_;
    options_.out_dir = root_ + "/out";
    options_.size = 32;
    const Result<std::string> font = find_emoji_font();
    ASSERT_TRUE(font.has_value()) << font.error().message;
    options_.font = *font;
  }
  void TearDown() override { fs::remove_all(root_); }

  Result<EmojiStats> make() { return write_emoji_pictures(options_, StopToken()); }
  Error failure() {
    Result<EmojiStats> stats = make();
    EXPECT_FALSE(stats.has_value());
    return stats ? Error{Code::kInternal, "no error"} : std::move(stats).error();
  }
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> contents;
    for (const auto& entry : fs::directory_iterator(options_.out_dir))
      contents[entry.path().filename()] = *read_file(entry.path());
    return contents;
  }

  std::string root_;
  EmojiOptions options_;
};

TEST_F(Emoji, EveryKindOfSequenceIsOnePictureWithItsName) {
  const Result<EmojiStats> stats = make();
  ASSERT_TRUE(stats.has_value()) << stats.error().message;
  EXPECT_EQ(stats->name_count, 8);
  EXPECT_EQ(stats->written_count, 6);
  EXPECT_EQ(stats->not_in_font_count + stats->not_colour_count, 2);  // the arrow and the two apples
  const auto contents = files();
  EXPECT_EQ(contents.size(), 12U);
  EXPECT_EQ(contents.at("u1f34e.txt"), "red apple");
  EXPECT_EQ(contents.at("u2764.txt"), "red heart");
  EXPECT_EQ(contents.at("u1f44b-1f3fd.txt"), "waving hand: medium skin tone");
  EXPECT_EQ(contents.at("u1f1eb-1f1f7.txt"), "flag: France");
  EXPECT_EQ(contents.at("u23-20e3.txt"), "keycap: #");
  EXPECT_EQ(contents.at("u1f469-200d-1f680.txt"), "woman astronaut");
}

TEST_F(Emoji, TheRedAppleIsRedOnWhite) {
  ASSERT_TRUE(make().has_value());
  const std::string png = files().at("u1f34e.png");
  const images::Picture picture = *images::decode(std::as_bytes(std::span(png)), {});
  EXPECT_EQ(picture.width, 32);
  EXPECT_EQ(picture.height, 32);
  for (int c = 0; c < 3; ++c) EXPECT_EQ(picture.pixels[size_t(c)], 255);
  const uint8_t* centre = &picture.pixels[(16 * 32 + 16) * 3];
  EXPECT_GT(centre[0], 150);
  EXPECT_LT(centre[1], 110);
  EXPECT_LT(centre[2], 110);
}

TEST_F(Emoji, ThreadsDoNotChangeTheFiles) {
  ASSERT_TRUE(make().has_value());
  const auto one_thread = files();
  fs::remove_all(options_.out_dir);
  options_.thread_count = 4;
  ASSERT_TRUE(make().has_value());
  EXPECT_EQ(files(), one_thread);
}

TEST_F(Emoji, LimitCountsPicturesInTheOrderOfTheData) {
  options_.limit = 2;
  const Result<EmojiStats> stats = make();
  ASSERT_TRUE(stats.has_value());
  EXPECT_EQ(stats->written_count, 2);
  EXPECT_TRUE(files().contains("u1f34e.png"));
  EXPECT_TRUE(files().contains("u2764.png"));
}

TEST_F(Emoji, KeywordsAreWrittenWhenAskedFor) {
  options_.keywords = true;
  ASSERT_TRUE(make().has_value());
  const Json json = *parse_json(files().at("u1f34e.json"), "u1f34e.json");
  EXPECT_EQ(json["emoji"], "🍎");
  EXPECT_EQ(json["codepoints"], Json({"U+1F34E"}));
  EXPECT_EQ(json["keywords"], Json({"apple", "fruit", "red"}));
}

TEST_F(Emoji, MissingFilesAreNotFoundAndNamed) {
  options_.font = "/no/such/font.ttf";
  Error error = failure();
  EXPECT_EQ(error.code, Code::kNotFound);
  EXPECT_NE(error.message.find("/no/such/font.ttf"), std::string::npos);
  options_.cldr_dir = "/no/such/cldr";
  error = failure();
  EXPECT_EQ(error.code, Code::kNotFound);
  EXPECT_NE(error.message.find("/no/such/cldr"), std::string::npos);
}

TEST_F(Emoji, NamesThatAreNotXmlOrNotCldrAreCorrupt) {
  for (const char* content : {"", "not xml", "<ldml><annotations>", "<html></html>"}) {
    write(root_ + "/common/annotations/en.xml", content);
    EXPECT_EQ(failure().code, Code::kCorrupt) << content;
  }
  write(root_ + "/common/annotations/en.xml", "<ldml><annotations/></ldml>");
  write(root_ + "/common/annotationsDerived/en.xml", "<ldml><annotations/></ldml>");
  EXPECT_EQ(failure().code, Code::kCorrupt);
}

TEST_F(Emoji, FilesThatAreNotFontsAreInvalidArgument) {
  options_.font = root_ + "/font.ttf";
  for (const std::string& content :
       {std::string(), std::string("not a font"), std::string(5000, '\0')}) {
    write(options_.font, content);
    EXPECT_EQ(failure().code, Code::kInvalidArgument);
  }
}

TEST_F(Emoji, OutlineColourFontIsRefusedWithThePackageThatHelps) {
  // The real font with its bitmap tables under other names is a font whose colours are elsewhere.
  std::string font = *read_file(options_.font);
  for (const auto& [tag, other] : {std::pair{"CBDT", "COLR"}, std::pair{"CBLC", "XXXX"}})
    font.replace(font.find(tag), 4, other);
  options_.font = root_ + "/colr.ttf";
  write(options_.font, font);
  const Error error = failure();
  EXPECT_EQ(error.code, Code::kInvalidArgument);
  EXPECT_NE(error.message.find("COLR"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find("fonts-noto-color-emoji"), std::string::npos) << error.message;
}

TEST_F(Emoji, TruncatedFontNeverCrashes) {
  const std::string font = *read_file(options_.font);
  options_.font = root_ + "/cut.ttf";
  for (const size_t size : {100UL, 5000UL, 200000UL, font.size() / 2}) {
    write(options_.font, font.substr(0, size));
    (void)make().has_value();
  }
}

TEST_F(Emoji, UnwritableFolderIsAnError) {
  write(root_ + "/file", "");
  options_.out_dir = root_ + "/file/out";
  EXPECT_NE(failure().code, Code::kInternal);
  // A folder where a picture belongs.
  options_.out_dir = root_ + "/out";
  fs::create_directories(root_ + "/out/u2764.png");
  EXPECT_NE(failure().message.find("u2764.png"), std::string::npos);
}

TEST_F(Emoji, SizesOutOfRangeAreInvalidArgument) {
  for (const int size : {0, 7, 1025, -3}) {
    options_.size = size;
    EXPECT_EQ(failure().code, Code::kInvalidArgument) << size;
  }
}

TEST_F(Emoji, StopIsObeyed) {
  const StopSource source;
  source.request();
  const Result<EmojiStats> stats = write_emoji_pictures(options_, source.token());
  ASSERT_FALSE(stats.has_value());
  EXPECT_EQ(stats.error().code, Code::kCancelled);
}

TEST_F(Emoji, NamesAreReadFromTheFolderItselfToo) {
  EXPECT_EQ(read_cldr_names(root_ + "/common")->size(), 10U);
  EXPECT_EQ(read_cldr_names(root_)->size(), 10U);
}

}  // namespace
}  // namespace yard::prep
