#include "remote_shell.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "host/remote_shell.h"

namespace yard::app {
namespace {

Status serve(Context& context) {
  YARD_ASSIGN(const std::string key, host::remote_shell_key(context.env));
  YARD_ASSIGN(auto server, host::RemoteShellServer::listen("", host::kRemoteShellPort));
  YARD_ASSIGN(context.exit_code, server.serve(key, context.env, context.stop));
  return Ok{};
}

// As ssh: the words behind the host are one line for its shell.
Status run(const std::vector<std::string>& words, Context& context) {
  if (words.size() < 2)
    return Error{Code::kInvalidArgument, "a host and a command are wanted: algo-2 hostname"};
  host::RemoteCommand remote;
  remote.host = words[0];
  remote.command = fmt::format("{}", fmt::join(words.begin() + 1, words.end(), " "));
  YARD_ASSIGN(remote.key, host::remote_shell_key(context.env));
  YARD_ASSIGN(context.exit_code, host::run_remotely(remote, context.stop));
  return Ok{};
}

}  // namespace

void add_remote_shell_command(CLI::App& app, Context& context) {
  auto* sub = app.add_subcommand("remote-shell", "")->group("");
  auto serves = std::make_shared<bool>(false);
  sub->add_flag("--serve", *serves, "wait for one command, run it, end with its code");
  sub->prefix_command();
  sub->callback([sub, serves, &context] {
    context.action = [words = sub->remaining(), serves, &context] {
      return *serves ? serve(context) : run(words, context);
    };
  });
}

}  // namespace yard::app
