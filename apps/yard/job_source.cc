#include "job_source.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/clock.h"
#include "base/file.h"
#include "base/ids.h"
#include "engine/run_section.h"
#include "host/job_folder.h"

namespace yard::app {
namespace {

namespace fs = std::filesystem;

Error invalid(std::string message) {
  return {Code::kInvalidArgument, std::move(message)};
}

// A job outlives the folder we stand in.
std::string absolute(const std::string& path) {
  return fs::absolute(path).lexically_normal();
}

Result<int> to_int(std::string_view what, int64_t value) {
  if (value >= 0 && value <= 1'000'000) return static_cast<int>(value);
  return invalid(fmt::format("{} is {}, which cannot be", what, value));
}

std::string choose_python(const RunArguments& arguments, const Context& context) {
  if (!arguments.python.empty()) return arguments.python;
  const auto found = context.env.find("VIRTUAL_ENV");
  if (found != context.env.end() && !found->second.empty()) return found->second + "/bin/python";
  return "python3";
}

Status take_run_section(const engine::RunSection& run, const RunArguments& arguments,
                        jobs::JobSpec& spec) {
  YARD_ASSIGN(spec.ranks, to_int("ranks", arguments.ranks.value_or(run.ranks.value_or(1))));
  const auto retries = arguments.retries ? arguments.retries : run.retries;
  if (retries) {
    YARD_ASSIGN(spec.retries.rank_fault, to_int("retries", *retries));
    spec.retries.unavailable = spec.retries.rank_fault;
  }
  spec.stop_grace_s = arguments.stop_grace_s.value_or(run.stop_grace_s.value_or(spec.stop_grace_s));
  spec.price_per_host_hour = arguments.price_per_host_hour.value_or(
      run.price_per_host_hour.value_or(spec.price_per_host_hour));
  return Ok{};
}

Status take_env(const std::vector<std::string>& items, jobs::JobSpec& spec) {
  for (const auto& item : items) {
    const auto equals = item.find('=');
    if (equals == std::string::npos || equals == 0)
      return invalid(fmt::format("--env '{}': must be NAME=VALUE", item));
    spec.env[item.substr(0, equals)] = item.substr(equals + 1);
  }
  return Ok{};
}

Status take_chaos(const RunArguments& arguments, jobs::JobSpec& spec) {
  if (!arguments.after_step) {
    if (arguments.kill_rank) return invalid("--kill-rank needs --after-step");
    return Ok{};
  }
  YARD_ASSIGN(const int rank, to_int("--kill-rank", arguments.kill_rank.value_or(spec.ranks - 1)));
  spec.chaos = jobs::Chaos{.kill_rank = rank, .after_step = *arguments.after_step};
  return Ok{};
}

Status take_recipe(const RunArguments& arguments, const Context& context, const std::string& dir,
                   JobSource& source) {
  YARD_ASSIGN(source.recipe, read_file(arguments.source, uint64_t{16} << 20));
  YARD_ASSIGN(const auto run, engine::parse_run_section(*source.recipe, arguments.source));
  YARD_TRY(take_run_section(run, arguments, source.spec));
  source.spec.command = {context.bin_dir + "/yard-train", host::JobFolder{dir}.recipe()};
  for (const auto& item : arguments.arguments) {
    if (item.find('=') == std::string::npos)
      return invalid(fmt::format("'{}': a recipe's keys are set with key=value", item));
    source.spec.command.push_back(item);
  }
  if (!arguments.output.empty()) source.spec.command.push_back("output=" + source.spec.output_dir);
  return Ok{};
}

Status take_script(const RunArguments& arguments, const Context& context, JobSource& source) {
  std::error_code unreadable;
  if (!fs::exists(arguments.source, unreadable))
    return Error{Code::kNotFound, arguments.source + ": no such file"};
  YARD_TRY(take_run_section({}, arguments, source.spec));
  source.spec.command = {choose_python(arguments, context), absolute(arguments.source)};
  source.spec.command.insert(source.spec.command.end(), arguments.arguments.begin(),
                             arguments.arguments.end());
  return Ok{};
}

}  // namespace

Result<JobSource> read_job_source(const RunArguments& arguments, const Context& context) {
  JobSource source;
  const fs::path path(arguments.source);
  source.spec.name = arguments.name.empty() ? make_job_name(path.stem(), Clock::real().wall_now())
                                            : arguments.name;
  const std::string dir = absolute(context.yard_home) + "/jobs/" + source.spec.name;
  source.spec.working_dir = fs::current_path();
  source.spec.output_dir =
      arguments.output.empty() ? host::JobFolder{dir}.output() : absolute(arguments.output);
  const std::string extension = path.extension();
  if (extension == ".yaml" || extension == ".yml") {
    YARD_TRY(take_recipe(arguments, context, dir, source));
  } else if (extension == ".py") {
    YARD_TRY(take_script(arguments, context, source));
  } else {
    return invalid(fmt::format("{}: neither FILE.py nor RECIPE.yaml", arguments.source));
  }
  YARD_TRY(take_env(arguments.env, source.spec));
  YARD_TRY(take_chaos(arguments, source.spec));
  YARD_TRY(jobs::check_spec(source.spec));
  return source;
}

}  // namespace yard::app
