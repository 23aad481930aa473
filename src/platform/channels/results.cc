#include "channels/results.h"

#include <filesystem>
#include <set>

#include "channels/tar_tree.h"
#include "storage/directory_store.h"
#include "transfer/copier.h"

namespace yard::channels {

Status upload_archive(const std::vector<std::string>& folders, const std::string& url,
                      const ResultOptions& options) {
  YARD_ASSIGN(const storage::Location location, options.open(url));
  YARD_ASSIGN(auto upload, location.store->upload(location.key));
  ParallelGzip gzip(options.thread_count, [&](std::span<const std::byte> bytes) -> Status {
    if (options.stop.stopped()) return Error{Code::kCancelled, url + ": stopped"};
    return upload->write(bytes);
  });
  YARD_TRY(write_tar(folders, [&](std::span<const std::byte> bytes) { return gzip.write(bytes); }));
  YARD_TRY(gzip.finish());
  YARD_TRY(upload->commit());
  return Ok{};
}

Status upload_files(const std::vector<std::string>& folders, const std::string& url,
                    const ResultOptions& options) {
  YARD_ASSIGN(const storage::Location location, options.open(url));
  const std::string base =
      location.key.empty() || location.key.ends_with('/') ? location.key : location.key + "/";
  transfer::CopierOptions copier_options;
  copier_options.transfer.stop = options.stop;
  transfer::Copier copier(copier_options, {});
  std::set<std::string> taken;
  for (const std::string& folder : folders) {
    std::error_code error;
    if (!std::filesystem::is_directory(folder, error)) continue;
    YARD_ASSIGN(std::shared_ptr<storage::DirectoryStore> store,
                storage::DirectoryStore::open(folder));
    YARD_ASSIGN(const auto files, store->list_all(""));
    for (const storage::ObjectInfo& info : files)
      if (taken.insert(info.key).second)
        copier.add({.source = store,
                    .info = info,
                    .target_path = {},
                    .target = location.store,
                    .target_key = base + info.key});
  }
  return copier.finish();
}

}  // namespace yard::channels
