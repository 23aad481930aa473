#include "pipeline.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/file.h"
#include "base/log.h"
#include "engine/local_engine.h"
#include "pipeline/pipeline_run.h"
#include "pipeline/rank_launcher.h"
#include "platform_access.h"

namespace yard::app {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPipelineBytesMax = uint64_t{1} << 20;

// A line that stays, and below it one that is rewritten; where nobody looks, now and then.
class Screen {
 public:
  explicit Screen(bool is_terminal) : is_terminal_(is_terminal) {}

  void tell(const std::string& line) {
    fmt::print("{}{}\n", has_live_ ? "\r\x1b[K" : "", line);
    std::fflush(stdout);
    has_live_ = false;
  }
  void live(const std::string& line) {
    if (is_terminal_) {
      fmt::print("\r\x1b[K{}", line.substr(0, columns() - 1));
      std::fflush(stdout);
      has_live_ = true;
      return;
    }
    const auto now = std::chrono::steady_clock::now();
    if (now - told_at_ < kLinePeriod) return;
    told_at_ = now;
    tell("  " + line);
  }

 private:
  static constexpr std::chrono::seconds kLinePeriod{10};
  static size_t columns() {
    winsize size = {};
    return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  }

  const bool is_terminal_;
  bool has_live_ = false;
  std::chrono::steady_clock::time_point told_at_{};
};

Result<pipeline::PipelineSpec> read_pipeline(const RunArguments& arguments) {
  YARD_ASSIGN(const std::string yaml, read_file(arguments.source, kPipelineBytesMax));
  const std::string dir = fs::absolute(arguments.source).parent_path();
  std::vector<std::string> overrides = arguments.arguments;
  if (!arguments.name.empty()) overrides.push_back("name=" + arguments.name);
  return pipeline::parse_pipeline(yaml, arguments.source, dir, overrides);
}

// What `yard run` knows and a pipeline has no use for.
Status check_arguments(const RunArguments& arguments) {
  const bool is_other = arguments.ranks || arguments.retries || arguments.stop_grace_s ||
                        arguments.price_per_host_hour || !arguments.output.empty() ||
                        !arguments.python.empty() || !arguments.env.empty();
  if (is_other)
    return Error{Code::kInvalidArgument,
                 arguments.source +
                     ": a pipeline says ranks, retries, prices and the environment "
                     "itself; key=value changes them"};
  if (arguments.kill_step.empty() != !arguments.after_step)
    return Error{Code::kInvalidArgument, "--kill-step and --after-step need each other"};
  return Ok{};
}

Status follow_pipeline(const pipeline::PipelineSpec& spec, pipeline::PipelineRunOptions& options,
                       const Context& context, bool is_terminal) {
  YARD_ASSIGN(const PlatformAccess access, find_platform_access(context));
  const aws::AwsClient platform(access.api);
  // A run that is stopped still fetches what there is.
  storage::Opener store = store_of(access, {});
  Screen screen(is_terminal);
  const pipeline::PipelineScreen shown{[&](const std::string& line) { screen.tell(line); },
                                       [&](const std::string& line) { screen.live(line); }};
  YARD_TRY(pipeline::run_pipeline(spec, options, platform, store, shown));
  screen.tell(fmt::format("pipeline {}: all {} steps are completed; {}", spec.name,
                          spec.steps.size(), options.dir));
  return Ok{};
}

Status detach_and_follow(const pipeline::PipelineSpec& spec, pipeline::PipelineRunOptions& options,
                         const Context& context) {
  const std::string log = options.dir + "/pipeline.log";
  YARD_TRY(make_directories(options.dir));
  // What it cannot do without is told here, where somebody still reads.
  YARD_TRY(find_platform_access(context));
  fmt::print("pipeline {}: goes on by itself; what it says: {}\n", spec.name, log);
  std::fflush(stdout);
  YARD_TRY(engine::become_daemon(log));
  if (::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return errno_error(log, errno);
  const Status done = follow_pipeline(spec, options, context, false);
  if (!done) log_error("pipeline {}: {}", spec.name, done.error().message);
  return done;
}

}  // namespace

bool names_pipeline(const RunArguments& arguments) {
  const std::string extension = fs::path(arguments.source).extension();
  if (extension != ".yaml" && extension != ".yml") return false;
  const auto yaml = read_file(arguments.source, kPipelineBytesMax);
  return yaml && pipeline::is_pipeline(*yaml);
}

Status run_pipeline_file(const RunArguments& arguments, const Context& context) {
  YARD_TRY(check_arguments(arguments));
  YARD_ASSIGN(const pipeline::PipelineSpec spec, read_pipeline(arguments));
  pipeline::PipelineRunOptions options;
  options.dir = fs::absolute(context.yard_home).lexically_normal() / "pipelines" / spec.name;
  options.file = arguments.source;
  options.stop = context.stop;
  if (!arguments.kill_step.empty()) {
    if (spec.find(arguments.kill_step) == nullptr)
      return Error{Code::kInvalidArgument, "--kill-step: no step '" + arguments.kill_step + "'"};
    options.kill_step = arguments.kill_step;
    options.kill = pipeline::RankKill{static_cast<int>(arguments.kill_rank.value_or(0)),
                                      *arguments.after_step};
  }
  return arguments.detach ? detach_and_follow(spec, options, context)
                          : follow_pipeline(spec, options, context, context.stdout_is_terminal);
}

void add_launch_command(CLI::App& app, Context& context) {
  struct Arguments {
    pipeline::LaunchOptions launch;
    pipeline::RankKill kill;
    int64_t stop_at_stage = 0;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "launch", "inside a training job: start this host's ranks, as torchrun does for scripts");
  command->add_option("--ranks", arguments->launch.ranks_per_host, "of each host")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  auto* stop_at = command->add_option("--stop-at-stage", arguments->stop_at_stage,
                                      "save and end when the recipe's stage of this number begins");
  command
      ->add_option("--restarts", arguments->launch.restarts,
                   "of ranks that die, in place: the others stay (jobs of one host)")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  auto* rank = command->add_option("--kill-rank", arguments->kill.rank, "")->group("");
  auto* step = command->add_option("--after-step", arguments->kill.after_step, "")->group("");
  rank->needs(step);
  step->needs(rank);
  command->add_option("command", arguments->launch.command, "program and arguments, behind --")
      ->required();
  command->footer("Example:\n  yard launch --ranks 8 -- yard-train recipe.yaml");
  command->callback([arguments, stop_at, rank, &context] {
    if (*stop_at) arguments->launch.stop_at_stage = arguments->stop_at_stage;
    if (*rank) arguments->launch.kill = arguments->kill;
    context.action = [arguments, &context] {
      arguments->launch.env = context.env;
      arguments->launch.stop = context.stop;
      return pipeline::launch_ranks(arguments->launch);
    };
  });
}

}  // namespace yard::app
