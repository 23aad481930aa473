#include "pipeline/step_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "transfer/copier.h"

namespace yard::pipeline {
namespace {

constexpr std::string_view kManifest = "/manifest.json";

Result<std::vector<std::string>> keys_below(const storage::Location& folder) {
  YARD_ASSIGN(const auto objects, storage::list_all(*folder.store, folder.key));
  std::vector<std::string> keys;
  for (const storage::ObjectInfo& object : objects)
    keys.push_back(object.key.substr(folder.key.size()));
  return keys;
}

bool is_result(std::string_view key) {
  return !key.starts_with("output/checkpoints/") && !key.starts_with("output/best/");
}

}  // namespace

std::vector<std::string> newest_checkpoint(const std::vector<std::string>& keys) {
  std::string newest;
  for (const std::string& key : keys) {
    if (!key.starts_with("step-") || !key.ends_with(kManifest)) continue;
    // Steps have at least 8 digits; more digits are a larger number.
    const std::string folder = key.substr(0, key.size() - kManifest.size());
    if (std::pair(folder.size(), folder) > std::pair(newest.size(), newest)) newest = folder;
  }
  std::vector<std::string> found;
  if (newest.empty()) return found;
  for (const std::string& key : keys)
    if (key.starts_with(newest + "/") && !key.ends_with(kManifest)) found.push_back(key);
  found.push_back(newest + std::string(kManifest));
  return found;
}

Status put_object(storage::Opener& opener, const std::string& url, std::string_view text) {
  YARD_ASSIGN(const storage::Location location, opener.open(url));
  YARD_TRY(storage::put_text(*location.store, location.key, text));
  return Ok{};
}

Result<bool> has_objects(storage::Opener& opener, const std::string& url) {
  YARD_ASSIGN(const storage::Location folder, opener.open(url));
  YARD_ASSIGN(const storage::ListPage page,
              folder.store->list({.prefix = folder.key, .object_count_max = 1}));
  return !page.objects.empty();
}

Status carry_checkpoint(storage::Opener& opener, const std::string& from, const std::string& to) {
  YARD_ASSIGN(const storage::Location source, opener.open(from));
  YARD_ASSIGN(const storage::Location target, opener.open(to));
  YARD_ASSIGN(const auto present, keys_below(target));
  if (!newest_checkpoint(present).empty()) return Ok{};
  YARD_ASSIGN(const auto keys, keys_below(source));
  const std::vector<std::string> files = newest_checkpoint(keys);
  if (files.empty()) return Error{Code::kNotFound, from + ": no checkpoint to go on from"};
  for (const std::string& file : files)
    YARD_TRY(
        storage::copy_between(*source.store, source.key + file, *target.store, target.key + file));
  return Ok{};
}

Status fetch_run(storage::Opener& opener, const std::string& url, const std::string& dir,
                 const StopToken& stop) {
  YARD_ASSIGN(const storage::Location source, opener.open(url));
  YARD_ASSIGN(const auto objects, storage::list_all(*source.store, source.key));
  transfer::CopierOptions options;
  options.transfer.stop = stop;
  transfer::Copier copier(options, {});
  for (const storage::ObjectInfo& object : objects) {
    const std::string key = object.key.substr(source.key.size());
    if (!key.empty() && is_result(key))
      copier.add({.source = source.store,
                  .info = object,
                  .target_path = dir + "/" + key,
                  .target = nullptr,
                  .target_key = {}});
  }
  return copier.finish();
}

}  // namespace yard::pipeline
