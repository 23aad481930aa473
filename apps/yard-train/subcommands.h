// What `yard-train` does besides training: `yard sample` and `yard prep latents` are these.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <string>

#include "base/result.h"
#include "base/stop_token.h"

namespace yard::app {

// Set by the subcommand that was given; main() runs it.
using Action = std::function<Status(const StopToken& stop)>;

struct RankPlaceFacts {
  int rank = 0;
  int world_size = 1;
  int thread_count = 1;
};

void add_sample_command(CLI::App& app, const RankPlaceFacts& facts, Action& action);
void add_latents_command(CLI::App& app, const RankPlaceFacts& facts, Action& action);

}  // namespace yard::app
