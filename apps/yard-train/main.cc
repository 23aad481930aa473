// yard-train: one rank of a training run. Alone, or started by `yard run` or torchrun with their
// environment variables (docs/formats/rank.md), which are read here and nowhere else.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/exit_code.h"
#include "base/file.h"
#include "base/log.h"
#include "base/stop_token.h"
#include "base/subprocess.h"
#include "collective/flight.h"
#include "collective/rendezvous.h"
#include "host_memory.h"
#include "loop/dry_run.h"
#include "loop/trainer.h"
#include "loop/weak_scaling.h"
#include "models/model_folder.h"
#include "subcommands.h"

namespace {

using yard::Code;
using yard::Error;
using yard::Result;
using yard::Status;
using Environment = std::map<std::string, std::string>;

struct Arguments {
  std::string recipe;
  std::vector<std::string> overrides;
  std::vector<std::string> forward;  // MODEL_DIR IN OUT
  bool dry_run = false;
  double price_per_hour = 0;  // of a rank
  std::string simulate;       // a cluster; empty: none
  std::string profile;        // "steps=5"; empty: none
  yard::app::Action action;   // of a subcommand; null: training
  yard::app::RankPlaceFacts place;
};

struct RankFacts {
  int rank = 0;
  int world_size = 1;
  int local_world_size = 1;
  int attempt = 0;
  int omp_threads = 0;     // 0: not given
  int stop_at_stage = -1;  // -1: not given
  int master_port = 29500;
  std::string master_address = "127.0.0.1";
  std::string run_id = "run";
  std::string job_dir;
  std::string heartbeat;
  std::string tls_key_file;
  int streams_between_hosts = 0;
  std::string generation_file;  // empty: a lost peer ends this rank
};

std::string text_of(const Environment& env, const std::string& name, const std::string& fallback) {
  const auto it = env.find(name);
  return it == env.end() || it->second.empty() ? fallback : it->second;
}

Result<int> number_of(const Environment& env, const std::string& name, int fallback, int low) {
  const std::string text = text_of(env, name, "");
  if (text.empty()) return fallback;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < low)
    return Error{Code::kInvalidArgument,
                 name + "=" + text + ": not a number from " + std::to_string(low)};
  return value;
}

Result<RankFacts> read_environment(const Environment& env) {
  RankFacts facts;
  YARD_ASSIGN(facts.rank, number_of(env, "RANK", 0, 0));
  YARD_ASSIGN(facts.world_size, number_of(env, "WORLD_SIZE", 1, 1));
  YARD_ASSIGN(facts.local_world_size, number_of(env, "LOCAL_WORLD_SIZE", 1, 1));
  YARD_ASSIGN(facts.attempt, number_of(env, "TORCHELASTIC_RESTART_COUNT", 0, 0));
  YARD_ASSIGN(facts.master_port, number_of(env, "MASTER_PORT", facts.master_port, 1));
  YARD_ASSIGN(facts.stop_at_stage, number_of(env, "YARD_STOP_AT_STAGE", -1, 0));
  facts.master_address = text_of(env, "MASTER_ADDR", facts.master_address);
  facts.run_id = text_of(env, "TORCHELASTIC_RUN_ID", facts.run_id);
  facts.job_dir = text_of(env, "YARD_JOB_DIR", "");
  facts.heartbeat = text_of(env, "YARD_HEARTBEAT", "");
  facts.tls_key_file = text_of(env, "TRAINYARD_TLS_KEY_FILE", "");
  YARD_ASSIGN(facts.streams_between_hosts, number_of(env, "TRAINYARD_STREAMS", 0, 0));
  facts.generation_file = text_of(env, "YARD_GENERATION_FILE", "");
  // A list ("4,2") is for nested parallel regions: the first number is ours.
  Environment first = env;
  const std::string threads = text_of(env, "OMP_NUM_THREADS", "");
  first["OMP_NUM_THREADS"] = threads.substr(0, threads.find(','));
  YARD_ASSIGN(facts.omp_threads, number_of(first, "OMP_NUM_THREADS", 0, 1));
  if (facts.rank >= facts.world_size)
    return Error{Code::kInvalidArgument,
                 "RANK=" + std::to_string(facts.rank) +
                     " is not below WORLD_SIZE=" + std::to_string(facts.world_size)};
  return facts;
}

int thread_count(const RankFacts& facts, int64_t wanted) {
  if (wanted > 0) return static_cast<int>(wanted);
  if (facts.omp_threads > 0) return facts.omp_threads;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores / facts.local_world_size);
}

// Of what is free on this host; the rest is left to what else is allocated meanwhile.
uint64_t memory_share_bytes(const RankFacts& facts) {
  constexpr uint64_t kUsedPercent = 80;
  return free_host_memory_bytes() / 100 * kUsedPercent /
         static_cast<uint64_t>(facts.local_world_size);
}

std::string output_dir(const RankFacts& facts, const yard::loop::Recipe& recipe) {
  const std::filesystem::path output(recipe.output);
  if (output.is_absolute() || facts.job_dir.empty()) return output;
  return std::filesystem::path(facts.job_dir) / output;
}

Result<std::unique_ptr<yard::collective::Group>> join(const RankFacts& facts,
                                                      const yard::StopToken& stop) {
  if (facts.world_size == 1) return yard::collective::single_rank_group();
  std::string flight_path;
  if (!facts.job_dir.empty()) {
    flight_path = yard::collective::flight_path(facts.job_dir, facts.rank);
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(flight_path).parent_path(), error);
    if (error) return Error{Code::kUnavailable, flight_path + ": its folder: " + error.message()};
  }
  std::string tls_key;
  if (!facts.tls_key_file.empty()) {
    YARD_ASSIGN(tls_key, yard::collective::read_tls_key(facts.tls_key_file));
  }
  return yard::collective::connect({.rank = facts.rank,
                                    .world_size = facts.world_size,
                                    .master_address = facts.master_address,
                                    .master_port = static_cast<uint16_t>(facts.master_port),
                                    .run_id = facts.run_id,
                                    .generation = static_cast<uint64_t>(facts.attempt),
                                    .flight_path = flight_path,
                                    .streams_between_hosts = facts.streams_between_hosts,
                                    .tls_key = tls_key},
                                   stop);
}

// Measures the recipe on the ranks that there are; the first one prints what it will take.
Status print_cost(const Arguments& arguments, yard::loop::Recipe recipe,
                  const yard::loop::TrainerOptions& options, yard::collective::Group& group) {
  std::optional<yard::loop::ClusterModel> cluster;
  if (!arguments.simulate.empty()) {
    YARD_ASSIGN(cluster, yard::loop::parse_cluster(arguments.simulate));
  }
  YARD_ASSIGN(const yard::loop::RecipeCost cost,
              yard::loop::measure_recipe(std::move(recipe), options, group));
  if (group.rank() != 0) return yard::Ok{};
  std::fputs(yard::loop::to_text(cost, arguments.price_per_hour).c_str(), stdout);
  if (!cluster) return yard::Ok{};
  std::vector<yard::loop::MeasuredStage> measured;
  std::vector<yard::loop::PredictedStage> predicted;
  for (const yard::loop::StageCost& stage : cost.stages) {
    measured.push_back(stage.measured);
    YARD_ASSIGN(predicted.emplace_back(),
                yard::loop::predict(stage.measured, measured.size() - 1, *cluster));
  }
  std::printf("\nsimulated: %s\n%s", arguments.simulate.c_str(),
              yard::loop::to_table(measured, predicted).c_str());
  return yard::Ok{};
}

// "steps=5".
Result<int64_t> profiled_steps(const std::string& text) {
  constexpr int64_t kStepsMax = 1000;
  int64_t value = 0;
  const std::string_view name = "steps=";
  const char* begin = text.data() + (text.starts_with(name) ? name.size() : 0);
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
  if (text.empty()) return 0;
  if (error == std::errc{} && end == text.data() + text.size() && value >= 1 && value <= kStepsMax)
    return value;
  return Error{Code::kInvalidArgument, "--profile " + text + ": steps=N is meant, N from 1 to " +
                                           std::to_string(kStepsMax)};
}

Status train(const Arguments& arguments, const RankFacts& facts,
             yard::loop::HeartbeatWriter& heartbeat, const yard::StopToken& stop) {
  YARD_ASSIGN(yard::loop::Recipe recipe,
              yard::loop::load_recipe(arguments.recipe, arguments.overrides));
  YARD_ASSIGN(const auto group, join(facts, stop));
  YARD_ASSIGN(const int64_t profiled, profiled_steps(arguments.profile));
  const yard::loop::TrainerOptions options{.output_dir = output_dir(facts, recipe),
                                           .job_dir = facts.job_dir,
                                           .thread_count = thread_count(facts, recipe.threads),
                                           .memory_bytes = memory_share_bytes(facts),
                                           .profiled_steps = profiled,
                                           .stop_at_stage = facts.stop_at_stage};
  if (arguments.dry_run || !arguments.simulate.empty())
    return print_cost(arguments, std::move(recipe), options, *group);
  return yard::loop::train(std::move(recipe), options, *group, heartbeat, stop);
}

// The generation after ours that who starts the ranks tells; nullopt: none comes, for nobody died
// or the ranks are not started again in place.
std::optional<int> await_generation(const RankFacts& facts, const yard::StopToken& stop) {
  constexpr std::chrono::milliseconds kLookPeriod(20);
  constexpr std::chrono::seconds kWaitMax(5);  // a death is seen in milliseconds
  if (facts.generation_file.empty()) return std::nullopt;
  const auto end = std::chrono::steady_clock::now() + kWaitMax;
  do {
    const auto text = yard::read_file(facts.generation_file);
    int told = 0;
    if (text) std::from_chars(text->data(), text->data() + text->size(), told);
    if (told > facts.attempt) return told;
  } while (std::chrono::steady_clock::now() < end && !stop.wait_for(kLookPeriod));
  return std::nullopt;
}

bool has_lost_others(const Status& status) {
  return !status && (status.error().code == Code::kUnavailable ||
                     status.error().code == Code::kDeadlineExceeded);
}

// Trains, and again from the last checkpoint when a peer was lost and comes back.
Status train_through_deaths(const Arguments& arguments, RankFacts facts,
                            yard::loop::HeartbeatWriter& heartbeat, const yard::StopToken& stop) {
  while (true) {
    heartbeat.tell("start", {{"rank", facts.rank}, {"attempt", facts.attempt}, {"pid", getpid()}});
    Status status = train(arguments, facts, heartbeat, stop);
    const auto next =
        has_lost_others(status) && !stop.stopped() ? await_generation(facts, stop) : std::nullopt;
    if (!next) return status;
    yard::log_warning("{}; generation {} comes together", status.error().message, *next);
    facts.attempt = *next;
  }
}

Status run(Arguments& arguments, const yard::StopToken& stop) {
  if (!arguments.forward.empty())
    return yard::models::forward_file(arguments.forward[0], arguments.forward[1],
                                      arguments.forward[2]);
  YARD_ASSIGN(const RankFacts facts, read_environment(yard::environment()));
  arguments.place = {facts.rank, facts.world_size, thread_count(facts, 0)};
  if (arguments.action) return arguments.action(stop);
  if (facts.world_size > 1)
    YARD_TRY(yard::configure_log({.source = "rank " + std::to_string(facts.rank)}));
  yard::loop::HeartbeatWriter heartbeat;
  if (facts.heartbeat.empty()) return train_through_deaths(arguments, facts, heartbeat, stop);
  YARD_ASSIGN(auto file, yard::loop::HeartbeatWriter::open(facts.heartbeat, yard::Clock::real()));
  Status status = train_through_deaths(arguments, facts, file, stop);
  if (!status) {
    file.tell("error", {{"code", yard::to_string(status.error().code)},
                        {"message", status.error().message}});
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  const yard::StopSource stop = yard::stop_on_signals();
  Arguments arguments;
  CLI::App app{"trains a model as a recipe says: docs/formats/recipe.md", "yard-train"};
  app.set_version_flag("--version", "yard-train 0.1.0");
  auto* recipe = app.add_option("recipe", arguments.recipe, "recipe file (YAML)");
  app.add_option("overrides", arguments.overrides, "key=value, as stages.0.steps=10");
  app.add_option("--forward", arguments.forward,
                 "MODEL_DIR IN OUT: one forward pass, tensors in safetensors files")
      ->expected(3)
      ->excludes(recipe);
  auto* dry_run = app.add_flag("--dry-run", arguments.dry_run,
                               "measure a few micro-batches and print parameters, memory, work, "
                               "speed and cost; train nothing");
  app.add_option("--price", arguments.price_per_hour, "of a rank and hour, for --dry-run")
      ->needs(dry_run);
  app.add_option("--simulate", arguments.simulate,
                 "predict steps on a cluster from what is measured here: "
                 "hosts=4:8:16,gpus=8,inside=300GB/s,between=50GB/s,speed=30,price=12.5");
  app.add_option("--profile", arguments.profile,
                 "steps=5: trace so many steps into output/profile, for ui.perfetto.dev");
  yard::app::add_sample_command(app, arguments.place, arguments.action);
  yard::app::add_latents_command(app, arguments.place, arguments.action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : yard::exit_code_of(Code::kInvalidArgument);
  }
  if (arguments.recipe.empty() && arguments.forward.empty() && !arguments.action) {
    std::fputs("yard-train: a recipe is needed; try --help\n", stderr);
    return yard::exit_code_of(Code::kInvalidArgument);
  }
  const Status status = run(arguments, stop.token());
  if (status) return 0;
  std::fprintf(stderr, "yard-train: %s\n", status.error().message.c_str());
  return yard::exit_code_of(status.error().code);
}
