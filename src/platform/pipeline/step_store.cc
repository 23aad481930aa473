#include "pipeline/step_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <span>

#include "transfer/copier.h"

namespace yard::pipeline {
namespace {

constexpr std::string_view kManifest = "/manifest.json";
constexpr std::string_view kStep = "step-";

Result<std::vector<std::string>> keys_below(const storage::Location& folder) {
  YARD_ASSIGN(const auto objects, storage::list_all(*folder.store, folder.key));
  std::vector<std::string> keys;
  for (const storage::ObjectInfo& object : objects)
    keys.push_back(object.key.substr(folder.key.size()));
  return keys;
}

// Folders of whole ones, the oldest first. Steps have at least 8 digits; more digits are a larger
// number.
std::set<std::pair<size_t, std::string>> whole_checkpoints(const std::vector<std::string>& keys) {
  std::set<std::pair<size_t, std::string>> whole;
  for (const std::string& key : keys) {
    if (!key.starts_with(kStep) || !key.ends_with(kManifest)) continue;
    const std::string folder = key.substr(0, key.size() - kManifest.size());
    whole.emplace(folder.size(), folder);
  }
  return whole;
}

bool is_result(std::string_view key) {
  return !key.starts_with("output/checkpoints/") && !key.starts_with("output/best/");
}

}  // namespace

std::vector<std::string> newest_checkpoint(const std::vector<std::string>& keys) {
  const auto whole = whole_checkpoints(keys);
  std::vector<std::string> found;
  if (whole.empty()) return found;
  const std::string& newest = whole.rbegin()->second;
  for (const std::string& key : keys)
    if (key.starts_with(newest + "/") && !key.ends_with(kManifest)) found.push_back(key);
  found.push_back(newest + std::string(kManifest));
  return found;
}

std::vector<std::string> old_checkpoints(const std::vector<std::string>& keys, int kept) {
  const auto whole = whole_checkpoints(keys);
  std::vector<std::string> old;
  if (kept <= 0 || std::ssize(whole) < kept) return old;
  const auto& oldest_kept = *std::prev(whole.end(), kept);
  for (const std::string& key : keys) {
    const std::string folder = key.substr(0, key.find('/'));
    if (key.starts_with(kStep) && std::pair(folder.size(), folder) < oldest_kept)
      old.push_back(key);
  }
  // Without its manifest nobody takes what is left for a checkpoint.
  std::ranges::stable_partition(old,
                                [](const std::string& key) { return key.ends_with(kManifest); });
  return old;
}

Status put_object(storage::Opener& opener, const std::string& url, std::string_view text) {
  YARD_ASSIGN(const storage::Location location, opener.open(url));
  YARD_TRY(storage::put_text(*location.store, location.key, text));
  return Ok{};
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

Result<size_t> prune_checkpoints(storage::Opener& opener, const std::string& folder, int kept) {
  YARD_ASSIGN(const storage::Location location, opener.open(folder));
  YARD_ASSIGN(const auto keys, keys_below(location));
  std::vector<std::string> old = old_checkpoints(keys, kept);
  for (std::string& key : old) key.insert(0, location.key);
  const auto manifests = std::ranges::find_if_not(
      old, [](const std::string& key) { return key.ends_with(kManifest); });
  YARD_TRY(location.store->remove_all(std::span(old.begin(), manifests)));
  YARD_TRY(location.store->remove_all(std::span(manifests, old.end())));
  return old.size();
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
