#include "pipeline/pipeline_run.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>

#include <filesystem>

#include "base/file.h"

namespace yard::pipeline {
namespace {

// A platform that is not there: what is refused before it is asked.
class PipelineRunTest : public ::testing::Test {
 protected:
  PipelineRunTest() : store_(storage::S3Options{}) {
    std::string path = (std::filesystem::temp_directory_path() / "yard-pipe-XXXXXX").string();
    YARD_CHECK(::mkdtemp(path.data()) != nullptr);
    dir_ = path;
    options_.dir = dir_ + "/state";
    options_.file = "p.yaml";
    recipe("stages:\n  - {name: small}\n  - {name: large}\n");
  }
  ~PipelineRunTest() override { std::filesystem::remove_all(dir_); }

  void recipe(const std::string& text) { YARD_CHECK(write_file_atomic(dir_ + "/r.yaml", text)); }
  PipelineSpec spec(std::vector<std::string> overrides = {}) {
    auto parsed = parse_pipeline(
        "store: s3://b/p\nname: birds\nsteps:\n  - {name: low, train: r.yaml, until: small}\n",
        "p.yaml", dir_, overrides);
    YARD_CHECK(parsed.has_value());
    return *std::move(parsed);
  }
  Status run(const PipelineSpec& spec) {
    const aws::AwsClient platform({.url = "http://127.0.0.1:1"}, Clock::real(),
                                  std::chrono::milliseconds(0));
    const PipelineScreen screen{[this](const std::string& line) { said_ += line + "\n"; },
                                [](const std::string&) {}};
    return run_pipeline(spec, options_, platform, store_, screen);
  }
  void complete(const PipelineSpec& spec) {
    const auto text = read_file(dir_ + "/r.yaml");
    PipelineState state{"birds", "p.yaml", {}};
    state.steps.push_back({.name = "low",
                           .kind = "train",
                           .status = StepStatus::kCompleted,
                           .jobs = {"birds-low-1"},
                           .identity = identity_of(spec.steps[0], *text)});
    YARD_CHECK(make_directories(options_.dir));
    YARD_CHECK(save_pipeline_state(state, options_.dir));
  }

  std::string dir_;
  PipelineRunOptions options_;
  storage::Opener store_;
  std::string said_;
};

TEST_F(PipelineRunTest, CompletedStepsAreNotRunAgain) {
  complete(spec());
  const Status done = run(spec());
  EXPECT_TRUE(done) << done.error().message;
  EXPECT_EQ(said_, "[1/1] low: completed before\n");
}

TEST_F(PipelineRunTest, ACompletedStepThatIsDefinedOtherwiseIsRefusedByItsKey) {
  complete(spec());
  const Status by_key = run(spec({"steps.low.until=large"}));
  ASSERT_FALSE(by_key);
  EXPECT_NE(by_key.error().message.find("p.yaml: steps.low is completed by another 'until'"),
            std::string::npos)
      << by_key.error().message;
  recipe("stages:\n  - {name: small, steps: 3}\n  - {name: large}\n");
  const Status by_text = run(spec());
  ASSERT_FALSE(by_text);
  EXPECT_NE(by_text.error().message.find("another 'file'"), std::string::npos);
}

TEST_F(PipelineRunTest, HostsAndPricesOfACompletedStepMayChange) {
  complete(spec());
  EXPECT_TRUE(run(spec({"steps.low.hosts=4", "steps.low.price_per_host_hour=3"})));
}

TEST_F(PipelineRunTest, WhatIsMissingIsToldBeforeAnythingRuns) {
  const Status stage = run(spec({"steps.low.until=smal"}));
  ASSERT_FALSE(stage);
  EXPECT_NE(stage.error().message.find("did you mean 'small'"), std::string::npos);
  std::filesystem::remove(dir_ + "/r.yaml");
  const Status file = run(spec());
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, Code::kNotFound);
  EXPECT_NE(file.error().message.find("p.yaml: steps.low: 'train'"), std::string::npos);
}

TEST_F(PipelineRunTest, OneProcessRunsIt) {
  YARD_CHECK(make_directories(options_.dir));
  const UniqueFd lock(::open((options_.dir + "/lock").c_str(), O_RDWR | O_CREAT, 0644));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  const Status done = run(spec());
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace yard::pipeline
