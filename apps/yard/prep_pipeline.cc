// yard prep run|scan|listen|redrive|remove|status|describe: raw pictures into shards.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <utility>

#include "aws/aws_client.h"
#include "base/file.h"
#include "base/ids.h"
#include "base/units.h"
#include "pipeline/rank_launcher.h"
#include "prep/description.h"
#include "prep/prep_run.h"
#include "prep_commands.h"
#include "shards_common.h"
#include "storage/aws_settings.h"
#include "store_options.h"

namespace yard::app {
namespace {

namespace fs = std::filesystem;

struct PipelineOptions {
  StoreOptions store;
  std::string spec_path;
  std::string url;
  std::string contributor;
  std::vector<std::string> steps;
  std::string state;       // instead of the spec's
  std::string hosts_file;  // of a job: which of its hosts this is
  int writer = -1;
  int64_t workers = -1;
  bool follow = false;
  bool progress_lines = false;
};

// A folder that ends with its owner.
class WorkFolder {
 public:
  static Result<WorkFolder> make() {
    WorkFolder made;
    std::error_code error;
    made.path_ = fs::temp_directory_path(error) / ("yard-prep-" + random_name(12));
    if (error) return errno_error("the folder for temporary files", error.value());
    YARD_TRY(make_directories(made.path_));
    return made;
  }
  WorkFolder() = default;
  WorkFolder(WorkFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  WorkFolder& operator=(WorkFolder&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~WorkFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A spec and all that it names, opened.
struct Opened {
  prep::PrepSpec spec;
  prep::PrepPlaces places;
  WorkFolder folder;  // of a state that is in a store
};

Result<prep::PrepSpec> read_spec(const PipelineOptions& options) {
  YARD_ASSIGN(const std::string yaml, read_file(options.spec_path));
  YARD_ASSIGN(prep::PrepSpec spec, prep::parse_prep_spec(yaml, options.spec_path));
  if (options.workers >= 0) spec.workers = options.workers;
  if (!options.state.empty()) spec.state = options.state;
  for (const std::string& text : options.steps) {
    prep::StepSpec step;
    if (prep::is_step_url(text)) {
      step.url = step.name = text;
    } else {
      YARD_ASSIGN(step.command, prep::split_command(text));
      step.name = std::filesystem::path(step.command.front()).filename();
    }
    spec.steps.push_back(std::move(step));
  }
  if (!spec.name.empty()) return spec;
  spec.name = std::filesystem::path(options.spec_path).stem();
  const Status named = queue::check_queue_name(spec.name);
  if (!named)
    return Error{Code::kInvalidArgument,
                 options.spec_path + ": it needs a name: the file's cannot be that of a queue"};
  return spec;
}

std::string bucket_of(const Place& place) {
  constexpr std::string_view kScheme = "s3://";
  return place.is_s3 ? place.store->url().substr(kScheme.size()) : std::string();
}

std::string text_or(const Context& context, const char* name, const std::string& otherwise) {
  const auto found = context.env.find(name);
  return found == context.env.end() || found->second.empty() ? otherwise : found->second;
}

// The services as AWS's own clients would find them; `yard serve` has both under one address, of
// which a job knows that of the store.
Status connect(const PipelineOptions& options, const Context& context, prep::PrepPlaces& places) {
  YARD_ASSIGN(const storage::AwsSettings settings,
              storage::load_aws_settings(context.env, options.store.profile));
  if (!settings.credentials)
    return Error{Code::kInvalidArgument, "queue: sqs: there is no key to ask it with"};
  aws::AwsEndpoint s3;
  if (!settings.region.empty()) s3.region = settings.region;
  s3.credentials = *settings.credentials;
  s3.ca_path = settings.ca_bundle;
  const std::string told =
      options.store.endpoint.empty() ? settings.endpoint_url : options.store.endpoint;
  s3.url = told.empty() ? fmt::format("https://s3.{}.amazonaws.com", s3.region) : told;
  aws::AwsEndpoint sqs = s3;
  const std::string other =
      told.empty() ? fmt::format("https://sqs.{}.amazonaws.com", s3.region) : told;
  sqs.url = text_or(context, "AWS_ENDPOINT_URL_SQS", text_or(context, "AWS_ENDPOINT_URL", other));
  places.sqs = std::make_shared<aws::AwsClient>(sqs);
  places.s3 = std::make_shared<aws::AwsClient>(s3);
  return Ok{};
}

Status read_hosts(const PipelineOptions& options, prep::PrepPlaces& places) {
  places.writer = options.writer;
  if (options.hosts_file.empty()) return Ok{};
  YARD_ASSIGN(const std::string text, read_file(options.hosts_file));
  YARD_ASSIGN(const Json json, parse_json(text, options.hosts_file));
  YARD_ASSIGN(const pipeline::HostPlace place, pipeline::host_place_from(json, options.hosts_file));
  places.writer = places.share_index = place.index;
  places.share_count = int(place.hosts.size());
  return Ok{};
}

Status open_state(storage::Opener& opener, const PipelineOptions& options, const Context& context,
                  Opened& opened) {
  const prep::PrepSpec& spec = opened.spec;
  YARD_TRY(read_hosts(options, opened.places));
  opened.places.env = context.env;
  if (spec.state.starts_with("s3://")) {
    YARD_ASSIGN(const Place place, open_place(opener, spec.state));
    YARD_ASSIGN(opened.folder, WorkFolder::make());
    opened.places.state_dir = opened.folder.path();
    opened.places.journal = place.store;
    opened.places.journal_prefix = place.key.empty() ? "" : as_folder(place.key);
  } else {
    opened.places.state_dir =
        spec.state.empty() ? context.yard_home + "/prep/" + spec.name : spec.state;
  }
  return spec.queue_sqs.empty() ? Ok{} : connect(options, context, opened.places);
}

// Without source and output.
Result<Opened> open_state_only(storage::Opener& opener, const PipelineOptions& options,
                               const Context& context) {
  Opened opened;
  YARD_ASSIGN(opened.spec, read_spec(options));
  YARD_TRY(open_state(opener, options, context, opened));
  return opened;
}

Result<Opened> open_all(storage::Opener& opener, const PipelineOptions& options,
                        const Context& context) {
  YARD_ASSIGN(Opened opened, open_state_only(opener, options, context));
  YARD_ASSIGN(const Place source, open_place(opener, opened.spec.source));
  if (!source.is_s3 && !source.key.empty())
    return Error{Code::kNotFound, opened.spec.source + ": no such folder"};
  YARD_ASSIGN(const TargetFolder output, open_target_folder(opener, opened.spec.output));
  prep::PrepPlaces& places = opened.places;
  places.source = source.store;
  places.source_prefix = source.key.empty() ? "" : as_folder(source.key);
  places.bucket = bucket_of(source);
  places.output = output.store;
  places.output_prefix = output.prefix == "/" ? "" : output.prefix;
  YARD_TRY(make_directories(places.state_dir));
  return opened;
}

storage::Opener opener_of(const PipelineOptions& options, const Context& context) {
  storage::S3Options s3 = s3_options(options.store, context, uint64_t{128} << 20);
  s3.stop = {};  // a run that is stopped still packs what it has
  return storage::Opener(std::move(s3));
}

Json to_json(const prep::PrepReport& report) {
  return {{"taken", report.done.taken},     {"packed", report.done.packed},
          {"dropped", report.done.dropped}, {"rejected", report.done.rejected},
          {"shards", report.done.shards},   {"repeated", report.repeated},
          {"scanned", report.scanned},      {"accepted", report.accepted}};
}

Json to_json(const queue::QueueCounts& counts) {
  return {
      {"visible", counts.visible}, {"in_flight", counts.in_flight}, {"delayed", counts.delayed}};
}

// For who reads a job's log: a line a second at most.
class ProgressLines {
 public:
  explicit ProgressLines(bool wanted) : wanted_(wanted), mutex_(std::make_shared<std::mutex>()) {}
  void tell(const std::string& text) {
    const auto now = std::chrono::steady_clock::now();
    const std::lock_guard lock(*mutex_);
    if (!wanted_ || now - told_at_ < std::chrono::seconds(1)) return;
    told_at_ = now;
    fmt::print("progress: {}\n", text);
    std::fflush(stdout);
  }

 private:
  bool wanted_;
  std::shared_ptr<std::mutex> mutex_;  // the run tells on any of its threads
  std::chrono::steady_clock::time_point told_at_{};
};

Status run_run(const PipelineOptions& options, const Context& context) {
  storage::Opener opener = opener_of(options, context);
  YARD_ASSIGN(const Opened opened, open_all(opener, options, context));
  const bool is_shown =
      context.stdout_is_terminal && !options.store.json && !options.progress_lines;
  prep::PrepRunOptions run;
  run.follow = options.follow;
  run.progress = [is_shown, lines = ProgressLines(options.progress_lines)](
                     const prep::PrepProgress& at) mutable {
    const std::string text =
        fmt::format("{} taken, {} packed, {} dropped, {} rejected, {} shards, {} wait", at.taken,
                    at.packed, at.dropped, at.rejected, at.shards, at.waiting);
    if (is_shown) fmt::print(stderr, "\r\x1b[Kpreparing: {}", text);
    lines.tell(text);
  };
  const auto report = prep::run_prep(opened.spec, opened.places, run, context.stop);
  if (is_shown) fmt::print(stderr, "\n");
  if (!report) return report.error();
  if (options.store.json) {
    print_json_line(to_json(*report));
    return Ok{};
  }
  fmt::print(
      "{} pictures taken in: {} packed into {} shards, {} dropped by the rules, {} to the "
      "dead letters\n",
      report->done.taken, report->done.packed, report->done.shards, report->done.dropped,
      report->done.rejected);
  return Ok{};
}

Status run_scan(const PipelineOptions& options, const Context& context) {
  storage::Opener opener = opener_of(options, context);
  YARD_ASSIGN(const Opened opened, open_all(opener, options, context));
  std::string prefix = opened.places.source_prefix;
  if (!options.url.empty()) {
    YARD_ASSIGN(const Place place, open_place(opener, options.url));
    const bool is_inside =
        place.is_s3 && bucket_of(place) == opened.places.bucket && place.key.starts_with(prefix);
    if (!is_inside)
      return Error{Code::kInvalidArgument,
                   fmt::format("{}: is not in the source, {}", options.url, opened.spec.source)};
    prefix = place.key;
  }
  YARD_ASSIGN(const prep::ScanCounts counts,
              prep::scan_into_queue(opened.spec, opened.places, prefix, context.stop));
  if (options.store.json)
    print_json_line(
        {{"pictures", counts.pictures}, {"accepted", counts.accepted}, {"others", counts.others}});
  else
    fmt::print("{} pictures, {} of them new to the queue; {} other objects\n", counts.pictures,
               counts.accepted, counts.others);
  return Ok{};
}

Status run_listen(const PipelineOptions& options, const Context& context) {
  storage::Opener opener = opener_of(options, context);
  YARD_ASSIGN(const Opened opened, open_all(opener, options, context));
  if (opened.spec.queue_sqs.empty())
    return Error{Code::kInvalidArgument, options.spec_path + ": queue: it has no 'sqs'"};
  YARD_ASSIGN(const auto messages, prep::open_messages(opened.spec, opened.places));
  fmt::print(
      "the queue '{}' is there{}\n", messages->name(),
      opened.spec.queue_notifications ? ", and told of what comes to " + opened.spec.source : "");
  return Ok{};
}

Status run_redrive(const PipelineOptions& options, const Context& context) {
  storage::Opener opener = opener_of(options, context);
  YARD_ASSIGN(const Opened opened, open_state_only(opener, options, context));
  YARD_ASSIGN(const int64_t count, prep::redrive(opened.spec, opened.places));
  if (options.store.json)
    print_json_line({{"redriven", count}});
  else
    fmt::print("{} dead letters are back in the queue\n", count);
  return Ok{};
}

Status run_remove(const PipelineOptions& options, const Context& context) {
  storage::Opener opener = opener_of(options, context);
  YARD_ASSIGN(const Opened opened, open_all(opener, options, context));
  YARD_ASSIGN(
      const prep::RemovalReport report,
      prep::remove_contributor(opened.spec, opened.places, options.contributor, context.stop));
  if (options.store.json)
    print_json_line({{"shards", report.shard_count}, {"samples", report.sample_count}});
  else
    fmt::print("{} samples removed, {} shards written anew\n", report.sample_count,
               report.shard_count);
  return Ok{};
}

void print_status(const prep::PrepSpec& spec, const prep::PrepStatus& status) {
  fmt::print("{}: {} samples in {} shards, {}\n", spec.name, status.ledger.packed,
             status.ledger.shard_count, format_size_bytes(uint64_t(status.ledger.shard_bytes)));
  if (status.ledger.removed > 0) fmt::print("  removed on request: {}\n", status.ledger.removed);
  for (const auto& [reason, count] : status.ledger.dropped)
    fmt::print("  dropped, {}: {}\n", reason, count);
  fmt::print("  waiting: {}, in work: {}, dead letters: {}\n",
             status.queue.visible + status.queue.delayed, status.queue.in_flight,
             status.dead.visible + status.dead.in_flight);
}

Status run_status(const PipelineOptions& options, const Context& context) {
  storage::Opener opener = opener_of(options, context);
  YARD_ASSIGN(const Opened opened, open_state_only(opener, options, context));
  YARD_ASSIGN(const prep::PrepStatus status, prep::prep_status(opened.spec, opened.places));
  if (options.store.json)
    print_json_line({{"packed", status.ledger.packed},
                     {"removed", status.ledger.removed},
                     {"dropped", status.ledger.dropped},
                     {"shard_count", status.ledger.shard_count},
                     {"shard_bytes", status.ledger.shard_bytes},
                     {"queue", to_json(status.queue)},
                     {"dead", to_json(status.dead)}});
  else
    print_status(opened.spec, status);
  return Ok{};
}

Status run_dead(const PipelineOptions& options, const Context& context) {
  storage::Opener opener = opener_of(options, context);
  YARD_ASSIGN(const Opened opened, open_state_only(opener, options, context));
  YARD_ASSIGN(const auto letters, prep::dead_letters(opened.spec, opened.places));
  for (const prep::DeadLetter& letter : letters) {
    if (options.store.json)
      print_json_line({{"key", letter.key}, {"reason", letter.reason}});
    else
      fmt::print("{}\t{}\n", letter.key, letter.reason);
  }
  return Ok{};
}

Status run_describe(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    YARD_ASSIGN(const std::string bytes, read_file(path));
    const std::span content(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
    auto measured = prep::measure(content, {});
    if (!measured) return std::move(measured).error().while_(path);
    prep::Description description;
    description.add(measured->measures);
    for (const prep::TextField& field : prep::read_embedded(content)) description.add(field);
    Json json = description.to_json();
    json["source"] = path;
    print_json_line(json);
  }
  return Ok{};
}

using Run = Status (*)(const PipelineOptions&, const Context&);

CLI::App* add_command(CLI::App& prep, Context& context, const char* name, const char* what,
                      const char* example, Run run,
                      const std::shared_ptr<PipelineOptions>& options) {
  CLI::App* command = prep.add_subcommand(name, what);
  command->add_option("SPEC.yaml", options->spec_path, "see docs/prep.md")->required();
  add_store_options(*command, options->store, false, example);
  command->callback([options, run, &context] {
    context.action = [options, run, &context] { return run(*options, context); };
  });
  return command;
}

}  // namespace

void add_prep_pipeline_commands(CLI::App& prep, Context& context) {
  const auto options = [] { return std::make_shared<PipelineOptions>(); };
  auto run = options();
  CLI::App* command = add_command(prep, context, "run", "pack what the queue holds into shards",
                                  "  yard prep run emoji.yaml --follow --workers 8", run_run, run);
  command->add_flag("--follow", run->follow, "go on with what arrives, until it is stopped");
  command->add_option("--workers", run->workers, "threads; 0: one a core")
      ->check(CLI::Range(0, 1024));
  command->add_option("--state", run->state,
                      "folder or s3:// URL of queue and ledger, not the spec's");
  auto* writer = command
                     ->add_option("--writer", run->writer,
                                  "which of the runs that share a state in a store this is")
                     ->check(CLI::Range(0, prep::Ledger::kWritersMax - 1));
  command
      ->add_option("--hosts-file", run->hosts_file,
                   "a job's resourceconfig.json: its hosts share the work")
      ->excludes(writer);
  command->add_flag("--progress-lines", run->progress_lines, "a line a second: for a job's log");
  command->add_option("--step", run->steps,
                      "what sees each picture: a program (JSON lines), or a service, http://...");
  auto scan = options();
  command = add_command(prep, context, "scan", "put the source's pictures into the queue",
                        "  yard prep scan emoji.yaml s3://raw/emoji/new", run_scan, scan);
  command->add_option("URL", scan->url, "only what lies under it");
  add_command(prep, context, "listen", "make the queue, to which notifications go from now on",
              "  yard prep listen emoji.yaml", run_listen, options());
  add_command(prep, context, "redrive", "try the dead letters once more",
              "  yard prep redrive emoji.yaml", run_redrive, options());
  auto remove = options();
  command = add_command(prep, context, "remove", "take a contributor's samples out of all shards",
                        "  yard prep remove emoji.yaml --contributor ada", run_remove, remove);
  command->add_option("--contributor", remove->contributor, "as in the samples' json")->required();
  add_command(prep, context, "status", "what was packed, dropped, and waits",
              "  yard prep status emoji.yaml --json", run_status, options());
  add_command(prep, context, "dead", "the dead letters and why they are",
              "  yard prep dead emoji.yaml", run_dead, options());
  auto paths = std::make_shared<std::vector<std::string>>();
  command = prep.add_subcommand("describe", "all that is known of pictures, as JSON lines");
  command->add_option("FILE", *paths)->required();
  command->callback(
      [paths, &context] { context.action = [paths] { return run_describe(*paths); }; });
}

}  // namespace yard::app
