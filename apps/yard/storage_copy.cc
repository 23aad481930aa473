// yard cp, sync: objects from store to store.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>

#include "base/open_files.h"
#include "base/units.h"
#include "progress.h"
#include "storage/keys.h"
#include "store_options.h"
#include "transfer/copier.h"
#include "transfer/sync_plan.h"

namespace yard::app {
namespace {

using storage::ObjectInfo;
using transfer::Copy;

struct CopyCommand {
  StoreOptions store;
  std::vector<std::string> sources;
  std::string target;
  bool recursive = false;
  bool sync_disk = false;
  bool no_clobber = false;
  bool quiet = false;
  bool dry_run = false;
  transfer::SyncOptions compare;
};

// Where copies go.
struct Target {
  Place place;       // of S3
  std::string path;  // else
  bool is_folder = false;

  bool is_s3() const { return path.empty(); }
};

Result<Target> open_target(storage::Opener& opener, const std::string& url, bool must_be_folder) {
  Target target;
  if (storage::is_s3_url(url)) {
    YARD_ASSIGN(target.place, open_place(opener, url));
    if (must_be_folder) target.place.key = as_folder(target.place.key);
    target.is_folder = target.place.key.empty() || target.place.key.ends_with('/');
    return target;
  }
  YARD_ASSIGN(target.path, storage::path_of_url(url));
  std::error_code unknown;
  target.is_folder = must_be_folder || target.path.ends_with('/') ||
                     std::filesystem::is_directory(target.path, unknown);
  return target;
}

std::string name_of_key(std::string_view key) {
  return std::string(key.substr(key.rfind('/') + 1));
}

// `relative` under the target's folder, or the target itself where that is empty.
Result<Copy> make_copy(const Place& source, ObjectInfo info, const Target& target,
                       const std::string& relative) {
  Copy copy{.source = source.store, .info = std::move(info)};
  if (target.is_s3()) {
    copy.target = target.place.store;
    copy.target_key = target.place.key + relative;
    if (source.is_s3 && source.store == target.place.store && copy.info.key == copy.target_key)
      return Error{Code::kInvalidArgument, copy.source_url() + ": cannot be copied onto itself"};
    return copy;
  }
  copy.target_path = target.path;
  if (copy.info.key.ends_with('/'))
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: a key that ends in '/' cannot be a file's name, and this one has "
                             "{} bytes",
                             copy.source_url(), copy.info.size_bytes)};
  if (!relative.empty()) {
    if (auto valid = storage::check_key(relative); !valid)
      return Error{Code::kInvalidArgument,
                   fmt::format("{}: '{}' cannot be a file's name", copy.source_url(), relative)};
    copy.target_path = (std::filesystem::path(target.path) / relative).string();
  }
  std::error_code unknown;
  if (!source.is_s3 &&
      std::filesystem::equivalent(source.url_of(copy.info.key), copy.target_path, unknown))
    return Error{Code::kInvalidArgument, copy.source_url() + ": cannot be copied onto itself"};
  return copy;
}

// One run of a command: its copier, and what it tells.
class Run {
 public:
  // is_one_object: the command names one, not a folder or several.
  Run(const CopyCommand& command, const Context& context, uint64_t memory_bytes, bool to_s3,
      bool is_one_object)
      : command_(command),
        is_one_object_(is_one_object),
        to_s3_(to_s3),
        shows_lines_(!command.quiet && !command.store.json && !context.stdout_is_terminal),
        start_(std::chrono::steady_clock::now()),
        copier_({.transfer = {.memory_bytes_max = to_s3 ? memory_bytes / 2 : memory_bytes,
                              .stop = context.stop},
                 .sync = command.sync_disk,
                 .if_absent = command.no_clobber},
                [this](const Copy& copy, const Status& status) { on_done(copy, status); }) {
    line_.emplace(copier_.progress(), context.stdout_is_terminal && !command.quiet &&
                                          !command.store.json && ::isatty(STDERR_FILENO) != 0);
  }

  void add(Copy copy) {
    if (!command_.dry_run) return copier_.add(std::move(copy));
    print_copy(copy, "would copy");
  }
  // For what cannot even be begun.
  void fail(const Error& error) {
    note_failure(error);
    ++refused_count_;
  }
  void tell_removal(const Place& place, const std::string& key) {
    const char* what = command_.dry_run ? "would remove" : "remove";
    if (command_.store.json)
      print_json_line({{"url", place.whole_url_of(key)}, {"removed", !command_.dry_run}});
    else if (shows_lines_ || command_.dry_run)
      fmt::print("{}: {}\n", what, shown(place.url_of(key)));
    removed_count_ += command_.dry_run ? 0 : 1;
  }

  // Waits for all copies.
  Status wait() {
    static_cast<void>(copier_.finish());  // its first error is ours
    line_.reset();
    if (first_error_) return *first_error_;
    return Ok{};
  }

  // The last line, and how the command ends.
  Status finish(size_t same_count = 0) {
    const auto& progress = copier_.progress();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    const uint64_t failed = progress.objects_failed + refused_count_;
    const uint64_t copied = progress.objects_done - progress.objects_failed;
    if (command_.store.json)
      print_json_line({{"copied", copied},
                       {"failed", failed},
                       {"same", same_count},
                       {"removed", removed_count_},
                       {"bytes", progress.bytes_done.load()},
                       {"seconds", elapsed.count()}});
    else if (!command_.quiet && !command_.dry_run && (!first_error_ || !is_one_object_))
      print_summary(copied, same_count, elapsed);
    if (!first_error_) return Ok{};
    if (first_error_->code == Code::kCancelled)
      return Error{Code::kCancelled,
                   to_s3_ ? "stopped; objects that were under way are not there, the same command "
                            "sends them from their beginning"
                          : "stopped; the same command goes on from here"};
    if (is_one_object_) return with_advice(*first_error_);
    return with_advice({first_error_->code, fmt::format("{} of {} objects were not copied", failed,
                                                        failed + copied + same_count)});
  }

 private:
  // Of a store that went away in the middle.
  Error with_advice(Error error) const {
    const bool is_away = error.code == Code::kUnavailable || error.code == Code::kDeadlineExceeded;
    if (is_away && !to_s3_ && copier_.progress().bytes_done > 0)
      error.message += "; what has come is kept, the same command goes on from here";
    return error;
  }

  void print_copy(const Copy& copy, std::string_view what) const {
    if (command_.store.json)
      print_json_line(
          {{"source", copy.source_url()},
           {"target",
            copy.target ? copy.target_url()
                        : std::filesystem::absolute(copy.target_path).lexically_normal().string()},
           {"size_bytes", copy.info.size_bytes},
           {"copied", !command_.dry_run}});
    else
      fmt::print("{}: {} -> {}\n", what, shown(copy.source_url()), shown(copy.target_url()));
  }

  void on_done(const Copy& copy, const Status& status) {
    if (!status) return note_failure(status.error());
    if (shows_lines_ || command_.store.json) print_copy(copy, "copy");
  }

  void print_summary(uint64_t copied, size_t same_count, std::chrono::duration<double> elapsed) {
    const uint64_t bytes = copier_.progress().bytes_done;
    std::string others;
    if (same_count > 0) others += fmt::format(", {} the same", same_count);
    if (removed_count_ > 0) others += fmt::format(", {} removed", removed_count_);
    fmt::print("{} copied{}, {} in {} ({}/s)\n", copied, others, format_size_bytes(bytes),
               format_duration(std::chrono::duration_cast<std::chrono::milliseconds>(elapsed)),
               format_size_bytes(static_cast<uint64_t>(static_cast<double>(bytes) /
                                                       std::max(elapsed.count(), 1e-3))));
  }

  void note_failure(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!first_error_) first_error_ = error;
    // One copy alone is told by main().
    if (error.code != Code::kCancelled && !is_one_object_) tell_error(error, command_.store.json);
  }

  const CopyCommand& command_;
  const bool is_one_object_;
  const bool to_s3_;
  const bool shows_lines_;
  const std::chrono::steady_clock::time_point start_;
  std::mutex mutex_;
  std::optional<Error> first_error_;
  uint64_t refused_count_ = 0;
  uint64_t removed_count_ = 0;
  transfer::Copier copier_;
  std::optional<ProgressLine> line_;
};

Status add_folder(const Place& source, const Target& target, const std::string& below,
                  const Context& context, Run& run) {
  const size_t cut = as_folder(source.key).size();
  size_t count = 0;
  YARD_TRY(visit_folder(
      source, context.stop,
      [&](ObjectInfo info) -> Status {
        ++count;
        const std::string relative = below + info.key.substr(cut);
        // What web consoles write to show an empty folder; a file system has folders of its own.
        const bool is_marker = info.key.ends_with('/') && info.size_bytes == 0;
        if (is_marker && (!target.is_s3() || relative.empty())) return Ok{};
        auto copy = make_copy(source, std::move(info), target, relative);
        if (copy)
          run.add(*std::move(copy));
        else
          run.fail(copy.error());
        return Ok{};
      },
      [&](const Error& error) {
        ++count;
        run.fail(error);
      }));
  if (count > 0 || source.key.empty()) return Ok{};
  return Error{Code::kNotFound, source.url + ": no object under it"};
}

Status add_object(const Place& source, const Target& target, Run& run) {
  auto head = source.store->head(source.key);
  if (!head) return why_missing(source, std::move(head).error());
  ObjectInfo info = *std::move(head);
  const std::string name = target.is_folder ? name_of_key(info.key) : std::string();
  YARD_ASSIGN(Copy copy, make_copy(source, std::move(info), target, name));
  run.add(std::move(copy));
  return Ok{};
}

Status run_cp(const CopyCommand& command, const Context& context) {
  if (command.target == "-")
    return Error{
        Code::kInvalidArgument,
        "-: this copies to files and objects; `yard cat URL` writes to the standard output"};
  raise_open_files_max();
  YARD_ASSIGN(const uint64_t memory_bytes, memory_bytes_of(command.store));
  storage::Opener opener(s3_options(command.store, context, memory_bytes / 2));
  const bool many = command.sources.size() > 1;
  YARD_ASSIGN(const Target target, open_target(opener, command.target, many || command.recursive));
  Run run(command, context, memory_bytes, target.is_s3(), !many && !command.recursive);
  for (const std::string& url : command.sources) {
    const auto add = [&]() -> Status {
      if (url == "-")
        return Error{Code::kInvalidArgument,
                     "-: this copies files and objects; write the standard "
                     "input to a file first"};
      YARD_ASSIGN(const Place source, open_place(opener, url));
      const bool is_file = !source.is_s3 && !source.key.empty();
      if (command.recursive && !is_file) {
        // Several folders side by side, each under its name.
        std::string name = std::filesystem::path(as_folder(url)).parent_path().filename().string();
        return add_folder(source, target, many ? name + "/" : "", context, run);
      }
      if (source.key.empty() || source.key.ends_with('/'))
        return Error{Code::kInvalidArgument, url + ": is a folder; copy it with --recursive"};
      return add_object(source, target, run);
    };
    if (auto added = add(); !added) run.fail(added.error());
  }
  static_cast<void>(run.wait());  // finish() has its error
  return run.finish();
}

// Keys without the folder's prefix.
Result<std::vector<ObjectInfo>> relative_list(const Place& place, const StopToken& stop,
                                              const LeftOut& left_out = {}) {
  const size_t cut = as_folder(place.key).size();
  std::vector<ObjectInfo> objects;
  YARD_TRY(visit_folder(
      place, stop,
      [&](ObjectInfo info) -> Status {
        // The folder's own marker; one with bytes is told of where it cannot go.
        if (info.key.size() == cut && info.size_bytes == 0) return Ok{};
        if (info.key.size() == cut && left_out) {
          left_out({Code::kInvalidArgument,
                    fmt::format("{}: a key that ends in '/' is left out, and this one has {} bytes",
                                place.url_of(info.key), info.size_bytes)});
          return Ok{};
        }
        info.key.erase(0, cut);
        if (!info.key.empty()) objects.push_back(std::move(info));
        return Ok{};
      },
      left_out));
  return objects;
}

// What is there already; a folder that is yet to be made has nothing.
Result<std::pair<std::optional<Place>, std::vector<ObjectInfo>>> list_target(
    storage::Opener& opener, const Target& target, const std::string& url, const StopToken& stop) {
  std::error_code unknown;
  if (!target.is_s3() && !std::filesystem::exists(target.path, unknown))
    return std::pair(std::optional<Place>(), std::vector<ObjectInfo>());
  YARD_ASSIGN(Place place, open_place(opener, url));
  YARD_ASSIGN(auto objects, relative_list(place, stop));
  return std::pair(std::optional(std::move(place)), std::move(objects));
}

Status remove_others(const Place& target, const transfer::SyncPlan& plan,
                     const CopyCommand& command, const StopToken& stop, Run& run) {
  std::vector<std::string> keys;
  for (const std::string& key : plan.deletions) keys.push_back(as_folder(target.key) + key);
  return remove_and_tell(target, keys, command.dry_run, stop,
                         [&](const std::string& key) { run.tell_removal(target, key); });
}

Status run_sync(const CopyCommand& command, const Context& context) {
  raise_open_files_max();
  YARD_ASSIGN(const uint64_t memory_bytes, memory_bytes_of(command.store));
  storage::Opener opener(s3_options(command.store, context, memory_bytes / 2));
  YARD_ASSIGN(const Place source, open_place(opener, command.sources[0]));
  YARD_ASSIGN(const Target target, open_target(opener, command.target, true));
  std::vector<Error> left_out;
  YARD_ASSIGN(
      std::vector<ObjectInfo> wanted,
      relative_list(source, context.stop, [&](const Error& error) { left_out.push_back(error); }));
  if (wanted.empty() && left_out.empty() && source.is_s3 && !source.key.empty())
    return source.store->head(source.key)
               ? Error{Code::kInvalidArgument, source.url + ": is an object, not a folder"}
               : Error{Code::kNotFound, source.url + ": no object under it"};
  auto listed = list_target(opener, target, command.target, context.stop);
  if (!listed) return std::move(listed).error();
  const auto& [target_place, existing] = *listed;
  transfer::SyncPlan plan = transfer::plan_sync(wanted, existing, command.compare);
  Run run(command, context, memory_bytes, target.is_s3(), false);
  for (const Error& error : left_out) run.fail(error);
  for (ObjectInfo& info : plan.copies) {
    if (context.stop.stopped()) break;
    const std::string relative = info.key;
    info.key = as_folder(source.key) + relative;
    if (relative.ends_with('/') && info.size_bytes == 0 && !target.is_s3()) continue;
    auto copy = make_copy(source, std::move(info), target, relative);
    if (copy)
      run.add(*std::move(copy));
    else
      run.fail(copy.error());
  }
  // Removals come last, and only when all copies are there: nothing is lost that was not replaced.
  if (run.wait()) {
    if (target_place) YARD_TRY(remove_others(*target_place, plan, command, context.stop, run));
  } else if (!plan.deletions.empty() && !context.stop.stopped()) {
    run.fail({Code::kInvalidArgument,
              "nothing was removed from the target, for not everything was copied to it"});
  }
  return run.finish(plan.same_count);
}

void add_copy_flags(CLI::App& app, CopyCommand& command) {
  app.add_flag("--fsync", command.sync_disk, "wait until files are on the disk");
  app.add_flag("-q,--quiet", command.quiet, "only errors");
  app.add_flag("--dry-run", command.dry_run, "only say what would be done, also with --quiet");
}

void add_cp(CLI::App& app, Context& context) {
  auto command = std::make_shared<CopyCommand>();
  CLI::App* cp = app.add_subcommand("cp", "copy objects and files, in either direction");
  auto urls = std::make_shared<std::vector<std::string>>();
  cp->add_option("SRC... DEST", *urls, "s3://bucket/key or paths; DEST/ is a folder")
      ->required()
      ->expected(2, -1);
  cp->add_flag("-r,--recursive", command->recursive, "all that is in a folder, into DEST");
  cp->add_flag("--no-clobber", command->no_clobber,
               "an object or file that is there already is an error");
  add_copy_flags(*cp, *command);
  add_store_options(
      *cp, command->store, true,
      "  yard cp model.safetensors s3://models/v1/\n"
      "  yard cp --recursive s3://data/shards /data/shards --memory 1GiB\n"
      "  yard cp s3://a/x s3://b/y          copied by the service itself\n"
      "A copy that was broken off leaves nothing under DEST's name; run again, it goes "
      "on with what has come.\n");
  cp->callback([command, urls, &context] {
    command->target = urls->back();
    command->sources.assign(urls->begin(), urls->end() - 1);
    context.action = [command, &context] { return run_cp(*command, context); };
  });
}

void add_sync(CLI::App& app, Context& context) {
  auto command = std::make_shared<CopyCommand>();
  CLI::App* sync = app.add_subcommand("sync", "make one folder like another");
  command->sources.resize(1);
  sync->add_option("SRC", command->sources[0], "s3://bucket/prefix or a folder")->required();
  sync->add_option("DEST", command->target, "the same; made where missing")->required();
  sync->add_flag("--delete", command->compare.delete_others, "remove what only DEST has");
  sync->add_flag("--size-only", command->compare.size_only, "do not compare times");
  add_copy_flags(*sync, *command);
  add_store_options(
      *sync, command->store, true,
      "  yard sync /data/shards s3://data/shards\n"
      "  yard sync s3://data/shards /data/shards --delete --dry-run\n"
      "Copied is what DEST lacks, has in another size, or has in an older version (by "
      "time of change; two buckets: by ETag).\n");
  sync->callback([command, &context] {
    context.action = [command, &context] { return run_sync(*command, context); };
  });
}

}  // namespace

void add_storage_copy_commands(CLI::App& app, Context& context) {
  add_cp(app, context);
  add_sync(app, context);
}

}  // namespace yard::app
