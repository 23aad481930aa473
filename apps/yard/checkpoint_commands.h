// yard checkpoint: sharded checkpoints.
#pragma once

#include "commands.h"

namespace yard::app {

void add_checkpoint_commands(CLI::App& app, Context& context);  // yard checkpoint ...

}  // namespace yard::app
