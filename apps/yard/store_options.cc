#include "store_options.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/units.h"
#include "storage/directory_store.h"
#include "transfer/partial_file.h"

namespace yard::app {
namespace {

constexpr uint64_t kMemoryBytesMin = 32 << 20;

constexpr int kLocalAttempts = 5;  // over a second at most
constexpr std::string_view kGatewayAway =
    "; is the gateway running? `yard s3 serve DIR` starts one, and eval \"$(yard s3 env DIR)\" "
    "points this shell to it (of `yard serve`: eval \"$(yard env)\")";
constexpr std::string_view kKeysRefused =
    "; the keys of a gateway come by eval \"$(yard s3 env DIR)\", those of `yard serve` by eval "
    "\"$(yard env)\"";

constexpr std::string_view kExitCodes =
    "Exit codes: 0 done; 2 wrong arguments, refused keys or permissions; 3 not found; 4 an object "
    "changed or is corrupt; 5 disk or memory full; 6 the store cannot be reached; 7 it is too "
    "slow; "
    "8 stopped by Ctrl-C. When some objects fail the others are still done, and the code is that "
    "of the first failure.\n"
    "Keys and region: as AWS's tools find them (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "
    "AWS_REGION, AWS_PROFILE, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, ~/.aws, container, machine); "
    "of a gateway of `yard s3 serve DIR` by `eval \"$(yard s3 env DIR)\"`.";

}  // namespace

void add_store_options(CLI::App& command, StoreOptions& options, bool has_memory,
                       const std::string& examples) {
  command.add_option("--endpoint", options.endpoint, "of the S3 service, as http://127.0.0.1:9000");
  command.add_option("--region", options.region, "of the bucket");
  command.add_option("--profile", options.profile, "of ~/.aws/config and ~/.aws/credentials");
  command
      .add_option("--address-style", options.address_style,
                  "where the bucket's name goes: into the path or before the host")
      ->check(CLI::IsMember({"auto", "path", "virtual"}))
      ->capture_default_str();
  command.add_flag("--anonymous", options.anonymous, "do not sign requests");
  command.add_flag("--json", options.json, "one JSON object a line");
  if (has_memory)
    command.add_option("--memory", options.memory, "for the buffers of all transfers, at most")
        ->capture_default_str();
  command.footer(fmt::format("Examples:\n{}\n{}", examples, kExitCodes));
}

Result<uint64_t> memory_bytes_of(const StoreOptions& options) {
  YARD_ASSIGN(const uint64_t bytes, parse_size_bytes(options.memory));
  if (bytes >= kMemoryBytesMin) return bytes;
  return Error{Code::kInvalidArgument, fmt::format("--memory {}: needs {} at least", options.memory,
                                                   format_size_bytes(kMemoryBytesMin))};
}

storage::S3Options s3_options(const StoreOptions& options, const Context& context,
                              uint64_t upload_memory_bytes) {
  storage::S3Options s3;
  s3.endpoint = options.endpoint;
  s3.region = options.region;
  s3.profile = options.profile;
  s3.anonymous = options.anonymous;
  s3.environment = context.env;
  s3.stop = context.stop;
  s3.any_key = true;
  s3.local_attempts_max = kLocalAttempts;
  s3.local_advice = {std::string(kGatewayAway), std::string(kKeysRefused)};
  s3.upload_memory_bytes = upload_memory_bytes;
  if (options.address_style == "path") s3.style = storage::S3AddressStyle::kPath;
  if (options.address_style == "virtual") s3.style = storage::S3AddressStyle::kVirtualHost;
  return s3;
}

std::string Place::url_of(std::string_view in_store) const {
  if (is_s3) return fmt::format("{}/{}", store->url(), in_store);
  return (std::filesystem::path(root_path) / in_store).string();
}

std::string Place::whole_url_of(std::string_view in_store) const {
  const std::string url = url_of(in_store);
  return is_s3 ? url : std::filesystem::absolute(url).lexically_normal().string();
}

Result<Place> open_place(storage::Opener& opener, const std::string& url) {
  YARD_ASSIGN(storage::Location location, opener.open(url));
  Place place{.url = url, .store = std::move(location.store), .key = std::move(location.key)};
  place.is_s3 = storage::is_s3_url(url);
  if (place.is_s3) return place;
  // A file URL's path is the store's; a path stays as it was written.
  YARD_ASSIGN(std::string path, storage::path_of_url(url));
  place.root_path = place.key.empty() ? path : std::filesystem::path(path).parent_path().string();
  return place;
}

bool is_folder(const Place& place) {
  const auto page = place.store->list({.prefix = as_folder(place.key), .object_count_max = 1});
  return page && !page->objects.empty();
}

Error why_missing(const Place& place, Error error) {
  if (error.code != Code::kNotFound || !place.is_s3) return error;
  // HEAD says 404 for a key, a folder and a bucket alike.
  const auto page = place.store->list({.prefix = as_folder(place.key), .object_count_max = 1});
  if (!page) return page.error();
  if (page->objects.empty()) return error;
  return {Code::kInvalidArgument, place.url + ": is a folder, not an object"};
}

std::string shown(std::string_view name) {
  std::string text;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n')
      text += "\\n";
    else if (byte < 0x20 || byte == 0x7f)
      text += fmt::format("\\x{:02x}", byte);
    else
      text += c;
  }
  return text;
}

std::string as_folder(std::string_view prefix) {
  return std::string(prefix) + (prefix.empty() || prefix.ends_with('/') ? "" : "/");
}

Status visit_folder(const Place& place, const StopToken& stop,
                    const std::function<Status(storage::ObjectInfo)>& visit,
                    const LeftOut& left_out) {
  if (!place.is_s3 && !place.key.empty()) {
    // open() found no such folder.
    YARD_TRY(place.store->head(place.key));
    return Error{Code::kInvalidArgument, place.url + ": is a file, not a folder"};
  }
  if (!place.is_s3) {
    // In one pass: each page of a folder would have to read and sort it again.
    auto& store = dynamic_cast<storage::DirectoryStore&>(*place.store);
    storage::DirectoryStore::LeftOut tell;
    if (left_out)
      tell = [&](const std::string& name, const std::string& why) {
        left_out({Code::kInvalidArgument, fmt::format("{}: {}", place.url_of(name), why)});
      };
    YARD_ASSIGN(auto objects, store.list_all(as_folder(place.key), tell));
    for (storage::ObjectInfo& info : objects) {
      if (stop.stopped()) return Error{Code::kCancelled, "stopped"};
      if (!info.key.ends_with(transfer::kPartialSuffix)) YARD_TRY(visit(std::move(info)));
    }
    return Ok{};
  }
  storage::ListRequest request{.prefix = as_folder(place.key)};
  do {
    if (stop.stopped()) return Error{Code::kCancelled, "stopped"};
    YARD_ASSIGN(storage::ListPage page, place.store->list(request));
    for (storage::ObjectInfo& info : page.objects) YARD_TRY(visit(std::move(info)));
    request.start_after = std::move(page.next_start_after);
  } while (!request.start_after.empty());
  return Ok{};
}

void print_json_line(const Json& json) {
  fmt::print("{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string time_text(std::chrono::system_clock::time_point time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(time)));
}

Status remove_and_tell(const Place& place, std::span<const std::string> keys, bool dry_run,
                       const StopToken& stop,
                       const std::function<void(const std::string& key)>& tell) {
  constexpr size_t kKeysOfARequest = 1000;
  const size_t step = place.is_s3 ? kKeysOfARequest : 1;
  std::optional<Error> first;
  while (!keys.empty()) {
    if (stop.stopped()) return Error{Code::kCancelled, "stopped"};
    const auto some = keys.first(std::min(keys.size(), step));
    keys = keys.subspan(some.size());
    if (Status removed = dry_run ? Status(Ok{}) : place.store->remove_all(some); !removed) {
      if (!first) first = std::move(removed).error();
      continue;
    }
    for (const std::string& key : some) tell(key);
  }
  if (first) return *first;
  return Ok{};
}

}  // namespace yard::app
