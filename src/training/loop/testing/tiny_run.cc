#include "loop/testing/tiny_run.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "base/file.h"
#include "collective/rendezvous.h"
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

constexpr size_t kStepSumCount = 5;

}  // namespace

std::unique_ptr<collective::Work> HookedGroup::all_reduce(std::span<std::byte> inout,
                                                          collective::DType dtype,
                                                          collective::ReduceOp op) {
  auto work = inner_->all_reduce(inout, dtype, op);
  if (dtype == collective::DType::kF64 && inout.size() == kStepSumCount * sizeof(double))
    hook_(++sum_count_, {reinterpret_cast<double*>(inout.data()), kStepSumCount});
  return work;
}

HookedGroup stopping_group(StopSource stop, int step_count) {
  // Every rank learns of a stop by the sums.
  return HookedGroup([stop, step_count](int number, std::span<double> sums) mutable {
    if (number != step_count) return;
    stop.request();
    sums[2] = 1;
  });
}

void TrainerTest::SetUp() {
  dir_ = ground().dir + "/" + testing::UnitTest::GetInstance()->current_test_info()->name();
  fs::remove_all(dir_);
}

void TrainerTest::TearDown() {
  fs::remove_all(dir_);
}

const std::string& TrainerTest::recipe_text() {
  return ground().recipe;
}

Status TrainerTest::run(const std::string& output, const std::vector<std::string>& overrides) {
  auto group = collective::single_rank_group();
  return run_on(*group, StopToken(), output, overrides);
}

void TrainerTest::use_plain_run(const std::string& output) {
  static const std::string made = [this] {
    EXPECT_TRUE(run("plain", {"checkpoint.every_steps=0"}));
    fs::rename(dir_ + "/plain", ground().dir + "/plain");
    return ground().dir + "/plain";
  }();
  fs::create_directories(dir_);
  fs::create_directory_symlink(made, dir_ + "/" + output);
}

Status TrainerTest::run_on(collective::Group& group, const StopToken& stop,
                           const std::string& output, const std::vector<std::string>& overrides) {
  YARD_ASSIGN(Recipe recipe, parse_recipe(ground().recipe, "tiny.yaml", overrides));
  YARD_TRY(make_directories(dir_ + "/" + output));
  YARD_ASSIGN(auto heartbeat, HeartbeatWriter::open(dir_ + "/" + output + "/beats-" +
                                                        std::to_string(group.rank()) + ".jsonl",
                                                    Clock::real()));
  return train(std::move(recipe),
               {.output_dir = dir_ + "/" + output,
                .job_dir = dir_,
                .thread_count = 1,
                .memory_bytes = memory_bytes_,
                .profiled_steps = profiled_steps_,
                .stop_at_stage = stop_at_stage_},
               group, heartbeat, stop);
}

Status TrainerTest::run_on_ranks(int world_size, const std::string& output,
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

int TrainerTest::run_in_pieces(int step_count, const std::string& output,
                               const std::vector<std::string>& overrides) {
  constexpr int kRunsMax = 20;
  for (int run_count = 1; run_count < kRunsMax; ++run_count) {
    StopSource stop;
    HookedGroup group = stopping_group(stop, step_count);
    const Status status = run_on(group, stop.token(), output, overrides);
    if (status) return run_count;
    EXPECT_EQ(status.error().code, Code::kCancelled) << status.error().message;
  }
  ADD_FAILURE() << "it is never done";
  return kRunsMax;
}

void TrainerTest::expect_near(const std::string& output, const std::string& reference,
                              double tolerance) {
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

std::vector<Json> TrainerTest::beats(const std::string& output, const std::string& event) const {
  std::vector<Json> found;
  std::string text = *read_file(dir_ + "/" + output + "/beats-0.jsonl");
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    Json beat = *parse_json(std::string_view(text).substr(begin, end - begin), "beat");
    if (beat["event"] == event) found.push_back(std::move(beat));
  }
  return found;
}

std::vector<std::string> TrainerTest::alarms(const std::string& output,
                                             const std::string& kind) const {
  std::vector<std::string> out;
  for (const Json& beat : beats(output, "alarm"))
    if (beat.value("kind", "") == kind) out.push_back(beat["message"]);
  return out;
}

std::map<int64_t, double> TrainerTest::losses(const std::string& output) const {
  std::map<int64_t, double> out;
  for (const Json& beat : beats(output, "step")) out[beat["global_step"]] = beat["loss"];
  return out;
}

std::map<std::string, std::string> TrainerTest::weights(const std::string& output) const {
  std::map<std::string, std::string> out;
  const fs::path pipeline = dir_ + "/" + output + "/pipeline";
  for (const auto& entry : fs::recursive_directory_iterator(pipeline))
    if (entry.path().extension() == ".safetensors")
      out[fs::relative(entry.path(), pipeline)] = *read_file(entry.path());
  return out;
}

}  // namespace yard::loop
