#include "report/report.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "images/picture.h"

namespace yard::report {
namespace {

namespace fs = std::filesystem;

class ReportTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "yard_report_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { fs::remove_all(dir_); }

  void write(const std::string& name, std::string_view content) {
    fs::create_directories((dir_ / name).parent_path());
    std::ofstream(dir_ / name, std::ios::binary) << content;
  }
  std::string page() {
    Result<std::string> made = make_report(dir_);
    EXPECT_TRUE(made) << made.error().message;
    return made ? *made : "";
  }

  fs::path dir_;
};

constexpr char kStart[] = R"({"t":100,"event":"start","rank":0,"attempt":0,"pid":1})"
                          "\n";

TEST_F(ReportTest, FolderThatNoJobMadeIsNotFound) {
  EXPECT_EQ(make_report(dir_ / "absent").error().code, Code::kNotFound);
  EXPECT_EQ(make_report(dir_).error().code, Code::kNotFound);
}

TEST_F(ReportTest, JobThatNeverBeganHasAReport) {
  write("job.json", R"({"name":"early","command":["/x/yard-train","a.yaml"],"ranks":2})");
  const std::string html = page();
  EXPECT_NE(html.find("<h1>early"), std::string::npos);
  EXPECT_NE(html.find("yard-train a.yaml"), std::string::npos);
  EXPECT_NE(html.find("no values were reported"), std::string::npos);
  EXPECT_NE(html.find("This run has no ledger"), std::string::npos);
  EXPECT_EQ(html.find("nan"), std::string::npos);
}

TEST_F(ReportTest, TextFromTheRunCannotBecomeMarkup) {
  const std::string evil = "<script>x</script>";
  write("job.json", R"({"name":")" + evil + R"(","command":[")" + evil + R"("]})");
  write("status.json", R"({"state":")" + evil + R"("})");
  write("recipe.yaml", evil);
  write("events.jsonl", R"({"t":1,"event":"fault","rank":1,"detail":")" + evil + "\"}\n");
  write("heartbeats/rank-0.jsonl",
        kStart + std::string(R"({"t":101,"event":"stage","stage":")") + evil +
            R"(","steps":1})"
            "\n" +
            R"({"t":102,"event":"sample","stage":")" + evil + R"(","global_step":1,"path":")" +
            evil + R"(","prompts":[")" + evil + "\"]}\n" +
            R"({"t":103,"event":"error","message":")" + evil + "\"}\n");
  const std::string html = page();
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_NE(html.find("&lt;script&gt;"), std::string::npos);
}

TEST_F(ReportTest, EveryPromptHasItsPictureAndNothingIsLoadedFromElsewhere) {
  std::vector<images::Picture> pictures(2, {4, 4, std::vector<uint8_t>(48, 7)});
  const Result<std::vector<std::byte>> png = images::encode_png(images::grid(pictures, 2, 1));
  ASSERT_TRUE(png);
  write("s/1.png", {reinterpret_cast<const char*>(png->data()), png->size()});
  write(
      "heartbeats/rank-0.jsonl",
      kStart +
          std::string(
              R"({"t":101,"event":"stage","stage":"a","steps":1,"resolution":4})"
              "\n"
              R"({"t":102,"event":"sample","stage":"a","global_step":1,"path":"s/1.png","prompts":["red fox","blue cup"]})"
              "\n"));
  const std::string html = page();
  EXPECT_NE(html.find("alt=\"red fox\""), std::string::npos);
  EXPECT_NE(html.find("<figcaption>blue cup</figcaption>"), std::string::npos);
  for (const char* outside : {"http:", "https:", "src=\"/", "url(", "@import", "<link"}) {
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  }
}

TEST_F(ReportTest, PictureThatIsLostOrDamagedIsNamed) {
  write("bad.png", "\x89PNG\r\n\x1a\n no more");
  const auto sample = [](const char* stage, const char* path) {
    return std::string(R"({"t":101,"event":"stage","stage":")") + stage + "\",\"steps\":1}\n" +
           R"({"t":102,"event":"sample","stage":")" + stage + R"(","global_step":1,"path":")" +
           path + "\",\"prompts\":[\"a\"]}\n";
  };
  write("heartbeats/rank-0.jsonl", kStart + sample("a", "lost.png") + sample("b", "bad.png"));
  const std::string html = page();
  EXPECT_NE(html.find("lost.png: "), std::string::npos);
  EXPECT_NE(html.find("bad.png: "), std::string::npos);
}

TEST_F(ReportTest, LedgerIsShownInSecondsSharesAndMoney) {
  write("job.json", R"({"name":"j"})");
  write("ledger.json",
        R"({"wall_s":100,"productive_s":75,"startup_s":25,"price_per_host_hour":36,"cost":1})");
  const std::string html = page();
  EXPECT_NE(html.find("75.0</td><td class=\"n\">75.0 %</td><td class=\"n\">0.7500</td>"),
            std::string::npos);
  EXPECT_NE(html.find("100.0</td><td class=\"n\">100.0 %</td><td class=\"n\">1.0000</td>"),
            std::string::npos);
  EXPECT_NE(html.find("<b>75.0 %</b>"), std::string::npos) << "utilisation in the headline";
}

TEST_F(ReportTest, HeadlineNamesTheModelThatWasSaved) {
  write("heartbeats/rank-0.jsonl",
        kStart + std::string(R"({"t":101,"event":"finish","global_step":1,"output":"out"})"
                             "\n"));
  write("out/pipeline/model_index.json",
        R"({"unet":["diffusers","UNet2DConditionModel"],"vae":["diffusers","AutoencoderKL"]})");
  EXPECT_NE(page().find("UNet2DConditionModel + AutoencoderKL"), std::string::npos);
}

TEST_F(ReportTest, UnwritableOutputIsAnErrorThatNamesIt) {
  write("job.json", R"({"name":"j"})");
  const Status status = write_report(dir_, dir_ / "no" / "such" / "dir.html");
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("dir.html"), std::string::npos);
}

}  // namespace
}  // namespace yard::report
