// Whole runs at a tiny size: 24 pictures of 8 px, models of a few thousand parameters.
#include "loop/trainer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <thread>

#include "base/file.h"
#include "collective/rendezvous.h"
#include "collective/testing/forwarding_group.h"
#include "images/picture.h"
#include "shards/shard_writer.h"
#include "storage/directory_store.h"
#include "text/bpe_trainer.h"

namespace yard::loop {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRecipe = R"(
name: tiny
seed: 7
data: {shards: SHARDS, held_out: 4}
model:
  autoencoder: {block_out_channels: [4, 8], down_block_types: [DownEncoderBlock2D, DownEncoderBlock2D],
    up_block_types: [UpDecoderBlock2D, UpDecoderBlock2D], norm_num_groups: 4, latent_channels: 2}
  unet: {in_channels: 2, out_channels: 2, block_out_channels: [8, 8], norm_num_groups: 4,
    down_block_types: [DownBlock2D, CrossAttnDownBlock2D],
    up_block_types: [CrossAttnUpBlock2D, UpBlock2D], layers_per_block: 1, cross_attention_dim: 8,
    attention_head_dim: 2}
  text_encoder: {vocab_size: 520, hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1,
    num_attention_heads: 2, max_position_embeddings: 6}
  tokenizer: TOKENIZER
stages:
  - {name: pixels, train: autoencoder, resolution: 8, steps: 3, batch: 4, learning_rate: 1e-3}
  - {name: cached, train: denoiser, resolution: 8, steps: 4, batch: 8, micro_batch: 2,
     learning_rate: 1e-3, cache_latents: true}
  - {name: online, train: denoiser, resolution: 16, steps: 3, batch: 4, learning_rate: 1e-3}
checkpoint: {every_steps: 2}
evaluation: {every_steps: 2}
sampling: {prompts: [red, blue, green], steps: 2, every_steps: 2}
)";

std::string replaced(std::string text, std::string_view from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

// Shards, tokenizer and recipe text, made once for all tests.
struct Ground {
  std::string dir;
  std::string recipe;
};

void write_shards(const std::string& dir) {
  fs::create_directories(dir);
  auto store = *storage::DirectoryStore::open(dir);
  auto writer = *shards::ShardWriter::create(*store, {});
  const std::vector<std::string> names = {"red", "green", "blue"};
  for (int i = 0; i < 28; ++i) {
    images::Picture picture{8, 8, std::vector<uint8_t>(8 * 8 * 3, static_cast<uint8_t>(i))};
    for (size_t p = 0; p < 64; ++p) picture.pixels[p * 3 + static_cast<size_t>(i % 3)] = 255;
    const auto png = *images::encode_png(picture);
    const std::string& caption = names[static_cast<size_t>(i % 3)];
    const std::vector<shards::NewMember> members = {{"png", png},
                                                    {"txt", std::as_bytes(std::span(caption))}};
    ASSERT_TRUE(writer.add("s" + std::to_string(i), members));
  }
  ASSERT_TRUE(writer.finish());
}

const Ground& ground() {
  static const Ground made = [] {
    Ground g{.dir = testing::TempDir() + "yard_trainer_test." + std::to_string(getpid())};
    write_shards(g.dir + "/shards");
    const std::vector<std::string> captions = {"red", "green", "blue"};
    const auto vocabulary = text::train_clip_bpe(captions, {.vocab_size = 516});
    EXPECT_TRUE(text::save_clip_vocabulary(*vocabulary, g.dir + "/tokenizer"));
    g.recipe = replaced(replaced(std::string(kRecipe), "SHARDS", g.dir + "/shards"), "TOKENIZER",
                        g.dir + "/tokenizer");
    return g;
  }();
  return made;
}

// A group of one that asks for a stop when the sums of so many steps have been taken.
class StoppingGroup final : public collective::ForwardingGroup {
 public:
  StoppingGroup(StopSource stop, int step_count)
      : StoppingGroup(collective::single_rank_group(), stop, step_count) {}

  std::unique_ptr<collective::Work> all_reduce(std::span<std::byte> inout, collective::DType dtype,
                                               collective::ReduceOp op) override {
    const bool sum_of_step = dtype == collective::DType::kF64 && inout.size() == 3 * sizeof(double);
    if (sum_of_step && --steps_left_ == 0) stop_.request();
    return inner_->all_reduce(inout, dtype, op);
  }

 private:
  StoppingGroup(std::unique_ptr<Group> alone, StopSource stop, int step_count)
      : ForwardingGroup(*alone), alone_(std::move(alone)), stop_(stop), steps_left_(step_count) {}

  std::unique_ptr<Group> alone_;
  StopSource stop_;
  int steps_left_;
};

class TrainerTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = ground().dir + "/" + testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  Status run(const std::string& output, const std::vector<std::string>& overrides = {}) {
    auto group = collective::single_rank_group();
    return run_on(*group, StopToken(), output, overrides);
  }

  Status run_on(collective::Group& group, const StopToken& stop, const std::string& output,
                const std::vector<std::string>& overrides = {}) {
    YARD_ASSIGN(Recipe recipe, parse_recipe(ground().recipe, "tiny.yaml", overrides));
    YARD_TRY(make_directories(dir_ + "/" + output));
    YARD_ASSIGN(auto heartbeat, HeartbeatWriter::open(dir_ + "/" + output + "/beats-" +
                                                          std::to_string(group.rank()) + ".jsonl",
                                                      Clock::real()));
    return train(std::move(recipe),
                 {.output_dir = dir_ + "/" + output, .job_dir = dir_, .thread_count = 1}, group,
                 heartbeat, stop);
  }

  Status run_on_two_ranks(const std::string& output, const std::vector<std::string>& overrides) {
    return run_on_ranks(2, output, overrides);
  }

  Status run_on_ranks(int world_size, const std::string& output,
                      const std::vector<std::string>& overrides) {
    std::vector<Status> results(static_cast<size_t>(world_size), Ok{});
    std::vector<std::thread> threads;
    static int port_index = 0;
    const auto port = static_cast<uint16_t>(20'000 + (getpid() * 8 + ++port_index) % 20'000);
    for (int rank = 0; rank < world_size; ++rank) {
      threads.emplace_back([&, rank] {
        auto group = collective::connect(
            {.rank = rank, .world_size = world_size, .master_port = port, .run_id = output},
            StopToken());
        results[static_cast<size_t>(rank)] =
            group ? run_on(**group, StopToken(), output, overrides) : Status(group.error());
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Status& result : results)
      if (!result) return result;
    return Ok{};
  }

  // Losses and held-out losses of both runs.
  void expect_near(const std::string& output, const std::string& reference, double tolerance) {
    const auto expected = losses(reference), got = losses(output);
    ASSERT_EQ(got.size(), expected.size());
    for (const auto& [step, loss] : expected)
      EXPECT_NEAR(got.at(step), loss, tolerance * loss) << output << " " << step;
    const auto looks = beats(output, "eval"), expected_looks = beats(reference, "eval");
    ASSERT_EQ(looks.size(), expected_looks.size());
    for (size_t i = 0; i < looks.size(); ++i) {
      const double loss = expected_looks[i]["loss"];
      EXPECT_NEAR(looks[i]["loss"].get<double>(), loss, tolerance * loss) << output << " " << i;
    }
  }

  std::vector<Json> beats(const std::string& output, const std::string& event) const {
    std::vector<Json> found;
    std::string text = *read_file(dir_ + "/" + output + "/beats-0.jsonl");
    for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      Json beat = *parse_json(std::string_view(text).substr(begin, end - begin), "beat");
      if (beat["event"] == event) found.push_back(std::move(beat));
    }
    return found;
  }

  std::map<int64_t, double> losses(const std::string& output) const {
    std::map<int64_t, double> out;
    for (const Json& beat : beats(output, "step")) out[beat["global_step"]] = beat["loss"];
    return out;
  }

  std::map<std::string, std::string> weights(const std::string& output) const {
    std::map<std::string, std::string> out;
    const fs::path pipeline = dir_ + "/" + output + "/pipeline";
    for (const auto& entry : fs::recursive_directory_iterator(pipeline))
      if (entry.path().extension() == ".safetensors")
        out[fs::relative(entry.path(), pipeline)] = *read_file(entry.path());
    return out;
  }

  std::string dir_;
};

TEST_F(TrainerTest, LeavesAPipelineSamplesAndCheckpoints) {
  const Status status = run("out");
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(weights("out").size(), 3u);
  EXPECT_TRUE(fs::exists(dir_ + "/out/pipeline/model_index.json"));
  EXPECT_TRUE(fs::exists(dir_ + "/out/checkpoints/step-00000010/manifest.json"));
  EXPECT_EQ(losses("out").size(), 10u);
  EXPECT_EQ(beats("out", "eval").size(), 6u);
  const auto samples = beats("out", "sample");
  ASSERT_EQ(samples.size(), 4u);
  const std::string png = samples.back()["path"];
  const auto bytes = *read_file(dir_ + "/" + png);
  const auto picture = images::decode(std::as_bytes(std::span(bytes)), {});
  ASSERT_TRUE(picture);
  EXPECT_EQ(picture->width, 2 * 16 + 2);
  EXPECT_EQ(picture->height, 2 * 16 + 2);
}

TEST_F(TrainerTest, StoppedAfterAnyStepAndResumedEqualsTheUninterruptedRunBitForBit) {
  ASSERT_TRUE(run("whole"));
  for (int steps = 1; steps <= 3; ++steps) {
    const std::string output = "stopped-" + std::to_string(steps);
    int run_count = 0;
    while (true) {
      ASSERT_LT(++run_count, 20);
      StopSource stop;
      StoppingGroup group(stop, steps);
      const Status status = run_on(group, stop.token(), output);
      if (status) break;
      ASSERT_EQ(status.error().code, Code::kCancelled) << status.error().message;
    }
    EXPECT_GT(run_count, 2);
    EXPECT_EQ(losses(output), losses("whole"));
    EXPECT_TRUE(weights(output) == weights("whole"));
  }
}

TEST_F(TrainerTest, TwoRanksGiveTheLossesOfOne) {
  ASSERT_TRUE(run("one"));
  const Status status = run_on_two_ranks("two", {});
  ASSERT_TRUE(status) << status.error().message;
  const auto one = losses("one"), two = losses("two");
  ASSERT_EQ(one.size(), two.size());
  for (const auto& [step, loss] : one) EXPECT_NEAR(two.at(step), loss, 1e-4 * loss) << step;
}

TEST_F(TrainerTest, MicroBatchesGiveTheLossesOfTheWholeBatch) {
  const std::vector<std::string> stages = {"checkpoint.every_steps=0", "sampling.prompts=[]"};
  ASSERT_TRUE(run("small", stages));
  ASSERT_TRUE(run("large", {"stages.cached.micro_batch=8", "sampling.prompts=[]"}));
  const auto small = losses("small"), large = losses("large");
  for (const auto& [step, loss] : small) EXPECT_NEAR(large.at(step), loss, 1e-4 * loss) << step;
}

TEST_F(TrainerTest, EveryWayOfSharingTheModelOutGivesTheLossesOfOneRank) {
  const std::string bucket = "parallel.bucket_bytes=4KiB";
  const std::vector<std::string> changes = {"evaluation.samples=3", "stages.cached.micro_batch=1"};
  ASSERT_TRUE(run("one", changes));
  const std::map<std::string, int> modes = {
      {"{mode: zero1}", 2},
      {"{mode: zero2, accumulation: whole, activations: recomputed}", 2},
      {"{mode: zero3, offload: optimizer}", 2},
      {"{mode: hybrid, shard_size: 2, activations: recomputed}", 4}};
  int index = 0;
  for (const auto& [mode, ranks] : modes) {
    const std::string output = "shared-" + std::to_string(++index);
    // Three prompts and three held-out samples: shares of unequal size.
    const Status status =
        run_on_ranks(ranks, output, {"parallel=" + mode, bucket, changes[0], changes[1]});
    ASSERT_TRUE(status) << mode << ": " << status.error().message;
    EXPECT_EQ(weights(output).size(), 3u) << mode;
    expect_near(output, "one", 1e-4);
  }
}

TEST_F(TrainerTest, AShardedRunIsTakenUpByAnyOtherMode) {
  const std::vector<std::string> zero3 = {"parallel={mode: zero3, bucket_bytes: 4KiB}"};
  ASSERT_TRUE(run_on_ranks(2, "whole", zero3));
  // What a run that died after step 6 leaves.
  ASSERT_TRUE(run_on_ranks(2, "cut", zero3));
  for (const char* later : {"step-00000008", "step-00000010"})
    fs::remove_all(dir_ + "/cut/checkpoints/" + later);
  fs::remove_all(dir_ + "/cut/pipeline");
  fs::copy(dir_ + "/cut", dir_ + "/other", fs::copy_options::recursive);
  ASSERT_TRUE(run_on_ranks(2, "cut", zero3));
  EXPECT_TRUE(weights("cut") == weights("whole"));
  ASSERT_TRUE(run("other"));
  const auto expected = losses("whole"), got = losses("other");
  for (const auto& [step, loss] : expected) EXPECT_NEAR(got.at(step), loss, 1e-4 * loss) << step;
}

TEST_F(TrainerTest, Bf16ParametersTrainUnderEveryMode) {
  for (const char* mode : {"ddp", "zero3"}) {
    const Status status = run_on_ranks(
        2, mode,
        {"precision=bf16",
         "parallel={parameters: bf16, rounding: stochastic, mode: " + std::string(mode) + "}"});
    ASSERT_TRUE(status) << mode << ": " << status.error().message;
    expect_near(mode, "ddp", 0.02);
  }
}

TEST_F(TrainerTest, AShardSizeThatDoesNotDivideTheRanksIsRefused) {
  const Status status = run_on_ranks(2, "out", {"parallel={mode: hybrid, shard_size: 3}"});
  ASSERT_FALSE(status);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "these would: 1, 2", status.error().message);
}

TEST_F(TrainerTest, TrainingLowersTheLoss) {
  ASSERT_TRUE(
      run("out", {"stages.pixels.steps=60", "stages.pixels.learning_rate=1e-2",
                  "checkpoint.every_steps=0", "evaluation.samples=0", "sampling.prompts=[]"}));
  const auto all = losses("out");
  EXPECT_LT(all.at(60), 0.7 * all.at(1));
}

TEST_F(TrainerTest, Bf16StaysNearF32) {
  ASSERT_TRUE(run("f32"));
  ASSERT_TRUE(run("bf16", {"precision=bf16"}));
  const auto exact = losses("f32");
  for (const auto& [step, loss] : losses("bf16")) EXPECT_NEAR(loss, exact.at(step), 0.1) << step;
}

TEST_F(TrainerTest, ALossThatIsNoNumberNamesStepAndSamples) {
  const Status status = run("out", {"stages.pixels.learning_rate=1e3", "optimizer.eps=1e-30",
                                    "optimizer.weight_decay=1e3", "stages.pixels.steps=50"});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kInvalidArgument);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "stage 'pixels', step ", status.error().message);
}

TEST_F(TrainerTest, ACheckpointOfAnotherRecipeIsRefused) {
  ASSERT_TRUE(run("out"));
  const Status status = run("out", {"optimizer.beta1=0.5"});
  ASSERT_FALSE(status);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "optimizer.beta1: 0.9 before, 0.5 now",
                      status.error().message);
}

TEST_F(TrainerTest, AFinishedRunIsNotTrainedAgain) {
  ASSERT_TRUE(run("out"));
  const auto before = weights("out");
  fs::remove_all(dir_ + "/out/pipeline");
  ASSERT_TRUE(run("out"));
  EXPECT_TRUE(weights("out") == before);
  EXPECT_EQ(beats("out", "step").size(), 10u);
}

TEST_F(TrainerTest, InputsThatAreNotThereAreNotFound) {
  fs::create_directories(dir_ + "/empty");
  const auto code = [&](const std::string& change) {
    const Status status = run("out", {change});
    return status ? "accepted" : std::string(to_string(status.error().code));
  };
  const std::string not_found(to_string(Code::kNotFound));
  EXPECT_EQ(code("data.shards=" + dir_ + "/nowhere"), not_found);
  EXPECT_EQ(code("data.shards=" + dir_ + "/empty"), not_found);
  EXPECT_EQ(code("model.tokenizer=" + dir_ + "/nowhere"), not_found);
  EXPECT_EQ(code("model.unet={from: " + dir_ + "/nowhere}"), not_found);
}

TEST_F(TrainerTest, SizesThatDoNotFitAreRefusedBeforeAnythingIsTrained) {
  const auto refusal = [&](const std::string& change) {
    const Status status = run("out", {change});
    if (status) return std::string("accepted");
    EXPECT_EQ(status.error().code, Code::kInvalidArgument);
    return status.error().message;
  };
  const auto expect = [&](const std::string& change, const std::string& part) {
    EXPECT_PRED_FORMAT2(testing::IsSubstring, part, refusal(change));
  };
  expect("stages.cached.resolution=10", "8, 12 or 16 would fit");
  expect("stages.cached.micro_batch=3", "these would: 1, 2, 4, 8");
  expect("model.text_encoder.vocab_size=100", "vocab_size 100 is too small");
  expect("model.unet.cross_attention_dim=16", "hidden_size 8");
  expect("model.unet.in_channels=4", "in_channels");
  expect("model.unet.block_out_chanels=[8]", "block_out_channels");
  expect("stages.pixels.batch=400", "batch");
}

TEST_F(TrainerTest, SyntheticDataNeedsTheDenoiserAlone) {
  const Status status =
      run("out", {"data={synthetic: {samples: 16, tokens: 5}}", "model.autoencoder=null",
                  "model.text_encoder=null", "model.tokenizer=null", "sampling={}",
                  "stages=[{name: s, train: denoiser, resolution: 4, steps: 3, batch: 4, "
                  "micro_batch: 2, learning_rate: 1e-3}]"});
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(losses("out").size(), 3u);
}

}  // namespace
}  // namespace yard::loop
