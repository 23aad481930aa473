// What the commands on stores share: their options, and the service that these mean.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "commands.h"
#include "storage/location.h"

namespace yard::app {

struct StoreOptions {
  std::string endpoint;
  std::string region;
  std::string profile;
  std::string address_style = "auto";
  bool anonymous = false;
  bool json = false;
  std::string memory = "256MiB";
};

// --endpoint, --region, --profile, --address-style, --anonymous, --json; --memory where
// `has_memory`. Sets the footer to `examples` and the exit codes.
void add_store_options(CLI::App& command, StoreOptions& options, bool has_memory,
                       const std::string& examples);

// upload_memory_bytes: of what --memory gives.
storage::S3Options s3_options(const StoreOptions& options, const Context& context,
                              uint64_t upload_memory_bytes);
Result<uint64_t> memory_bytes_of(const StoreOptions& options);

// A command's argument: a store and a key, prefix or nothing in it.
struct Place {
  std::string url;  // as it was given
  std::shared_ptr<storage::ObjectStore> store;
  std::string key;
  bool is_s3 = false;
  std::string root_path;  // of a directory: the folder that the store stands for

  std::string url_of(std::string_view key) const;  // in the manner the user wrote
  // For programs: a path from the root, which any command takes from any working directory.
  std::string whole_url_of(std::string_view key) const;
};
Result<Place> open_place(storage::Opener& opener, const std::string& url);

// Whether there are objects under it.
bool is_folder(const Place& place);
// More than "404" of an object that is not there: a bucket that does not exist, a folder.
Error why_missing(const Place& place, Error error);
// For people: control characters of names as "\n", "\x1b"; what reads lines takes --json.
std::string shown(std::string_view name);

// "dir/" of "dir"; "" and "dir/" stay.
std::string as_folder(std::string_view prefix);
// Everything under the place as a folder, page by page, the hidden files of broken copies left out.
// kInvalidArgument for a file. `left_out` is told what of a directory is no object, see
// DirectoryStore::list_all(); where it is empty, the log is.
using LeftOut = std::function<void(const Error& error)>;
Status visit_folder(const Place& place, const StopToken& stop,
                    const std::function<Status(storage::ObjectInfo)>& visit,
                    const LeftOut& left_out = {});

// One line; names need not be UTF-8, JSON must be.
void print_json_line(const Json& json);
std::string time_text(std::chrono::system_clock::time_point time);  // "2026-11-30T05:16:27Z"

// Removes the objects of `place`, or only tells of them; of many keys all are tried, and what fails
// is not told of. The first error, or kCancelled.
Status remove_and_tell(const Place& place, std::span<const std::string> keys, bool dry_run,
                       const StopToken& stop,
                       const std::function<void(const std::string& key)>& tell);

}  // namespace yard::app
