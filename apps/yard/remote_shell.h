// yard remote-shell: in training jobs, what MPI's launcher uses in place of ssh.
#pragma once

#include <CLI/CLI.hpp>

#include "commands.h"

namespace yard::app {

void add_remote_shell_command(CLI::App& app, Context& context);

}  // namespace yard::app
