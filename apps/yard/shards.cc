// yard shards: making, reading, verifying and changing WebDataset shards.
#include "commands.h"
#include "shards_common.h"

namespace yard::app {

void add_shards_commands(CLI::App& app, Context& context) {
  CLI::App* group = app.add_subcommand("shards", "make, list, verify, repack and split tar shards");
  group->require_subcommand(1);
  group->footer(
      "Examples:\n"
      "  yard shards pack photos s3://data/train --size 2GiB\n"
      "  yard shards check s3://data/train\n"
      "  yard shards repack old.tar.gz fixed --quarantine bad.jsonl\n"
      "  yard shards split s3://data/all s3://data/split --weights train=0.99,val=0.01\n"
      "Every command says more of itself: yard shards pack --help\n");
  add_shards_pack_command(*group, context);
  add_shards_read_commands(*group, context);
  add_shards_repack_commands(*group, context);
}

}  // namespace yard::app
