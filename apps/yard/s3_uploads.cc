// yard s3 uploads: what killed uploads left on a server.
#include <fmt/format.h>

#include <cstdio>

#include "base/clock.h"
#include "base/units.h"
#include "storage/s3_unfinished.h"
#include "store_options.h"

namespace yard::app {
namespace {

using storage::UnfinishedUpload;

struct UploadsCommand {
  StoreOptions store;
  std::string url;
  std::string older_than;
  bool abort = false;
};

void print_upload(const UploadsCommand& command, const std::string& bucket,
                  const UnfinishedUpload& upload) {
  const std::string url = fmt::format("s3://{}/{}", bucket, upload.key);
  if (command.store.json)
    return print_json_line({{"url", url},
                            {"upload_id", upload.id},
                            {"begun", time_text(upload.begun)},
                            {"aborted", command.abort}});
  if (command.abort)
    fmt::print("abort: {} of {}\n", url, time_text(upload.begun));
  else
    fmt::print("{} {} {}\n", time_text(upload.begun), url, upload.id);
}

Status run_uploads(const UploadsCommand& command, const Context& context) {
  storage::Opener opener(s3_options(command.store, context, 0));
  YARD_ASSIGN(const Place place, open_place(opener, command.url));
  const auto* store = dynamic_cast<const storage::S3Store*>(place.store.get());
  if (store == nullptr)
    return Error{Code::kInvalidArgument, command.url + ": is no s3://bucket[/prefix]"};
  auto latest = Clock::Wall::max();
  if (!command.older_than.empty()) {
    auto age = parse_duration(command.older_than);
    if (!age) return std::move(age).error().while_("--older-than");
    latest = Clock::real().wall_now() - *age;
  }
  YARD_ASSIGN(const auto service, opener.s3());
  YARD_ASSIGN(const auto uploads, storage::list_unfinished(*service, store->bucket(), place.key));
  std::optional<Error> first;
  for (const UnfinishedUpload& upload : uploads) {
    if (context.stop.stopped()) return Error{Code::kCancelled, "stopped"};
    if (upload.begun > latest) continue;
    const Status done =
        command.abort ? storage::abort_unfinished(*service, store->bucket(), upload) : Status(Ok{});
    if (done)
      print_upload(command, store->bucket(), upload);
    else if (!first)
      first = done.error();
  }
  if (first) return *first;
  return Ok{};
}

}  // namespace

void add_s3_uploads_command(CLI::App& group, Context& context) {
  auto command = std::make_shared<UploadsCommand>();
  CLI::App* added = group.add_subcommand(
      "uploads", "list or abort the unfinished uploads of a bucket, which take room unseen");
  added->add_option("URL", command->url, "s3://bucket or s3://bucket/prefix")->required();
  added->add_flag("--abort", command->abort, "remove them with their parts");
  added->add_option("--older-than", command->older_than,
                    "only those begun so long ago, as 24h; spares uploads that are under way");
  add_store_options(*added, command->store, false,
                    "  yard s3 uploads s3://data\n"
                    "  yard s3 uploads s3://data --older-than 24h --abort\n");
  added->callback([command, &context] {
    context.action = [command, &context] { return run_uploads(*command, context); };
  });
}

}  // namespace yard::app
