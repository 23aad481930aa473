// One function per group of commands of `yard`; each adds its subcommands to the parser.
//
// A command's callback stores what to do in `action`; main() runs it after parsing, so that
// errors are printed and turned into exit codes in one place.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <string>

#include "base/result.h"
#include "base/stop_token.h"

namespace yard::app {

struct Context {
  std::map<std::string, std::string> env;  // the process's environment, read once here
  std::string yard_home;                   // $YARD_HOME, default ~/.trainyard
  std::string bin_dir;                     // where this program and its siblings lie
  StopToken stop;                          // SIGINT, SIGTERM
  bool stdout_is_terminal = false;
  int exit_code = 0;  // of a command that went well and has one of its own, as `yard ssh`'s
  std::function<Status()> action;
};

// One line on the standard error: "yard: ...", or as JSON for who asked for JSON.
void tell_error(const Error& error, bool as_json);

void add_storage_read_commands(CLI::App& app, Context& context);  // yard ls|cat|sha256|rm
void add_storage_copy_commands(CLI::App& app, Context& context);  // yard cp|sync
void add_completion_command(CLI::App& app, Context& context);     // yard completion bash|zsh
void add_complete_url_command(CLI::App& app, Context& context);   // for its scripts
void add_mount_commands(CLI::App& app, Context& context);         // yard mount|unmount
void add_shards_commands(CLI::App& app, Context& context);        // yard shards ...
void add_prep_commands(CLI::App& app, Context& context);          // yard prep ...
void add_sample_command(CLI::App& app, Context& context);         // yard sample
void add_job_commands(CLI::App& app, Context& context);          // yard run|jobs|logs|describe|stop
void add_launch_command(CLI::App& app, Context& context);        // yard launch, in training jobs
void add_s3_commands(CLI::App& app, Context& context);           // yard s3 serve|env|uploads
void add_s3_uploads_command(CLI::App& group, Context& context);  // of `yard s3`
void add_collective_commands(CLI::App& app, Context& context);   // yard topo|check|flight
void add_serve_command(CLI::App& app, Context& context);         // yard serve
void add_env_command(CLI::App& app, Context& context);           // yard env
void add_users_commands(CLI::App& app, Context& context);        // yard users list|add|remove
void add_report_command(CLI::App& app, Context& context);        // yard report
void add_fleet_commands(CLI::App& app, Context& context);        // yard top|cost|chaos
void add_ssh_command(CLI::App& app, Context& context);           // yard ssh
void add_host_command(CLI::App& app, Context& context);          // yard host, for the engine

}  // namespace yard::app
