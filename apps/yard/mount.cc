// yard mount, unmount: objects as a read-only directory.
#include "mount/mount.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/exit_code.h"
#include "base/file.h"
#include "base/log.h"
#include "base/open_files.h"
#include "base/units.h"
#include "mount/mount_health.h"
#include "mount/mount_point.h"
#include "store_options.h"

namespace yard::app {
namespace {

constexpr std::chrono::seconds kStatsPeriod{1};

struct MountCommand {
  StoreOptions store;
  std::string url;
  std::string directory;
  std::string memory = "auto";
  std::string share;
  std::string by = "key";
  std::string cache;
  std::string cache_size = "10GiB";
  std::string ttl = "60s";
  std::string wait = "5m";
  std::string drain = "30s";
  std::string stats;
  std::string log;
  bool no_passthrough = false;
  bool allow_other = false;
  bool background = false;
  bool foreground = false;
};

struct UnmountCommand {
  std::string directory;
  bool lazy = false;
  bool force = false;
};

Result<mount::MountOptions> options_of(const MountCommand& command) {
  mount::MountOptions options;
  options.mount_point = command.directory;
  if (command.memory != "auto") {
    YARD_ASSIGN(options.memory_bytes, parse_size_bytes(command.memory));
  }
  if (!command.share.empty()) {
    YARD_ASSIGN(options.share, mount::parse_share(command.share));
  }
  if (!command.cache.empty())
    options.cache_folder = std::filesystem::absolute(command.cache).lexically_normal().string();
  YARD_ASSIGN(options.cache_bytes_max, parse_size_bytes(command.cache_size));
  YARD_ASSIGN(options.metadata_ttl, parse_duration(command.ttl));
  YARD_ASSIGN(options.store_wait_max, parse_duration(command.wait));
  YARD_ASSIGN(options.drain_max, parse_duration(command.drain));
  options.passthrough = !command.no_passthrough;
  options.allow_other = command.allow_other;
  return options;
}

Status write_stats(const MountCommand& command, const mount::Mount& mount) {
  if (command.stats.empty()) return Ok{};
  Json json = Json::object();
  for (const auto& [name, value] : mount.counters().snapshot()) json[name] = value;
  json["mount_memory_bytes"] = mount.memory_used_bytes();
  json["mount_held_names"] = mount.held_name_count();
  return write_file_atomic(command.stats, json.dump() + "\n");
}

// `note`: what may surprise about it.
using Ready = std::function<void(const std::string& note)>;

// Until it ends; `ready` is called once files can be opened.
Status serve(const MountCommand& command, const Context& context, const Ready& ready) {
  YARD_ASSIGN(mount::MountOptions options, options_of(command));
  const StopSource store_stop;
  storage::S3Options s3 = s3_options(command.store, context, 0);
  s3.stop = store_stop.token();  // a signal drains first
  storage::Opener opener(std::move(s3));
  YARD_ASSIGN(const Place place, open_place(opener, command.url));
  options.prefix = as_folder(place.key);
  options.store_stop = store_stop;
  options.stop = context.stop;
  YARD_ASSIGN(const auto mount, mount::Mount::start(place.store, std::move(options)));
  YARD_TRY(write_stats(command, *mount));
  ready(mount->was_empty() ? " (there is nothing under it yet)" : "");
  const StopToken ended = mount->ended();
  bool was_told = false;
  while (!context.stop.stopped() && !ended.wait_for(std::chrono::milliseconds(0))) {
    context.stop.wait_for(kStatsPeriod);
    // A full disk must not take the files from their readers.
    const Status written = write_stats(command, *mount);
    if (!written && !was_told) log_warning("{}", written.error().message);
    was_told = !written;
  }
  if (context.stop.stopped()) log_info("{}: unmounting", command.directory);
  YARD_TRY(mount->stop());
  return write_stats(command, *mount);
}

// ---- in the background

// What the child tells: a code (0: ready) and a message.
void tell(int fd, int code, const std::string& message) {
  const std::string text = fmt::format("{} {}", code, message);
  static_cast<void>(::write(fd, text.data(), text.size()));
}

Result<std::string> read_answer(int fd) {
  std::string text(4096, '\0');
  const ssize_t got = ::read(fd, text.data(), text.size());
  if (got <= 0) return Error{Code::kInternal, "the mount's process ended without a word"};
  text.resize(static_cast<size_t>(got));
  const int code = std::atoi(text.c_str());
  if (code == 0) return text.substr(text.find(' ') + 1);
  for (int each = 0; each <= static_cast<int>(Code::kInternal); ++each)
    if (exit_code_of(static_cast<Code>(each)) == code)
      return Error{static_cast<Code>(each), text.substr(text.find(' ') + 1)};
  return Error{Code::kInternal, text};
}

Status leave_terminal(const MountCommand& command) {
  ::setsid();
  const std::string path = command.log.empty() ? "/dev/null" : command.log;
  const int out = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  const int in = ::open("/dev/null", O_RDONLY);
  if (out < 0 || in < 0) return errno_error(path, errno);
  ::dup2(in, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(out, STDERR_FILENO);
  return Ok{};
}

// Before any thread is started.
Status serve_in_background(const MountCommand& command, const Context& context,
                           const Ready& ready) {
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) return errno_error("pipe", errno);
  UniqueFd read_end(pipe[0]), write_end(pipe[1]);
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child < 0) return errno_error("fork", errno);
  if (child > 0) {
    write_end.reset();
    YARD_ASSIGN(const std::string note, read_answer(read_end.get()));
    ready(note);
    return Ok{};
  }
  read_end.reset();
  const auto told = [&write_end](const std::string& note) {
    tell(write_end.get(), 0, note);
    write_end.reset();
  };
  Status done = leave_terminal(command);
  if (done) done = serve(command, context, told);
  if (!done && write_end.valid())
    tell(write_end.get(), exit_code_of(done.error().code), done.error().message);
  return done;
}

// `yard mount` alone.
Status run_list(const MountCommand& command) {
  YARD_ASSIGN(const auto mounts, mount::list_mounts());
  for (const mount::ListedMount& mounted : mounts) {
    if (command.store.json)
      print_json_line({{"directory", mounted.path},
                       {"url", mounted.source},
                       {"state", mount::to_string(mounted.health)}});
    else
      fmt::print("{} on {}: {}\n", mounted.source, mounted.path, mount::to_string(mounted.health));
  }
  return Ok{};
}

Status run_mount(const MountCommand& command, const Context& context) {
  if (command.url.empty()) return run_list(command);
  if (command.directory.empty())
    return Error{Code::kInvalidArgument, "yard mount URL DIR: the directory is missing"};
  raise_open_files_max();
  const auto ready = [&](const std::string& note) {
    fmt::print("mounted {} at {}{}; {}\n", command.url, command.directory, note,
               command.background ? fmt::format("'yard unmount {}' ends it", command.directory)
                                  : "Ctrl-C unmounts");
    std::fflush(stdout);
  };
  if (command.background) return serve_in_background(command, context, ready);
  return serve(command, context, ready);
}

Status run_unmount(const UnmountCommand& command) {
  // Not canonical(): it would ask a process that may be dead.
  std::filesystem::path path = std::filesystem::absolute(command.directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  std::error_code error;
  const auto parent = std::filesystem::canonical(path.parent_path(), error);
  if (error) return errno_error(command.directory, error.value());
  const std::string point = (parent / path.filename()).string();
  YARD_ASSIGN(const auto mounted, mount::mounted_at(point));
  if (!mounted || mounted->type != "fuse.yard")
    return Error{Code::kInvalidArgument, point + ": no mount of yard is there"};
  const auto mode = command.force  ? mount::DetachMode::kByForce
                    : command.lazy ? mount::DetachMode::kLazily
                                   : mount::DetachMode::kIfIdle;
  Status detached = mount::detach_mount(point, mode);
  if (detached || mode != mount::DetachMode::kIfIdle) return detached;
  YARD_ASSIGN(const auto health, mount::ask_mount(point));
  if (health != mount::MountHealth::kSilent) return detached;
  return Error{Code::kUnavailable,
               point +
                   ": files in it are open, and its process is stopped or hangs; --force takes "
                   "it off and ends their reading with an error"};
}

void add_mount(CLI::App& app, Context& context) {
  auto options = std::make_shared<MountCommand>();
  CLI::App* command = app.add_subcommand("mount", "objects as a read-only directory that streams");
  command->add_option("URL", options->url,
                      "s3://bucket/prefix, or a folder; without it the mounts that there are and "
                      "whether they answer are listed");
  command->add_option("DIR", options->directory, "an existing directory");
  command
      ->add_option("--memory", options->memory,
                   "for the bytes of all files; auto: an eighth of the machine's")
      ->capture_default_str();
  command->add_option("--shard", options->share,
                      "INDEX/COUNT: show this host's share, whole objects");
  command->add_option("--by", options->by, "how objects are dealt out: in turn, by key")
      ->check(CLI::IsMember({"key"}))
      ->capture_default_str();
  command->add_option("--cache", options->cache, "keep what was read in this folder");
  command->add_option("--cache-size", options->cache_size)->capture_default_str();
  command->add_flag("--no-passthrough", options->no_passthrough,
                    "read cached files through this process, checking them each time");
  command->add_option("--ttl", options->ttl, "how long a listing is believed")
      ->capture_default_str();
  command->add_option("--wait", options->wait, "how long readers wait for a store that is away")
      ->capture_default_str();
  command->add_option("--drain", options->drain, "how long open files are waited for at the end")
      ->capture_default_str();
  command->add_flag("--allow-other", options->allow_other, "other users may read, too");
  command->add_option("--stats", options->stats,
                      "keep this file up to date with the counters, as JSON");
  CLI::Option* background =
      command->add_flag("--background", options->background, "return once files can be opened");
  command->add_flag("--foreground", options->foreground, "stay until it is unmounted (the default)")
      ->excludes(background);
  command->add_option("--log", options->log, "where a mount in the background writes")
      ->needs(background);
  add_store_options(
      *command, options->store, false,
      "  yard mount s3://pictures/train /data\n"
      "  yard mount s3://pictures/train /data --shard 0/4 --memory 2GiB --background\n"
      "  yard mount                             what is mounted, and whether it answers\n"
      "  yard unmount /data");
  command->callback([options, &context] {
    context.action = [options, &context] { return run_mount(*options, context); };
  });
}

void add_unmount(CLI::App& app, Context& context) {
  auto options = std::make_shared<UnmountCommand>();
  CLI::App* command = app.add_subcommand("unmount", "take a mount off its directory");
  command->add_option("DIR", options->directory)->required();
  command->add_flag("--lazy", options->lazy, "also while files are open; they go on until closed");
  command
      ->add_flag("--force", options->force,
                 "whatever its process does; who reads in it gets an error")
      ->excludes("--lazy");
  command->callback(
      [options, &context] { context.action = [options] { return run_unmount(*options); }; });
}

}  // namespace

void add_mount_commands(CLI::App& app, Context& context) {
  add_mount(app, context);
  add_unmount(app, context);
}

}  // namespace yard::app
