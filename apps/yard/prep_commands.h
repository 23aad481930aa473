// The groups of `yard prep`, each in a file of its own.
#pragma once

#include <CLI/CLI.hpp>

#include "commands.h"

namespace yard::app {

// run, scan, redrive, remove, status, describe
void add_prep_pipeline_commands(CLI::App& prep, Context& context);
// latents
void add_prep_latents_command(CLI::App& prep, Context& context);

}  // namespace yard::app
