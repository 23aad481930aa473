// yard checkpoint: looking into sharded checkpoints, verifying, converting and removing them.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>

#include "base/units.h"
#include "checkpoint/checkpoint_store.h"
#include "checkpoint/convert.h"
#include "checkpoint_commands.h"
#include "store_options.h"

namespace yard::app {
namespace {

using checkpoint::CheckpointManifest;
using checkpoint::CheckpointStore;

struct CheckpointCommand {
  StoreOptions store;
  std::string url;
  std::string other;  // the folder exported to, what is imported
  std::optional<int64_t> step;
  bool all = false;
  bool dry_run = false;
  std::string name_prefix;
  std::string stem = "model";
  std::string file_size_max = "5GB";
  int64_t keep = 0;
  int64_t every = 0;
  std::string age = "1h";
};

// The store lives as long as the place.
struct OpenCheckpoints {
  Place place;
  CheckpointStore checkpoints;
};

Result<OpenCheckpoints> open_checkpoints(const CheckpointCommand& command,
                                         storage::Opener& opener) {
  YARD_ASSIGN(Place place, open_place(opener, command.url));
  CheckpointStore checkpoints(*place.store, place.key);
  return OpenCheckpoints{std::move(place), std::move(checkpoints)};
}

Result<CheckpointManifest> read_one(const CheckpointStore& checkpoints,
                                    const CheckpointCommand& command) {
  if (command.step) return checkpoints.read(*command.step);
  YARD_ASSIGN(auto latest, checkpoints.latest());
  if (latest) return *std::move(latest);
  return Error{Code::kNotFound, command.url + ": has no whole checkpoint"};
}

// ---- ls

Json summary(const CheckpointManifest& manifest) {
  return {{"step", manifest.step},
          {"whole", true},
          {"created_unix_ms", manifest.created_unix_ms},
          {"size_bytes", manifest.size_bytes()},
          {"tensor_count", manifest.tensors.size()},
          {"file_count", manifest.files.size()},
          {"world_size", manifest.world_size},
          {"metadata", manifest.metadata}};
}

std::string time_of(const CheckpointManifest& manifest) {
  return time_text(
      std::chrono::system_clock::time_point(std::chrono::milliseconds(manifest.created_unix_ms)));
}

void print_tensors(const CheckpointManifest& manifest, bool json) {
  for (const auto& [name, tensor] : manifest.tensors) {
    if (json) {
      Json line = checkpoint::to_json(tensor.info);
      line["name"] = name;
      line["chunk_count"] = tensor.chunks.size();
      print_json_line(line);
      continue;
    }
    fmt::print("{}\t{}\t{} chunk{}\n", name, checkpoint::to_string(tensor.info),
               tensor.chunks.size(), tensor.chunks.size() == 1 ? "" : "s");
  }
}

Status run_ls(const CheckpointCommand& command, const Context& context) {
  storage::Opener opener(s3_options(command.store, context, 0));
  YARD_ASSIGN(const OpenCheckpoints open, open_checkpoints(command, opener));
  if (command.step) {
    YARD_ASSIGN(const CheckpointManifest manifest, open.checkpoints.read(*command.step));
    print_tensors(manifest, command.store.json);
    return Ok{};
  }
  YARD_ASSIGN(const auto all, open.checkpoints.list());
  for (const checkpoint::CheckpointInfo& info : all) {
    const auto manifest = open.checkpoints.read(info.step);
    if (manifest && command.store.json) {
      print_json_line(summary(*manifest));
    } else if (manifest) {
      fmt::print("{} step {:<10} {:>10} {} tensors in {} files, saved by {} ranks\n",
                 time_of(*manifest), info.step, format_size_bytes(manifest->size_bytes()),
                 manifest->tensors.size(), manifest->files.size(), manifest->world_size);
    } else {
      const std::string why = info.is_whole ? manifest.error().message : "not finished";
      if (command.store.json)
        print_json_line({{"step", info.step}, {"whole", false}, {"why", why}});
      else
        fmt::print("{:20} step {:<10} {}\n", "", info.step, why);
    }
  }
  return Ok{};
}

// ---- verify

Status verify_one(const CheckpointStore& checkpoints, int64_t step,
                  const CheckpointCommand& command, const Context& context) {
  YARD_ASSIGN(const CheckpointManifest manifest, checkpoints.read(step));
  YARD_TRY(checkpoints.verify(manifest, context.stop));
  if (command.store.json)
    print_json_line(summary(manifest));
  else
    fmt::print("step {}: whole, {} in {} files\n", step, format_size_bytes(manifest.size_bytes()),
               manifest.files.size());
  return Ok{};
}

// All are looked at; the first error is the outcome, the others are told.
Status run_verify(const CheckpointCommand& command, const Context& context) {
  storage::Opener opener(s3_options(command.store, context, 0));
  YARD_ASSIGN(const OpenCheckpoints open, open_checkpoints(command, opener));
  std::vector<int64_t> steps;
  if (command.all) {
    YARD_ASSIGN(steps, open.checkpoints.steps());
  } else {
    YARD_ASSIGN(const CheckpointManifest manifest, read_one(open.checkpoints, command));
    steps = {manifest.step};
  }
  std::optional<Error> first;
  for (const int64_t step : steps) {
    Status verified = verify_one(open.checkpoints, step, command, context);
    if (verified) continue;
    if (first) fmt::print(stderr, "yard: {}\n", verified.error().message);
    if (!first) first = std::move(verified).error();
  }
  if (first) return *std::move(first);
  return Ok{};
}

// ---- export, import

Status run_export(const CheckpointCommand& command, const Context& context) {
  YARD_ASSIGN(const uint64_t file_bytes_max, parse_size_bytes(command.file_size_max));
  YARD_ASSIGN(const uint64_t memory_bytes, memory_bytes_of(command.store));
  storage::Opener opener(s3_options(command.store, context, memory_bytes));
  YARD_ASSIGN(const OpenCheckpoints open, open_checkpoints(command, opener));
  YARD_ASSIGN(const CheckpointManifest manifest, read_one(open.checkpoints, command));
  YARD_ASSIGN(const Place target, open_place(opener, command.other));
  YARD_ASSIGN(const auto keys,
              checkpoint::export_safetensors(open.checkpoints, manifest, *target.store, target.key,
                                             {.stem = command.stem,
                                              .file_bytes_max = file_bytes_max,
                                              .name_prefix = command.name_prefix,
                                              .stop = context.stop}));
  for (const std::string& key : keys) {
    if (command.store.json)
      print_json_line({{"url", target.url_of(key)}});
    else
      fmt::print("{}\n", target.url_of(key));
  }
  return Ok{};
}

Status run_import(const CheckpointCommand& command, const Context& context) {
  YARD_ASSIGN(const uint64_t memory_bytes, memory_bytes_of(command.store));
  storage::Opener opener(s3_options(command.store, context, memory_bytes));
  YARD_ASSIGN(const Place source, open_place(opener, command.other));
  YARD_ASSIGN(const OpenCheckpoints open, open_checkpoints(command, opener));
  YARD_ASSIGN(const CheckpointManifest manifest,
              checkpoint::import_safetensors(*source.store, source.key, open.checkpoints,
                                             {.step = command.step.value_or(0),
                                              .metadata = {{"imported_from", command.other}},
                                              .stop = context.stop}));
  if (command.store.json)
    print_json_line(summary(manifest));
  else
    fmt::print("step {}: {} tensors, {}\n", manifest.step, manifest.tensors.size(),
               format_size_bytes(manifest.size_bytes()));
  return Ok{};
}

// ---- prune, rm

void tell_removed(const CheckpointCommand& command, int64_t step) {
  if (command.store.json)
    print_json_line({{"step", step}, {"removed", !command.dry_run}});
  else
    fmt::print("{} step {}\n", command.dry_run ? "would remove" : "removed", step);
}

Status run_prune(const CheckpointCommand& command, const Context& context) {
  if (command.keep <= 0)
    return Error{Code::kInvalidArgument, "--keep: at least one checkpoint is kept"};
  YARD_ASSIGN(const auto age, parse_duration(command.age));
  storage::Opener opener(s3_options(command.store, context, 0));
  YARD_ASSIGN(const OpenCheckpoints open, open_checkpoints(command, opener));
  YARD_ASSIGN(const auto steps, open.checkpoints.steps());
  const auto removed = checkpoint::steps_to_remove(
      steps, {.keep_last = command.keep, .keep_every_steps = command.every});
  for (const int64_t step : removed) {
    if (context.stop.stopped()) return Error{Code::kCancelled, "stopped"};
    if (!command.dry_run) YARD_TRY(open.checkpoints.remove(step));
    tell_removed(command, step);
  }
  if (command.dry_run) return Ok{};
  YARD_ASSIGN(const uint64_t swept,
              open.checkpoints.sweep(std::chrono::duration_cast<std::chrono::seconds>(age)));
  if (swept > 0 && !command.store.json)
    fmt::print("removed {} files of saves that were never finished\n", swept);
  return Ok{};
}

Status run_rm(const CheckpointCommand& command, const Context& context) {
  storage::Opener opener(s3_options(command.store, context, 0));
  YARD_ASSIGN(const OpenCheckpoints open, open_checkpoints(command, opener));
  YARD_ASSIGN(const auto all, open.checkpoints.list());
  const bool is_there =
      std::ranges::find(all, *command.step, &checkpoint::CheckpointInfo::step) != all.end();
  if (!is_there)
    return Error{Code::kNotFound, fmt::format("{}: has no step {}", command.url, *command.step)};
  if (!command.dry_run) YARD_TRY(open.checkpoints.remove(*command.step));
  tell_removed(command, *command.step);
  return Ok{};
}

using Run = Status (*)(const CheckpointCommand&, const Context&);

// The command with what all of them have; its own options are added by the caller.
struct AddedCommand {
  CLI::App* app;
  std::shared_ptr<CheckpointCommand> options;
};
AddedCommand add_command(CLI::App& group, Context& context, const std::string& name,
                         const std::string& help, Run run) {
  auto options = std::make_shared<CheckpointCommand>();
  CLI::App* app = group.add_subcommand(name, help);
  app->callback([options, run, &context] {
    context.action = [options, run, &context] { return run(*options, context); };
  });
  return {app, options};
}

void add_url(const AddedCommand& command) {
  command.app->add_option("URL", command.options->url, "the folder that holds step-...")
      ->required();
}

void add_step(const AddedCommand& command, const std::string& help) {
  command.app->add_option("--step", command.options->step, help)->check(CLI::NonNegativeNumber);
}

void add_looking_commands(CLI::App& group, Context& context) {
  const AddedCommand ls =
      add_command(group, context, "ls", "list checkpoints, or the tensors of one", run_ls);
  add_url(ls);
  add_step(ls, "list the tensors of this one");
  add_store_options(*ls.app, ls.options->store, false, "  yard checkpoint ls s3://data/run\n");

  const AddedCommand verify = add_command(
      group, context, "verify", "read every byte and compare it with its checksum", run_verify);
  add_url(verify);
  add_step(verify, "which one; the newest otherwise");
  verify.app->add_flag("--all", verify.options->all, "all of them");
  add_store_options(*verify.app, verify.options->store, false,
                    "  yard checkpoint verify runs/cats --all\n");
}

void add_converting_commands(CLI::App& group, Context& context) {
  const AddedCommand save =
      add_command(group, context, "export", "write plain safetensors", run_export);
  add_url(save);
  save.app->add_option("FOLDER", save.options->other, "where to")->required();
  add_step(save, "which one; the newest otherwise");
  save.app->add_option("--prefix", save.options->name_prefix,
                       "only tensors whose names start so; it is cut off");
  save.app->add_option("--stem", save.options->stem, "STEM.safetensors")->capture_default_str();
  save.app
      ->add_option("--file-size-max", save.options->file_size_max,
                   "more is cut into several files with an index")
      ->capture_default_str();
  add_store_options(*save.app, save.options->store, true,
                    "  yard checkpoint export s3://data/run out --prefix model.\n");

  const AddedCommand load = add_command(
      group, context, "import", "make a checkpoint of plain safetensors, as one rank", run_import);
  load.app
      ->add_option("SOURCE", load.options->other,
                   "FILE.safetensors, an .index.json, or a folder with them")
      ->required();
  add_url(load);
  add_step(load, "its step; 0 otherwise");
  add_store_options(*load.app, load.options->store, true,
                    "  yard checkpoint import model.safetensors s3://data/run --step 0\n");
}

void add_removing_commands(CLI::App& group, Context& context) {
  const AddedCommand prune = add_command(
      group, context, "prune", "remove old checkpoints and what unfinished saves left", run_prune);
  add_url(prune);
  prune.app->add_option("--keep", prune.options->keep, "the newest so many stay")->required();
  prune.app->add_option("--every", prune.options->every, "multiples of this step stay too");
  prune.app
      ->add_option("--age", prune.options->age,
                   "left-overs of which something is younger than that stay")
      ->capture_default_str();
  prune.app->add_flag("--dry-run", prune.options->dry_run, "only tell");
  add_store_options(*prune.app, prune.options->store, false,
                    "  yard checkpoint prune s3://data/run --keep 3 --every 10000\n");

  const AddedCommand rm = add_command(group, context, "rm", "remove one checkpoint", run_rm);
  add_url(rm);
  rm.app->add_option("--step", rm.options->step, "which one")
      ->required()
      ->check(CLI::NonNegativeNumber);
  rm.app->add_flag("--dry-run", rm.options->dry_run, "only tell");
  add_store_options(*rm.app, rm.options->store, false,
                    "  yard checkpoint rm s3://data/run --step 1200\n");
}

}  // namespace

void add_checkpoint_commands(CLI::App& app, Context& context) {
  CLI::App* group =
      app.add_subcommand("checkpoint", "list, verify, convert and remove sharded checkpoints");
  group->require_subcommand(1);
  add_looking_commands(*group, context);
  add_converting_commands(*group, context);
  add_removing_commands(*group, context);
}

}  // namespace yard::app
