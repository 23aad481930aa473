// Whole runs in which something goes wrong: losses that are no number, spikes, no memory, no disk.
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <thread>

#include "base/file.h"
#include "loop/testing/tiny_run.h"
#include "models/model_folder.h"

namespace yard::loop {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kPlain = {"sampling.prompts=[]", "evaluation.samples=0",
                                         "checkpoint.keep=99"};

std::vector<std::string> with(std::vector<std::string> more) {
  more.insert(more.begin(), kPlain.begin(), kPlain.end());
  return more;
}

bool exists(const std::string& path) {
  return fs::exists(path);
}

TEST_F(TrainerTest, AStepWhoseLossIsNoNumberIsSkippedAndItsSamplesAreNamed) {
  const auto spoil = [](int number, std::span<double> sums) {
    if (number == 2) sums[1] = 1;
  };
  HookedGroup group(spoil);
  const Status status = run_on(group, StopToken(), "out", kPlain);
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(losses("out").size(), 10u);
  ASSERT_EQ(alarms("out", "skipped_step").size(), 1u);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "skipped, 1 of 3", alarms("out", "skipped_step")[0]);
  const Json facts =
      *parse_json(*read_file(path("out/not_finite/step-00000002.rank-0.json")), "facts");
  EXPECT_EQ(facts["samples"].size(), 4u);
  EXPECT_EQ(facts["stage"], "pixels");
  // As if the step had not been, but for the samples that were used up.
  use_plain_run("clean");
  EXPECT_EQ(losses("out").at(1), losses("clean").at(1));
  EXPECT_NE(losses("out").at(3), losses("clean").at(3));
}

TEST_F(TrainerTest, ARunThatSkippedAStepIsTakenUpBitForBit) {
  const auto overrides = with({"optimizer.kind=adamw8bit", "ema={start_step: 1}"});
  const auto spoiled = [&](const std::string& output, int stop_at) {
    StopSource stop;
    HookedGroup group([&](int number, std::span<double> sums) {
      if (number == 2) sums[1] = 1;
      if (number == stop_at) sums[2] = 1;
    });
    return run_on(group, StopToken(), output, overrides);
  };
  ASSERT_TRUE(spoiled("whole", 0));
  EXPECT_FALSE(spoiled("cut", 3));
  ASSERT_TRUE(run("cut", overrides));
  EXPECT_EQ(losses("cut"), losses("whole"));
  EXPECT_TRUE(weights("cut") == weights("whole"));
}

TEST_F(TrainerTest, MoreSkippedStepsThanAllowedEndTheRun) {
  HookedGroup group([](int, std::span<double> sums) { sums[1] = 1; });
  const Status status = run_on(group, StopToken(), "out", with({"guard.skip_steps=2"}));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kInvalidArgument);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "2 steps of the stage before it were skipped",
                      status.error().message);
  EXPECT_TRUE(exists(path("out/not_finite/step-00000003.rank-0.json")));
}

const std::vector<std::string> kWatched =
    with({"guard={spike_factor: 5, spike_warmup: 3}", "stages.pixels.steps=9"});

// A loss of 1000 in the step whose sums have that number.
void spoil_loss(int at, int number, std::span<double> sums) {
  if (number == at) sums[0] = 1000;
}

TEST_F(TrainerTest, ALossSpikeTakesTheRunBackToItsCheckpointAndPastTheSamples) {
  HookedGroup group([](int number, std::span<double> sums) { spoil_loss(6, number, sums); });
  const Status status = run_on(group, StopToken(), "out", kWatched);
  ASSERT_TRUE(status) << status.error().message;
  ASSERT_EQ(alarms("out", "loss_spike").size(), 1u);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "step 6: the loss is 1000",
                      alarms("out", "loss_spike")[0]);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "back to step 4", alarms("out", "loss_spike")[0]);
  EXPECT_EQ(losses("out").size(), 16u);
  for (const auto& [step, loss] : losses("out")) EXPECT_LT(loss, 100) << step;
  const Json state = (*parse_json(*read_file(path("out/checkpoints/step-00000008/manifest.json")),
                                  "manifest"))["metadata"];
  // 24 samples, 4 a step: two batches further than 8 steps take.
  EXPECT_EQ(state["epoch"], 1);
  EXPECT_EQ(state["batch"], 4);
  EXPECT_EQ(state["rewinds"], 1);
}

TEST_F(TrainerTest, ARunThatWentBackIsTakenUpBitForBit) {
  const auto spoiled = [&](const std::string& output, int stop_at) {
    HookedGroup group([&](int number, std::span<double> sums) {
      spoil_loss(6, number, sums);
      if (number == stop_at) sums[2] = 1;
    });
    return run_on(group, StopToken(), output, kWatched);
  };
  ASSERT_TRUE(spoiled("whole", 0));
  EXPECT_FALSE(spoiled("cut", 8));
  ASSERT_TRUE(run("cut", kWatched));
  EXPECT_EQ(losses("cut"), losses("whole"));
  EXPECT_TRUE(weights("cut") == weights("whole"));
}

TEST_F(TrainerTest, SpikesWithoutEndEndTheRunAndOneBeforeAnyCheckpointIsLetPass) {
  auto overrides =
      with({"guard={spike_factor: 5, spike_warmup: 3, rewinds: 2}", "stages.pixels.steps=9"});
  HookedGroup always([](int number, std::span<double> sums) {
    if (number > 5) sums[0] = 1000;
  });
  const Status status = run_on(always, StopToken(), "always", overrides);
  ASSERT_FALSE(status);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "after going back 2 times", status.error().message);
  overrides.push_back("checkpoint.every_steps=0");
  HookedGroup once([](int number, std::span<double> sums) { spoil_loss(6, number, sums); });
  ASSERT_TRUE(run_on(once, StopToken(), "once", overrides));
  ASSERT_EQ(alarms("once", "loss_spike").size(), 1u);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "no checkpoint to go back to",
                      alarms("once", "loss_spike")[0]);
}

// Gives out what the default does, but nothing over a limit: as it does when memory runs out.
class LimitedAllocator final : public at::Allocator {
 public:
  LimitedAllocator() : real_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, kPriority); }
  ~LimitedAllocator() override { c10::SetCPUAllocator(real_, kPriority); }

  at::DataPtr allocate(size_t size_bytes) override {
    if (size_bytes > largest_bytes_) largest_bytes_ = size_bytes;
    constexpr size_t kMoreThanThereIs = size_t{1} << 62;
    const bool refused = size_bytes > limit_bytes_ && refuses();
    return real_->allocate(refused ? kMoreThanThereIs : size_bytes);
  }
  at::DeleterFnPtr raw_deleter() const override { return real_->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }

  size_t largest_bytes() const { return largest_bytes_; }
  void set_limit(size_t size_bytes) { limit_bytes_ = size_bytes; }
  // Only one of those over the limit is refused: the `number`-th, counted from 1, of one thread.
  void refuse_once(size_t limit_bytes, int number) {
    limit_bytes_ = limit_bytes;
    until_refusal_ = number;
  }
  bool has_refused() const { return until_refusal_ <= 0; }

 private:
  static constexpr uint8_t kPriority = 100;
  static constexpr int kAlways = -1;

  bool refuses() {
    if (until_refusal_ == kAlways) return true;
    std::thread::id nobody, me = std::this_thread::get_id();
    if (!victim_.compare_exchange_strong(nobody, me) && nobody != me) return false;
    return until_refusal_ > 0 && --until_refusal_ == 0;
  }

  at::Allocator* real_;
  std::atomic<size_t> largest_bytes_ = 0;
  size_t limit_bytes_ = SIZE_MAX;
  int until_refusal_ = kAlways;
  std::atomic<std::thread::id> victim_;  // the first over the limit
};

const std::vector<std::string> kSynthetic = {
    "data={synthetic: {samples: 16, tokens: 5}}",
    "model.autoencoder=null",
    "model.text_encoder=null",
    "model.tokenizer=null",
    "sampling={}",
    "stages=[{name: s, train: denoiser, resolution: 32, steps: 3, batch: 8, learning_rate: 1e-3}]"};

TEST_F(TrainerTest, WithoutMemoryARunGoesOnWithHalfTheMicroBatchAndTheSameBatch) {
  LimitedAllocator allocator;
  ASSERT_TRUE(run("whole", kSynthetic));
  allocator.set_limit(allocator.largest_bytes() / 2);
  const Status status = run("halved", kSynthetic);
  ASSERT_TRUE(status) << status.error().message;
  const auto told = alarms("halved", "out_of_memory");
  ASSERT_FALSE(told.empty());
  EXPECT_PRED_FORMAT2(testing::IsSubstring,
                      "out of memory with micro-batches of 8: goes on with 4 at a time, the batch "
                      "stays 8",
                      told[0]);
  expect_near("halved", "whole", 1e-4);
  const Json notes = *parse_json(*read_file(path("halved/micro_batches.json")), "notes");
  EXPECT_LE(notes["s"]["micro_batch"], 4);
  allocator.set_limit(16);
  const Status nothing = run("nothing", kSynthetic);
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().code, Code::kExhausted) << nothing.error().message;
}

TEST_F(TrainerTest, WhereOneOfSeveralRanksIsWithoutMemoryAllGoOnWithHalfTheMicroBatch) {
  ASSERT_TRUE(run("whole", kSynthetic));
  struct Case {
    std::string mode;
    size_t limit_bytes;  // under the activations of a micro-batch, over the model's own tensors
    int number;
    int64_t micro_batch;
    std::string where;
  };
  // In the forward pass, in the backward pass, and in the first of two micro-batches whose
  // gradients are exchanged each by itself.
  const std::vector<Case> cases = {
      {"{mode: ddp}", 100'000, 1, 4, "forward pass"},
      {"{mode: ddp, bucket_bytes: 4KiB}", 100'000, 60, 4, "computing gradients"},
      {"{mode: zero2, bucket_bytes: 4KiB}", 60'000, 3, 2, "forward pass"}};
  for (const Case& c : cases) {
    LimitedAllocator allocator;
    allocator.refuse_once(c.limit_bytes, c.number);
    auto overrides = kSynthetic;
    overrides.push_back("parallel=" + c.mode);
    overrides.push_back("stages.s.micro_batch=" + std::to_string(c.micro_batch));
    const std::string output = "halved-" + std::to_string(c.number);
    const Status status = run_on_ranks(2, output, overrides);
    ASSERT_TRUE(status) << c.mode << ": " << status.error().message;
    EXPECT_TRUE(allocator.has_refused()) << c.mode;
    EXPECT_EQ(alarms(output, "out_of_memory").size(), 1u) << c.mode;
    const std::string told =
        *read_file(path(output + "/beats-0.jsonl")) + *read_file(path(output + "/beats-1.jsonl"));
    EXPECT_PRED_FORMAT2(testing::IsSubstring, c.where, told);
    const Json notes = *parse_json(*read_file(path(output + "/micro_batches.json")), "notes");
    EXPECT_EQ(notes["s"]["micro_batch"], c.micro_batch / 2) << c.mode;
    EXPECT_EQ(beats(output, "step").size(), 3u) << c.mode;
    expect_near(output, "whole", 1e-4);
  }
}

TEST_F(TrainerTest, WhereParametersAreSharedOutTheRankWithoutMemoryLeavesANoteForTheNextStart) {
  LimitedAllocator allocator;
  auto overrides = kSynthetic;
  overrides.push_back("parallel={mode: zero3, bucket_bytes: 4KiB}");
  ASSERT_TRUE(run_on_ranks(2, "whole", overrides));
  allocator.set_limit(allocator.largest_bytes() / 2);
  Status status = Ok{};
  for (int attempt = 0; attempt < 4; ++attempt) {
    status = run_on_ranks(2, "halved", overrides);
    if (status) break;
    EXPECT_EQ(status.error().code, Code::kUnavailable) << status.error().message;
  }
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_TRUE(exists(path("halved/micro_batches.json")));
  expect_near("halved", "whole", 1e-4);
}

TEST_F(TrainerTest, ACheckpointOfAnotherModelIsRefusedByTheFirstTensorThatDiffers) {
  const std::string folder = path("unet");
  const auto save = [&](int64_t width) {
    const Json config = {{"block_out_channels", {8, width}},
                         {"norm_num_groups", 4},
                         {"layers_per_block", 1},
                         {"cross_attention_dim", 8},
                         {"attention_head_dim", 2},
                         {"down_block_types", {"DownBlock2D", "CrossAttnDownBlock2D"}},
                         {"up_block_types", {"CrossAttnUpBlock2D", "UpBlock2D"}}};
    const models::UNet2DConditionModel unet(*models::UNetConfig::parse(config, "unet"), 3);
    ASSERT_TRUE(models::save_model(folder, models::ModelKind::kUNet, config, unet.parameters()));
  };
  auto overrides = kSynthetic;
  overrides.push_back("model.unet={from: " + folder + "}");
  overrides.push_back("stages.s.resolution=4");
  save(8);
  StopSource stop;
  HookedGroup group = stopping_group(stop, 2);
  EXPECT_EQ(run_on(group, stop.token(), "out", overrides).error().code, Code::kCancelled);
  save(16);
  const Status status = run("out", overrides);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kInvalidArgument);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "step-00000002", status.error().message);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "tensor 'unet.down_blocks.1.resnets.0.",
                      status.error().message);
}

TEST_F(TrainerTest, ADiskThatIsFullIsAnAlarmAndOlderCheckpointsStay) {
  // A file may not grow over the limit, whoever runs the test: what a full disk does.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit unlimited{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &unlimited), 0);
  // A save has ended when the one after the next begins.
  HookedGroup group([&](int number, std::span<double>) {
    rlimit limit = unlimited;
    if (number == 5) limit.rlim_cur = 8192;
    if (number == 5 || number == 8) {
      EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
      EXPECT_TRUE(exists(path("out/checkpoints/step-00000003/manifest.json")));
    }
  });
  const Status status = run_on(group, StopToken(), "out",
                               with({"checkpoint.every_steps=1", "stages.pixels.steps=9"}));
  setrlimit(RLIMIT_FSIZE, &unlimited);
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_GE(beats("out", "alarm").size(), 2u);
  EXPECT_EQ(losses("out").size(), 16u);
  for (const auto& [step, whole] :
       std::map<std::string, bool>{{"03", true}, {"05", false}, {"06", false}, {"16", true}})
    EXPECT_EQ(exists(path("out/checkpoints/step-000000" + step + "/manifest.json")), whole) << step;
}

}  // namespace
}  // namespace yard::loop
