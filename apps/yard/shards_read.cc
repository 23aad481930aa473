// yard shards ls, cat, check, index, stats: what is in shards, and whether it is whole.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>

#include "base/file.h"
#include "base/nearest_name.h"
#include "base/units.h"
#include "shards/sample_name.h"
#include "shards/sample_stream.h"
#include "shards/shard_reader.h"
#include "shards/sidecar.h"
#include "shards_common.h"

namespace yard::app {
namespace {

using shards::ScannedShard;
using shards::ShardIndex;
using shards::ShardSource;

struct ReadCommand {
  StoreOptions store;
  BadOptions bad;
  std::vector<std::string> urls;
  bool group_by_key = false;
};

enum class Takes { kNothingElse, kBadSamples };

void add_read_command(CLI::App& group, Context& context, const std::string& name,
                      const std::string& help, Takes takes, const std::string& examples,
                      Status (*run)(const ReadCommand&, const Context&)) {
  auto command = std::make_shared<ReadCommand>();
  CLI::App* app = group.add_subcommand(name, help);
  app->add_option("URL", command->urls, "shards, or folders of shards")->required();
  if (takes == Takes::kBadSamples) {
    app->add_flag("--group-by-key", command->group_by_key, "members of a sample may lie apart");
    add_bad_options(*app, command->bad);
  }
  add_store_options(*app, command->store, false, examples);
  app->callback([command, run, &context] {
    context.action = [command, run, &context] { return run(*command, context); };
  });
}

// What the index of every shard says, in order.
Status visit_indexes(const ReadCommand& command, const Context& context,
                     const std::function<Status(const ShardSource&, const ScannedShard&)>& visit,
                     uint64_t* bad_count = nullptr) {
  storage::Opener opener(s3_options(command.store, context, 0));
  YARD_ASSIGN(const auto paths, find_shards(opener, command.urls, context.stop));
  YARD_ASSIGN(const auto bad, BadSamples::open(command.bad));
  YARD_TRY(for_each_shard<ScannedShard>(
      paths, context.stop,
      [&](const ShardSource& path) {
        return shards::index_of(*path.store, path.key,
                                {.group_by_key = command.group_by_key, .on_bad = bad->sink()});
      },
      [&](const ShardSource& path, Result<ScannedShard> scanned) -> Status {
        if (!scanned) return std::move(scanned).error();
        return visit(path, *scanned);
      }));
  if (bad_count != nullptr) *bad_count = bad->count();
  return bad->finish();
}

Json sample_json(const ShardSource& path, const ShardIndex& index, uint64_t sample) {
  Json members = Json::array();
  for (const auto& member : index.members(sample)) {
    members.push_back({{"extension", index.extension(member)},
                       {"name", index.member_name(sample, member)},
                       {"offset", member.offset},
                       {"size_bytes", member.size_bytes},
                       {"crc32c", fmt::format("{:08x}", member.crc32c)}});
    if (const auto picture = index.picture_size(sample, member)) {
      members.back()["width"] = picture->width;
      members.back()["height"] = picture->height;
    }
  }
  return {{"shard", path.key}, {"key", index.key(sample)}, {"members", members}};
}

Status run_ls(const ReadCommand& command, const Context& context) {
  return visit_indexes(command, context, [&](const ShardSource& path, const ScannedShard& shard) {
    const ShardIndex& index = shard.index;
    for (uint64_t sample = 0; sample < index.sample_count(); ++sample) {
      if (command.store.json) {
        print_json_line(sample_json(path, index, sample));
        continue;
      }
      std::string members;
      for (const auto& member : index.members(sample))
        members += fmt::format("{}{} {}", members.empty() ? "" : ", ", index.extension(member),
                               member.size_bytes);
      fmt::print("{}/{}\t{}\n", path.key, index.key(sample), members);
    }
    return Status(Ok{});
  });
}

Result<uint64_t> find_sample(const ShardIndex& index, std::string_view key,
                             const std::string& url) {
  std::vector<std::string_view> keys;
  for (uint64_t sample = 0; sample < index.sample_count(); ++sample) {
    if (index.key(sample) == key) return sample;
    keys.push_back(index.key(sample));
  }
  const std::string_view nearest = nearest_name(key, keys);
  return Error{Code::kNotFound,
               fmt::format("{}: no sample '{}' among its {}{}", url, key, keys.size(),
                           nearest.empty() ? "" : fmt::format(", did you mean '{}'?", nearest))};
}

Status write_out(std::span<const std::byte> content) {
  if (std::fwrite(content.data(), 1, content.size(), stdout) != content.size() ||
      std::fflush(stdout) != 0)
    return errno_error("standard output", errno);
  return Ok{};
}

// The sample's member, nullptr with an Error that names those there are.
Result<const ShardIndex::Member*> find_member(const ShardIndex& index, uint64_t sample,
                                              const shards::SampleName& name,
                                              const std::string& url) {
  const auto* member = index.find(sample, shards::to_lower(name.extension));
  if (member != nullptr) return member;
  std::vector<std::string> names;
  for (const auto& other : index.members(sample)) names.push_back(index.member_name(sample, other));
  return Error{Code::kNotFound, fmt::format("{}: no member '{}.{}'; the sample has {}", url,
                                            name.key, name.extension, fmt::join(names, ", "))};
}

// From front to back, as a compressed shard has to be read.
Status cat_streamed(const ShardSource& shard, ScannedShard scanned, std::string_view key,
                    std::string_view extension) {
  YARD_ASSIGN(auto stream, shards::SampleStream::open(*shard.store, std::move(scanned)));
  for (;;) {
    YARD_ASSIGN(const auto sample, stream.next());
    YARD_CHECK(sample);  // the scan found it
    if (sample->key != key) continue;
    for (const auto& member : sample->members)
      if (shards::to_lower(member.extension) == extension) return write_out(member.content);
  }
}

struct CatCommand {
  StoreOptions store;
  std::string shard;
  std::string member;
};

Status run_cat(const CatCommand& command, const Context& context) {
  const auto name = shards::split_member_name(command.member);
  if (!name)
    return Error{Code::kInvalidArgument, fmt::format("'{}' is no member of a sample: it is "
                                                     "KEY.EXTENSION",
                                                     command.member)};
  storage::Opener opener(s3_options(command.store, context, 0));
  YARD_ASSIGN(const auto found, find_shards(opener, {command.shard}, context.stop));
  if (found.size() != 1)
    return Error{Code::kInvalidArgument, command.shard + ": is a folder of several shards"};
  const ShardSource& shard = found.front();
  YARD_ASSIGN(ScannedShard scanned, shards::index_of(*shard.store, shard.key));
  YARD_ASSIGN(const uint64_t sample, find_sample(scanned.index, name->key, command.shard));
  YARD_ASSIGN(const auto* member, find_member(scanned.index, sample, *name, command.shard));
  if (scanned.compression != shards::TarCompression::kNone)
    return cat_streamed(shard, std::move(scanned), name->key, shards::to_lower(name->extension));
  const ShardIndex::Member wanted = *member;
  const shards::ShardReader reader(*shard.store,
                                   {std::move(scanned.index), std::move(scanned.shard)});
  std::vector<std::byte> buffer;
  YARD_ASSIGN(const auto contents, reader.read(sample, std::span(&wanted, 1), buffer));
  return write_out(contents[0]);
}

void add_cat(CLI::App& group, Context& context) {
  auto command = std::make_shared<CatCommand>();
  CLI::App* app = group.add_subcommand("cat", "write one member to the standard output");
  app->add_option("SHARD", command->shard)->required();
  app->add_option("KEY.EXTENSION", command->member)->required();
  add_store_options(*app, command->store, false,
                    "  yard shards cat s3://data/train/shard-000007.tar cats/7.jpg > 7.jpg\n");
  app->callback([command, &context] {
    context.action = [command, &context] { return run_cat(*command, context); };
  });
}

struct CheckedShard {
  ScannedShard scanned;
  bool has_index = false;
  std::vector<shards::BadSample> bad;
};

Result<CheckedShard> check_shard(const ShardSource& path, bool group_by_key) {
  CheckedShard checked;
  const auto note = [&](const shards::BadSample& sample) -> Status {
    checked.bad.push_back(sample);
    return Ok{};
  };
  YARD_ASSIGN(checked.scanned, shards::index_of(*path.store, path.key,
                                                {.group_by_key = group_by_key, .on_bad = note}));
  if (checked.scanned.compression != shards::TarCompression::kNone) return checked;
  YARD_ASSIGN(const auto index, shards::read_sidecar(*path.store, path.key));
  checked.has_index = index.has_value();
  if (index && checked.bad.empty() && !index->same_content(checked.scanned.index))
    checked.bad.push_back(
        {.shard = path.url(),
         .reason = path.store->url() + "/" + shards::index_key(path.key) +
                   ": describes other bytes than the shard has now; 'yard shards index' "
                   "replaces it"});
  return checked;
}

uint64_t member_count_of(const ShardIndex& index) {
  uint64_t count = 0;
  for (uint64_t i = 0; i < index.sample_count(); ++i) count += index.members(i).size();
  return count;
}

void print_good(const ShardSource& path, const CheckedShard& checked, bool json) {
  const ShardIndex& index = checked.scanned.index;
  const bool is_plain = checked.scanned.compression == shards::TarCompression::kNone;
  if (json) {
    print_json_line({{"shard", path.url()},
                     {"ok", true},
                     {"sample_count", index.sample_count()},
                     {"member_count", member_count_of(index)},
                     {"size_bytes", index.shard_size_bytes()},
                     {"link_count", checked.scanned.link_count},
                     {"compression", shards::to_string(checked.scanned.compression)},
                     {"has_index", checked.has_index}});
    return;
  }
  std::string notes;
  if (is_plain && !checked.has_index) notes += ", no index";
  if (!is_plain)
    notes += fmt::format(", compressed with {}: only to be read from front to back",
                         shards::to_string(checked.scanned.compression));
  if (checked.scanned.link_count > 0)
    notes += fmt::format(", {} links that no reader follows", checked.scanned.link_count);
  fmt::print("ok   {}: {} samples, {} members, {}{}\n", path.url(), index.sample_count(),
             member_count_of(index), format_size_bytes(index.shard_size_bytes()), notes);
}

void print_bad(const ShardSource& path, const std::vector<std::string>& reasons, bool json) {
  if (json) {
    print_json_line(
        {{"shard", path.url()}, {"ok", false}, {"error", reasons.front()}, {"errors", reasons}});
    return;
  }
  for (const std::string& reason : reasons) fmt::print("BAD  {}\n", reason);
}

Status run_check(const ReadCommand& command, const Context& context) {
  storage::Opener opener(s3_options(command.store, context, 0));
  YARD_ASSIGN(const auto paths, find_shards(opener, command.urls, context.stop));
  BadOptions policy = command.bad;
  if (policy.path.empty()) policy.policy = "skip";  // every bad sample is told of anyway
  YARD_ASSIGN(const auto quarantine, BadSamples::open(policy));
  const auto note = quarantine->sink();
  std::optional<Code> worst;
  size_t bad_count = 0;
  YARD_TRY(for_each_shard<CheckedShard>(
      paths, context.stop,
      [&](const ShardSource& path) { return check_shard(path, command.group_by_key); },
      [&](const ShardSource& path, Result<CheckedShard> checked) -> Status {
        if (checked && checked->bad.empty()) {
          print_good(path, *checked, command.store.json);
          return Ok{};
        }
        std::vector<std::string> reasons;
        if (!checked) reasons.push_back(checked.error().message);
        if (checked)
          for (const shards::BadSample& sample : checked->bad) {
            reasons.push_back(sample.reason);
            if (!policy.path.empty()) YARD_TRY(note(sample));
          }
        print_bad(path, reasons, command.store.json);
        worst = checked ? Code::kCorrupt : checked.error().code;
        ++bad_count;
        return Ok{};
      }));
  YARD_TRY(quarantine->finish());
  if (!worst) return Ok{};
  return Error{*worst, fmt::format("{} of {} shards are bad", bad_count, paths.size())};
}

Result<ScannedShard> make_index(const ShardSource& path) {
  YARD_ASSIGN(ScannedShard scanned, shards::scan_shard(*path.store, path.key));
  if (scanned.compression != shards::TarCompression::kNone)
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: compressed as a whole with {}, so that no index can say where a "
                             "sample lies; 'yard shards repack' makes shards that have one",
                             path.url(), shards::to_string(scanned.compression))};
  YARD_TRY(storage::put_text(*path.store, shards::index_key(path.key), scanned.index.encode()));
  return scanned;
}

Status run_index(const ReadCommand& command, const Context& context) {
  storage::Opener opener(s3_options(command.store, context, 0));
  YARD_ASSIGN(const auto paths, find_shards(opener, command.urls, context.stop));
  return for_each_shard<ScannedShard>(
      paths, context.stop, make_index,
      [&](const ShardSource& path, Result<ScannedShard> scanned) -> Status {
        if (!scanned) return std::move(scanned).error();
        const std::string url = path.store->url() + "/" + shards::index_key(path.key);
        if (command.store.json)
          print_json_line({{"index", url}, {"sample_count", scanned->index.sample_count()}});
        else
          fmt::print("{}: {} samples\n", url, scanned->index.sample_count());
        return Ok{};
      });
}

struct ExtensionStats {
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t bytes_min = UINT64_MAX;
  uint64_t bytes_max = 0;
};

struct Stats {
  uint64_t shard_count = 0;
  uint64_t shard_bytes = 0;
  uint64_t sample_count = 0;
  uint64_t samples_min = UINT64_MAX;  // of a shard
  uint64_t samples_max = 0;
  std::map<std::string, ExtensionStats> extensions;
};

void add_to(Stats& stats, const ShardIndex& index) {
  ++stats.shard_count;
  stats.shard_bytes += index.shard_size_bytes();
  stats.sample_count += index.sample_count();
  stats.samples_min = std::min(stats.samples_min, index.sample_count());
  stats.samples_max = std::max(stats.samples_max, index.sample_count());
  for (uint64_t sample = 0; sample < index.sample_count(); ++sample) {
    for (const auto& member : index.members(sample)) {
      ExtensionStats& of = stats.extensions[std::string(index.extension(member))];
      ++of.count;
      of.bytes += member.size_bytes;
      of.bytes_min = std::min(of.bytes_min, member.size_bytes);
      of.bytes_max = std::max(of.bytes_max, member.size_bytes);
    }
  }
}

void print_stats(const Stats& stats, uint64_t bad_count, bool json) {
  if (json) {
    Json extensions = Json::object();
    for (const auto& [name, of] : stats.extensions)
      extensions[name] = {{"count", of.count},
                          {"bytes", of.bytes},
                          {"bytes_min", of.bytes_min},
                          {"bytes_max", of.bytes_max}};
    print_json_line({{"shard_count", stats.shard_count},
                     {"shard_bytes", stats.shard_bytes},
                     {"sample_count", stats.sample_count},
                     {"samples_min", stats.samples_min},
                     {"samples_max", stats.samples_max},
                     {"bad_count", bad_count},
                     {"extensions", extensions}});
    return;
  }
  fmt::print("{} shards, {}, {} samples, {} to {} in a shard\n", stats.shard_count,
             format_size_bytes(stats.shard_bytes), stats.sample_count, stats.samples_min,
             stats.samples_max);
  for (const auto& [name, of] : stats.extensions)
    fmt::print("  {:12} {:>10} members, {:>10}, each {} to {}, {} on average\n", name, of.count,
               format_size_bytes(of.bytes), format_size_bytes(of.bytes_min),
               format_size_bytes(of.bytes_max), format_size_bytes(of.bytes / of.count));
}

Status run_stats(const ReadCommand& command, const Context& context) {
  Stats stats;
  uint64_t bad_count = 0;
  YARD_TRY(visit_indexes(
      command, context,
      [&](const ShardSource&, const ScannedShard& shard) -> Status {
        add_to(stats, shard.index);
        return Ok{};
      },
      &bad_count));
  print_stats(stats, bad_count, command.store.json);
  return Ok{};
}

}  // namespace

void add_shards_read_commands(CLI::App& group, Context& context) {
  add_read_command(
      group, context, "ls", "list samples and the sizes of their members", Takes::kBadSamples,
      "  yard shards ls shards\n  yard shards ls s3://data/train --json | jq .key\n", run_ls);
  add_cat(group, context);
  add_read_command(group, context, "check", "read everything: form, checksums, index",
                   Takes::kBadSamples,
                   "  yard shards check shards\n"
                   "  yard shards check s3://data/train --quarantine bad.jsonl\n"
                   "Every bad sample is told of; the exit code is 4 when there is one.\n",
                   run_check);
  add_read_command(group, context, "index", "make or replace the index beside each shard",
                   Takes::kNothingElse, "  yard shards index s3://data/train\n", run_index);
  add_read_command(group, context, "stats", "count shards, samples and bytes", Takes::kBadSamples,
                   "  yard shards stats s3://data/train\n", run_stats);
}

}  // namespace yard::app
