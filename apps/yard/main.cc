// yard: the command of trainyard. No libtorch here: it starts in milliseconds.
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "base/exit_code.h"
#include "base/log.h"
#include "base/subprocess.h"
#include "commands.h"

namespace {

std::string default_home(const std::map<std::string, std::string>& env) {
  if (auto it = env.find("YARD_HOME"); it != env.end() && !it->second.empty()) return it->second;
  const auto home = env.find("HOME");
  return (home == env.end() ? std::string("/tmp") : home->second) + "/.trainyard";
}

int run(int argc, char** argv) {
  yard::app::Context context;
  context.env = yard::environment();
  context.yard_home = default_home(context.env);
  context.bin_dir = std::filesystem::canonical("/proc/self/exe").parent_path();
  context.stop = yard::stop_on_signals().token();
  context.stdout_is_terminal = isatty(STDOUT_FILENO) != 0;

  CLI::App app{"trainyard: train foundation models on machines you own", "yard"};
  app.require_subcommand(1);
  app.set_version_flag("--version", "yard 0.1.0");
  yard::app::add_storage_read_commands(app, context);
  yard::app::add_storage_copy_commands(app, context);
  yard::app::add_shards_commands(app, context);
  yard::app::add_prep_commands(app, context);
  yard::app::add_job_commands(app, context);
  yard::app::add_s3_commands(app, context);
  yard::app::add_report_command(app, context);
  yard::app::add_completion_command(app, context);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : yard::exit_code_of(yard::Code::kInvalidArgument);
  }
  if (!context.action) return 0;
  if (yard::Status status = context.action(); !status) {
    std::fprintf(stderr, "yard: %s\n", status.error().message.c_str());
    return yard::exit_code_of(status.error().code);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv);
}
