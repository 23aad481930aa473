// yard shards repack, split: shards into other shards.
#include <fmt/format.h>

#include <charconv>

#include "base/clock.h"
#include "base/units.h"
#include "shards/rewrite.h"
#include "shards_common.h"

namespace yard::app {
namespace {

struct RewriteCommand {
  StoreOptions store;
  BadOptions bad;
  std::vector<std::string> sources;
  std::string target;
  std::string size = "1GiB";
  bool shuffle = false;
  uint64_t seed = 0;
  std::vector<std::string> weights;
  std::vector<std::string> counts;
  shards::RewriteOptions options;
};

Json to_json(const shards::RewriteReport& report, uint64_t bad_count) {
  Json parts = Json::array();
  for (const auto& part : report.parts) {
    Json list = Json::array();
    for (const auto& shard : part.shards)
      list.push_back({{"key", shard.key},
                      {"size_bytes", shard.size_bytes},
                      {"sample_count", shard.sample_count}});
    parts.push_back({{"name", part.name}, {"sample_count", part.sample_count}, {"shards", list}});
  }
  return {{"parts", parts}, {"resumed_count", report.resumed_count}, {"bad_count", bad_count}};
}

Result<std::pair<std::string, std::string>> name_and_value(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == text.npos || equals == 0)
    return Error{Code::kInvalidArgument, fmt::format("'{}': a part is NAME=NUMBER", text)};
  return std::pair(text.substr(0, equals), text.substr(equals + 1));
}

template <typename T>
Result<T> number_of(const std::string& text, const std::string& value) {
  T number{};
  const auto [end, failed] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (failed != std::errc() || end != value.data() + value.size())
    return Error{Code::kInvalidArgument, fmt::format("'{}': '{}' is no number", text, value)};
  return number;
}

// Of --weights and --counts.
Result<std::vector<shards::SplitPart>> parts_of(const RewriteCommand& command) {
  std::vector<shards::SplitPart> parts;
  for (const std::string& text : command.weights) {
    YARD_ASSIGN(const auto part, name_and_value(text));
    YARD_ASSIGN(const double weight, number_of<double>(text, part.second));
    parts.push_back({.name = part.first, .weight = weight});
  }
  for (const std::string& text : command.counts) {
    YARD_ASSIGN(const auto part, name_and_value(text));
    parts.push_back({.name = part.first});
    if (part.second == "rest") continue;
    YARD_ASSIGN(parts.back().count, number_of<uint64_t>(text, part.second));
  }
  return parts;
}

void print_report(const shards::RewriteReport& report, const TargetFolder& target,
                  std::chrono::nanoseconds elapsed) {
  if (report.resumed_count > 0)
    fmt::print("{} shards were there from the run before\n", report.resumed_count);
  for (const auto& part : report.parts) {
    uint64_t size_bytes = 0;
    for (const auto& shard : part.shards) size_bytes += shard.size_bytes;
    fmt::print("{}{} samples in {} shards, {}\n",
               report.parts.size() > 1 ? part.name + ": " : std::string(), part.sample_count,
               part.shards.size(), format_size_bytes(size_bytes));
  }
  fmt::print("in {}/{}, {}\n", target.store->url(), target.prefix, format_duration(elapsed));
}

Status run_rewrite(RewriteCommand command, bool is_split, const Context& context) {
  const auto start = Clock::real().now();
  shards::RewriteOptions& options = command.options;
  YARD_ASSIGN(options.set.shards.size_bytes_max, parse_size_bytes(command.size));
  YARD_ASSIGN(const uint64_t memory_bytes, memory_bytes_of(command.store));
  options.set.memory_bytes = memory_bytes / 2;
  options.split_seed = command.seed;
  if (command.shuffle) options.shuffle_seed = command.seed;
  YARD_ASSIGN(options.parts, parts_of(command));
  if (is_split && options.parts.size() < 2)
    return Error{Code::kInvalidArgument,
                 "split needs two parts at least, as --weights train=0.9,val=0.1 or "
                 "--counts val=1000,train=rest"};
  storage::Opener opener(s3_options(command.store, context, memory_bytes / 2));
  YARD_ASSIGN(const auto sources, find_shards(opener, command.sources, context.stop));
  YARD_ASSIGN(const TargetFolder target, open_target_folder(opener, command.target));
  YARD_ASSIGN(const auto bad, BadSamples::open(command.bad));
  options.on_bad = bad->sink();
  options.set.shards.prefix = target.prefix + options.set.shards.prefix;

  Result<shards::RewriteReport> report = Error{Code::kInternal, "not run"};
  {
    PercentLine line(is_split ? "splitting" : "repacking",
                     context.stdout_is_terminal && !command.store.json);
    report = shards::rewrite(sources, *target.store, options, context.stop,
                             [&](uint64_t done, uint64_t total) { line.show(done, total); });
  }
  if (!report) return std::move(report).error();
  YARD_TRY(bad->finish());
  if (command.store.json)
    print_json_line(to_json(*report, bad->count()));
  else
    print_report(*report, target, Clock::real().now() - start);
  return Ok{};
}

// SRC... and DEST are one list: CLI11 would give the first argument to the first of two.
void add_rewrite(CLI::App& group, Context& context, const std::string& name,
                 const std::string& help, bool is_split, const std::string& examples) {
  auto command = std::make_shared<RewriteCommand>();
  auto urls = std::make_shared<std::vector<std::string>>();
  CLI::App* app = group.add_subcommand(name, help);
  app->add_option("SRC... DEST", *urls, "shards, or folders of shards; last the folder to write")
      ->required()
      ->expected(2, -1);
  app->add_option("--size", command->size, "of a shard, at most")->capture_default_str();
  if (is_split) {
    app->add_option("--weights", command->weights, "as train=0.9,val=0.1: each sample by its key")
        ->delimiter(',');
    app->add_option("--counts", command->counts, "as val=1000,train=rest: so many samples")
        ->delimiter(',')
        ->excludes("--weights");
  } else {
    app->add_option("--prefix", command->options.set.shards.prefix,
                    "shards are PREFIX-000000.tar, ...")
        ->capture_default_str();
  }
  app->add_flag("--shuffle", command->shuffle, "in an order that the seed decides");
  app->add_option("--seed", command->seed, "of --shuffle, and of a split")->capture_default_str();
  app->add_flag("--prefix-keys", command->options.prefix_keys,
                "put the name of its shard before each key");
  app->add_flag("--group-by-key", command->options.group_by_key,
                "members of a sample may lie apart");
  app->add_flag("--replace", command->options.set.replace, "replace shards of the same name");
  add_bad_options(*app, command->bad);
  add_store_options(*app, command->store, true, examples);
  app->callback([command, urls, is_split, &context] {
    command->target = urls->back();
    command->sources.assign(urls->begin(), urls->end() - 1);
    context.action = [command, is_split, &context] {
      return run_rewrite(*command, is_split, context);
    };
  });
}

}  // namespace

void add_shards_repack_commands(CLI::App& group, Context& context) {
  add_rewrite(group, context, "repack", "the same samples in shards of another size or order",
              false,
              "  yard shards repack s3://data/small s3://data/large --size 4GiB\n"
              "  yard shards repack shards mixed --shuffle --seed 7\n"
              "  yard shards repack old.tar.gz other.tar.zst new     plain, with an index\n"
              "  yard shards repack damaged fixed --quarantine bad.jsonl\n");
  add_rewrite(group, context, "split", "the samples in parts that depend on their keys alone", true,
              "  yard shards split s3://data/all s3://data/split --weights train=0.99,val=0.01\n"
              "  yard shards split shards parts --counts val=1000,test=1000,train=rest --seed 3\n"
              "Shards are PART-000000.tar and on. With weights a sample stays in its part when "
              "others come.\n");
}

}  // namespace yard::app
