// yard ls, cat, sha256, rm: looking into stores and taking from them.
#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>

#include "net/checksums.h"
#include "net/encoding.h"
#include "storage/parallel_get.h"
#include "store_options.h"

namespace yard::app {
namespace {

using storage::ListPage;
using storage::ListRequest;
using storage::ObjectInfo;

struct UrlsCommand {
  StoreOptions store;
  std::vector<std::string> urls;
  bool recursive = false;
  bool dry_run = false;
  bool quiet = false;
};

// A command on several URLs: all are tried; the first error is the outcome, the others are told.
Status for_each_url(const UrlsCommand& command, const Context& context,
                    const std::function<Status(const std::string& url)>& run) {
  std::optional<Error> first;
  for (const std::string& url : command.urls) {
    if (context.stop.stopped()) return Error{Code::kCancelled, "stopped"};
    auto done = run(url);
    if (done) continue;
    if (first) tell_error(done.error(), command.store.json);
    if (!first) first = std::move(done).error();
  }
  if (first) return *std::move(first);
  return Ok{};
}

storage::TransferOptions transfer_options(uint64_t memory_bytes, const Context& context) {
  return {.memory_bytes_max = memory_bytes, .stop = context.stop};
}

// ---- ls

void print_object(const Place& place, const ObjectInfo& info, std::string_view name, bool json) {
  if (json)
    return print_json_line({{"url", place.whole_url_of(info.key)},
                            {"key", info.key},
                            {"size_bytes", info.size_bytes},
                            {"modified", time_text(info.modified)},
                            {"etag", info.etag}});
  fmt::print("{} {:>14} {}\n", time_text(info.modified), info.size_bytes, shown(name));
}

void print_folder(const Place& place, const std::string& prefix, std::string_view name, bool json) {
  if (json) return print_json_line({{"url", place.whole_url_of(prefix)}, {"prefix", prefix}});
  fmt::print("{:>20} {:>14} {}\n", "", "folder", shown(name));
}

Status list_buckets(storage::Opener& opener, bool json) {
  YARD_ASSIGN(const auto service, opener.s3());
  YARD_ASSIGN(const auto names, service->list_buckets());
  for (const std::string& name : names) {
    if (json)
      print_json_line({{"url", "s3://" + name + "/"}, {"bucket", name}});
    else
      fmt::print("s3://{}/\n", name);
  }
  return Ok{};
}

// One level, or all of them; how many entries there were.
Result<size_t> list_place(const Place& place, const std::string& prefix, const UrlsCommand& command,
                          const Context& context) {
  ListRequest request{.prefix = prefix, .delimiter = command.recursive ? "" : "/"};
  size_t count = 0;
  // Names are shown as they stand in their folder, or from the bucket's root.
  const size_t cut = command.recursive ? 0 : prefix.rfind('/') + 1;
  do {
    if (context.stop.stopped()) return Error{Code::kCancelled, "stopped"};
    YARD_ASSIGN(const ListPage page, place.store->list(request));
    // "dir" alone means the folder, as it does for a path.
    if (!command.recursive && count == 0 && page.objects.empty() && page.next_start_after.empty() &&
        page.common_prefixes.size() == 1 && page.common_prefixes[0] == prefix + "/")
      return list_place(place, prefix + "/", command, context);
    for (const std::string& folder : page.common_prefixes)
      print_folder(place, folder, std::string_view(folder).substr(cut), command.store.json);
    for (const ObjectInfo& info : page.objects)
      print_object(place, info, std::string_view(info.key).substr(cut), command.store.json);
    count += page.objects.size() + page.common_prefixes.size();
    request.start_after = page.next_start_after;
  } while (!request.start_after.empty());
  return count;
}

Status run_ls(const UrlsCommand& command, const Context& context) {
  storage::Opener opener(s3_options(command.store, context, 0));
  return for_each_url(command, context, [&](const std::string& url) -> Status {
    if (url == "s3://") return list_buckets(opener, command.store.json);
    YARD_ASSIGN(const Place place, open_place(opener, url));
    if (!place.is_s3 && !place.key.empty()) {
      YARD_ASSIGN(const ObjectInfo info, place.store->head(place.key));
      print_object(place, info, info.key, command.store.json);
      return Ok{};
    }
    YARD_ASSIGN(const size_t count, list_place(place, place.key, command, context));
    if (count > 0 || place.key.empty() || !place.is_s3) return Ok{};
    return Error{Code::kNotFound, url + ": no object and no folder"};
  });
}

// ---- cat, sha256

// One line of sha256sum's: a name with a line's end or a backslash in it is escaped, and the line
// begins with a backslash.
std::string sum_line(const std::string& sum, std::string_view name) {
  std::string escaped;
  for (const char c : name) {
    if (c == '\n')
      escaped += "\\n";
    else if (c == '\r')
      escaped += "\\r";
    else if (c == '\\')
      escaped += "\\\\";
    else
      escaped += c;
  }
  return fmt::format("{}{}  {}\n", escaped == name ? "" : "\\", sum, escaped);
}

Result<ObjectInfo> head_of(const Place& place) {
  if (place.key.empty() || place.key.ends_with('/'))
    return Error{Code::kInvalidArgument, place.url + ": names a folder, not an object"};
  auto head = place.store->head(place.key);
  if (!head) return why_missing(place, std::move(head).error());
  return head;
}

Status run_cat(const UrlsCommand& command, const Context& context) {
  YARD_ASSIGN(const uint64_t memory_bytes, memory_bytes_of(command.store));
  storage::Opener opener(s3_options(command.store, context, 0));
  const auto print = [](std::span<const std::byte> bytes) -> Status {
    if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size()) return Ok{};
    return errno_error("standard output", errno);
  };
  return for_each_url(command, context, [&](const std::string& url) -> Status {
    YARD_ASSIGN(const Place place, open_place(opener, url));
    YARD_ASSIGN(const ObjectInfo info, head_of(place));
    YARD_TRY(
        storage::read_in_order(*place.store, info, print, transfer_options(memory_bytes, context)));
    if (std::fflush(stdout) != 0) return errno_error("standard output", errno);
    return Ok{};
  });
}

Status run_sha256(const UrlsCommand& command, const Context& context) {
  YARD_ASSIGN(const uint64_t memory_bytes, memory_bytes_of(command.store));
  storage::Opener opener(s3_options(command.store, context, 0));
  return for_each_url(command, context, [&](const std::string& url) -> Status {
    YARD_ASSIGN(const Place place, open_place(opener, url));
    YARD_ASSIGN(const ObjectInfo info, head_of(place));
    Checksum sum(ChecksumAlgorithm::kSha256);
    const auto add = [&](std::span<const std::byte> bytes) -> Status {
      sum.update(bytes);
      return Ok{};
    };
    YARD_TRY(
        storage::read_in_order(*place.store, info, add, transfer_options(memory_bytes, context)));
    if (command.store.json)
      print_json_line({{"url", place.whole_url_of(place.key)},
                       {"sha256", sum.hex()},
                       {"size_bytes", info.size_bytes}});
    else
      fmt::print("{}", sum_line(sum.hex(), url));
    return Ok{};
  });
}

// ---- rm

Status remove_keys(const Place& place, std::span<const std::string> keys,
                   const UrlsCommand& command, const Context& context) {
  return remove_and_tell(place, keys, command.dry_run, context.stop, [&](const std::string& key) {
    if (command.store.json)
      print_json_line({{"url", place.whole_url_of(key)}, {"removed", !command.dry_run}});
    else if (!command.quiet || command.dry_run)
      fmt::print("{}: {}\n", command.dry_run ? "would remove" : "remove", shown(place.url_of(key)));
  });
}

// The folders that have nothing in them any more, and the folder itself.
void remove_empty_folders(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code failed;  // somebody else may be at work there too: what is left, is left
  std::vector<fs::path> folders{folder};
  for (fs::recursive_directory_iterator each(folder, failed); !failed && each != end(each);
       each.increment(failed))
    if (each->symlink_status(failed).type() == fs::file_type::directory)
      folders.push_back(each->path());
  std::ranges::sort(folders, std::greater<>(),
                    [](const fs::path& path) { return path.native().size(); });
  for (const fs::path& each : folders) ::rmdir(each.c_str());
}

Error folder_error(const std::string& url) {
  return {Code::kInvalidArgument,
          url + ": is a folder or bucket; --recursive removes all that is in it"};
}

Status run_rm(const UrlsCommand& command, const Context& context) {
  storage::Opener opener(s3_options(command.store, context, 0));
  return for_each_url(command, context, [&](const std::string& url) -> Status {
    YARD_ASSIGN(const Place place, open_place(opener, url));
    if (command.recursive && !(!place.is_s3 && !place.key.empty())) {
      std::vector<std::string> keys;
      YARD_TRY(visit_folder(place, context.stop, [&](ObjectInfo info) -> Status {
        keys.push_back(std::move(info.key));
        return Ok{};
      }));
      if (keys.empty() && place.is_s3 && !place.key.empty())
        return Error{Code::kNotFound, url + ": no object under it"};
      YARD_TRY(remove_keys(place, keys, command, context));
      if (!place.is_s3 && !command.dry_run) remove_empty_folders(place.root_path);
      return Ok{};
    }
    if (place.key.empty()) return folder_error(url);
    // S3 says nothing about a key that is not there; a person wants to know.
    if (const auto info = place.store->head(place.key); !info)
      return is_folder(place) ? folder_error(url) : why_missing(place, info.error());
    return remove_keys(place, std::span(&place.key, 1), command, context);
  });
}

using Run = Status (*)(const UrlsCommand&, const Context&);

struct UrlsKind {
  std::string name;
  std::string help;
  std::string examples;
  Run run;
  bool has_memory = false;
};

std::shared_ptr<UrlsCommand> add_urls_command(CLI::App& app, Context& context, const UrlsKind& kind,
                                              CLI::App*& added) {
  auto command = std::make_shared<UrlsCommand>();
  added = app.add_subcommand(kind.name, kind.help);
  added->add_option("URL", command->urls, "s3://bucket/key or a path")->required();
  add_store_options(*added, command->store, kind.has_memory, kind.examples);
  added->callback([command, run = kind.run, &context] {
    context.action = [command, run, &context] { return run(*command, context); };
  });
  return command;
}

}  // namespace

void add_storage_read_commands(CLI::App& app, Context& context) {
  CLI::App* added = nullptr;
  auto ls = add_urls_command(app, context,
                             {"ls", "what is in a bucket or folder",
                              "  yard ls s3://                      all buckets\n"
                              "  yard ls s3://data/shards/          one folder\n"
                              "  yard ls --recursive --json s3://data\n",
                              run_ls},
                             added);
  added->add_flag("-r,--recursive", ls->recursive, "all levels");
  add_urls_command(app, context,
                   {"cat", "write objects to the standard output",
                    "  yard cat s3://data/notes.txt\n"
                    "  yard cat s3://data/big.tar --memory 1GiB | tar t\n",
                    run_cat, true},
                   added);
  add_urls_command(
      app, context,
      {"sha256", "the SHA-256 of objects, as sha256sum writes it",
       "  yard sha256 s3://data/model.safetensors model.safetensors\n", run_sha256, true},
      added);
  auto rm = add_urls_command(app, context,
                             {"rm", "remove objects or files",
                              "  yard rm s3://data/old.tar\n"
                              "  yard rm --recursive --dry-run s3://data/tmp/\n",
                              run_rm},
                             added);
  added->add_flag("-r,--recursive", rm->recursive, "everything under a folder");
  added->add_flag("-q,--quiet", rm->quiet, "only errors");
  added->add_flag("--dry-run", rm->dry_run, "only say what would be removed, also with --quiet");
}

}  // namespace yard::app
