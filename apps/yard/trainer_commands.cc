// yard sample and yard prep latents: `yard-train` does both, for it has the models.
#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <vector>

#include "base/exit_code.h"
#include "base/subprocess.h"
#include "commands.h"
#include "prep_commands.h"

namespace yard::app {
namespace {

constexpr int kRanksMax = 1024;
constexpr auto kStopPollInterval = std::chrono::milliseconds(100);

using Environment = std::map<std::string, std::string>;

// One child for each environment; all end when one of them fails or we are asked to stop.
class TrainerProcesses {
 public:
  Status start(const std::vector<std::string>& argv, const Environment& env) {
    YARD_ASSIGN(Subprocess child, Subprocess::spawn({.argv = argv, .env = env, .stdin_fd = 0}));
    children_.push_back(std::move(child));
    return Ok{};
  }

  Status wait(const StopToken& stop) {
    bool told = false;
    Status outcome = Ok{};
    for (size_t i = 0; i < children_.size();) {
      if ((stop.stopped() || !outcome) && !told) {
        for (const Subprocess& child : children_) (void)child.kill(SIGTERM);
        told = true;
      }
      const auto ended = children_[i].wait(kStopPollInterval);
      if (!ended && ended.error().code == Code::kDeadlineExceeded) continue;
      if (!ended) return ended.error();
      // What went wrong has been told by the child.
      if (!ended->ok() && outcome)
        outcome = Error{code_of_exit(ended->code),
                        fmt::format("yard-train ended with code {}", ended->code)};
      ++i;
    }
    return outcome;
  }

 private:
  static Code code_of_exit(int exit_code) {
    for (const Code code :
         {Code::kInvalidArgument, Code::kNotFound, Code::kUnavailable, Code::kDeadlineExceeded,
          Code::kExhausted, Code::kCorrupt, Code::kCancelled})
      if (exit_code_of(code) == exit_code) return code;
    return Code::kInternal;
  }

  std::vector<Subprocess> children_;
};

Status run_trainer(const Context& context, const std::string& subcommand,
                   const std::vector<std::string>& arguments, int rank_count) {
  std::vector<std::string> argv = {context.bin_dir + "/yard-train", subcommand};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  TrainerProcesses processes;
  for (int rank = 0; rank < rank_count; ++rank) {
    Environment env = context.env;
    if (rank_count > 1) {
      env["RANK"] = std::to_string(rank);
      env["WORLD_SIZE"] = env["LOCAL_WORLD_SIZE"] = std::to_string(rank_count);
    }
    YARD_TRY(processes.start(argv, env));
  }
  return processes.wait(context.stop);
}

// The subcommand's own arguments are yard-train's to read, --help too.
CLI::App* add_passed_on(CLI::App& parent, Context& context, const std::string& name,
                        const std::string& subcommand, const std::string& what,
                        const std::shared_ptr<int>& rank_count) {
  CLI::App* sub = parent.add_subcommand(name, what);
  sub->set_help_flag();
  sub->allow_extras();
  sub->callback([sub, subcommand, rank_count, &context] {
    context.action = [arguments = sub->remaining(), subcommand, rank_count, &context] {
      return run_trainer(context, subcommand, arguments, *rank_count);
    };
  });
  return sub;
}

}  // namespace

void add_sample_command(CLI::App& app, Context& context) {
  add_passed_on(app, context, "sample", "sample",
                "pictures of a saved model for prompts, as one PNG; --help tells more",
                std::make_shared<int>(1));
}

void add_prep_latents_command(CLI::App& prep, Context& context) {
  const auto rank_count = std::make_shared<int>(1);
  CLI::App* sub = add_passed_on(
      prep, context, "latents", "latents",
      "encode a data set's pictures once, for training; --help tells more", rank_count);
  sub->add_option("--ranks", *rank_count, "processes that share the shards")
      ->check(CLI::Range(1, kRanksMax));
}

}  // namespace yard::app
