#include "channels/files_store.h"

#include <fmt/format.h>

#include <algorithm>

#include "storage/keys.h"

namespace yard::channels {

using storage::ObjectInfo;

Result<std::shared_ptr<FilesStore>> FilesStore::make(const std::vector<SourceFile>& files,
                                                     std::string url) {
  std::shared_ptr<FilesStore> store(new FilesStore(std::move(url)));
  for (const SourceFile& file : files) {
    YARD_TRY(storage::check_key(file.path));
    if (!store->files_.try_emplace(file.path, file).second)
      return Error{Code::kInvalidArgument, fmt::format("{}: two objects would become the file '{}'",
                                                       store->url_, file.path)};
  }
  for (const auto& [path, file] : store->files_) {
    const auto below = store->files_.lower_bound(path + "/");
    if (below != store->files_.end() && below->first.starts_with(path + "/"))
      return Error{Code::kInvalidArgument,
                   fmt::format("{}: '{}' would be a file and a folder", store->url_, path)};
  }
  return store;
}

Result<const SourceFile*> FilesStore::find(std::string_view key) const {
  const auto found = files_.find(key);
  if (found != files_.end()) return &found->second;
  return Error{Code::kNotFound, fmt::format("{}: names no '{}'", url_, key)};
}

Error FilesStore::read_only() const {
  return {Code::kInvalidArgument, url_ + ": what a manifest names is not written"};
}

Status FilesStore::get_range(std::string_view key, std::string_view etag, uint64_t offset,
                             std::span<std::byte> out) {
  YARD_ASSIGN(const SourceFile* file, find(key));
  return file->store->get_range(file->info.key, etag, offset, out);
}

Status FilesStore::get_range_to(std::string_view key, std::string_view etag, uint64_t offset,
                                uint64_t size_bytes, const storage::RangeSink& sink) {
  YARD_ASSIGN(const SourceFile* file, find(key));
  return file->store->get_range_to(file->info.key, etag, offset, size_bytes, sink);
}

Result<ObjectInfo> FilesStore::head(std::string_view key) {
  YARD_ASSIGN(const SourceFile* file, find(key));
  ObjectInfo info = file->info;
  info.key = key;
  return info;
}

Result<storage::ListPage> FilesStore::list(const storage::ListRequest& request) {
  YARD_TRY(storage::check_list_request(request));
  storage::PageBuilder page(request);
  for (auto it = files_.lower_bound(std::max(request.prefix, request.start_after));
       it != files_.end() && !page.done() && it->first.starts_with(request.prefix); ++it) {
    if (!page.wants(it->first)) continue;
    ObjectInfo info = it->second.info;
    info.key = it->first;
    page.add(std::move(info));
  }
  return page.take();
}

Result<ObjectInfo> FilesStore::put(std::string_view, std::span<const std::byte>,
                                   const storage::PutOptions&) {
  return read_only();
}

Result<std::unique_ptr<storage::Upload>> FilesStore::upload(std::string_view,
                                                            const storage::PutOptions&) {
  return read_only();
}

Result<ObjectInfo> FilesStore::copy(std::string_view, std::string_view,
                                    const storage::PutOptions&) {
  return read_only();
}

Status FilesStore::remove(std::string_view) {
  return read_only();
}

storage::StoreSpeed FilesStore::speed() const {
  return files_.empty() ? storage::StoreSpeed{} : files_.begin()->second.store->speed();
}

}  // namespace yard::channels
