// yard: the command of trainyard. No libtorch here: it starts in milliseconds.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <span>
#include <vector>

#include "base/exit_code.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "base/subprocess.h"
#include "checkpoint_commands.h"
#include "commands.h"

namespace {

std::string default_home(const std::map<std::string, std::string>& env) {
  if (auto it = env.find("YARD_HOME"); it != env.end() && !it->second.empty()) return it->second;
  const auto home = env.find("HOME");
  return (home == env.end() ? std::string("/tmp") : home->second) + "/.trainyard";
}

// CLI11 only says that some subcommand is required.
yard::Status check_command(const CLI::App& app, std::string_view name) {
  if (name.starts_with('-')) return yard::Ok{};
  std::vector<std::string> known;
  for (const CLI::App* command : app.get_subcommands({})) known.push_back(command->get_name());
  if (std::ranges::find(known, name) != known.end()) return yard::Ok{};
  return yard::Error{yard::Code::kInvalidArgument,
                     fmt::format("unknown command '{}'{}", name,
                                 yard::suggestion(name, {known.begin(), known.end()}))};
}

// Also for a command line that cannot be parsed. What stands behind "--" is another program's.
bool wants_json(std::span<char* const> arguments) {
  for (const std::string_view argument : arguments) {
    if (argument == "--") return false;
    if (argument == "--json") return true;
  }
  return false;
}

int fail(const yard::Error& error, bool as_json) {
  yard::app::tell_error(error, as_json);
  return yard::exit_code_of(error.code);
}

int run(int argc, char** argv) {
  const bool as_json = wants_json({argv, size_t(argc)});
  yard::app::Context context;
  context.env = yard::environment();
  context.yard_home = default_home(context.env);
  context.bin_dir = std::filesystem::canonical("/proc/self/exe").parent_path();
  context.stop = yard::stop_on_signals().token();
  context.stdout_is_terminal = isatty(STDOUT_FILENO) != 0;

  if (as_json) YARD_CHECK(yard::configure_log({.format = yard::LogFormat::kJsonLines}));

  CLI::App app{"trainyard: train foundation models on machines you own", "yard"};
  app.require_subcommand(1);
  app.set_version_flag("--version", "yard 0.1.0");
  yard::app::add_storage_read_commands(app, context);
  yard::app::add_storage_copy_commands(app, context);
  yard::app::add_mount_commands(app, context);
  yard::app::add_shards_commands(app, context);
  yard::app::add_prep_commands(app, context);
  yard::app::add_serve_command(app, context);
  yard::app::add_env_command(app, context);
  yard::app::add_users_commands(app, context);
  yard::app::add_sample_command(app, context);
  yard::app::add_job_commands(app, context);
  yard::app::add_fleet_commands(app, context);
  yard::app::add_ssh_command(app, context);
  yard::app::add_launch_command(app, context);
  yard::app::add_s3_commands(app, context);
  yard::app::add_collective_commands(app, context);
  yard::app::add_checkpoint_commands(app, context);
  yard::app::add_report_command(app, context);
  yard::app::add_host_command(app, context);
  yard::app::add_completion_command(app, context);
  yard::app::add_complete_url_command(app, context);
  if (argc > 1)
    if (const yard::Status known = check_command(app, argv[1]); !known)
      return fail(known.error(), as_json);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help and its kin
    return fail({yard::Code::kInvalidArgument,
                 fmt::format("{}{}", error.what(), as_json ? "" : "; --help tells more")},
                as_json);
  }
  if (!context.action) return 0;
  const yard::Status status = context.action();
  return status ? context.exit_code : fail(status.error(), as_json);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv);
}
