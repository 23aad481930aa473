#include "storage/memory_store.h"

#include <fmt/format.h>

#include <cstring>

#include "storage/keys.h"

namespace yard::storage {
namespace {

Error not_found(std::string_view key) {
  return {Code::kNotFound, fmt::format("memory:{}: no such object", key)};
}

}  // namespace

class MemoryStore::MemoryUpload final : public Upload {
 public:
  MemoryUpload(MemoryStore& store, std::string_view key, const PutOptions& options)
      : store_(store), key_(key), options_(options) {}
  Status write(std::span<const std::byte> bytes) override {
    content_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (content_.size() <= store_.size_bytes_max_) return Ok{};
    return Error{Code::kExhausted, fmt::format("memory:{}: store full", key_)};
  }
  Result<ObjectInfo> commit() override {
    return store_.put(key_, std::as_bytes(std::span(content_)), options_);
  }

 private:
  MemoryStore& store_;
  const std::string key_;
  const PutOptions options_;
  std::string content_;
};

ObjectInfo MemoryStore::info_of(const Objects::value_type& object) {
  return {object.first, object.second.content.size(), std::to_string(object.second.version),
          object.second.modified};
}

Status MemoryStore::get_range(std::string_view key, std::string_view etag, uint64_t offset,
                              std::span<std::byte> out) {
  YARD_TRY(check_key(key));
  std::lock_guard lock(mutex_);
  const auto it = objects_.find(key);
  if (it == objects_.end()) return not_found(key);
  if (!etag.empty() && etag != info_of(*it).etag)
    return Error{Code::kCorrupt, fmt::format("memory:{}: changed while it was read", key)};
  const std::string& content = it->second.content;
  if (offset > content.size() || out.size() > content.size() - offset)
    return Error{Code::kInvalidArgument,
                 fmt::format("memory:{}: range of {} bytes at {} runs past its {} bytes", key,
                             out.size(), offset, content.size())};
  if (!out.empty()) std::memcpy(out.data(), content.data() + offset, out.size());
  return Ok{};
}

Result<ObjectInfo> MemoryStore::head(std::string_view key) {
  YARD_TRY(check_key(key));
  std::lock_guard lock(mutex_);
  const auto it = objects_.find(key);
  if (it == objects_.end()) return not_found(key);
  return info_of(*it);
}

Result<ListPage> MemoryStore::list(const ListRequest& request) {
  YARD_TRY(check_list_request(request));
  PageBuilder page(request);
  std::lock_guard lock(mutex_);
  for (auto it = objects_.lower_bound(std::max(request.prefix, request.start_after));
       it != objects_.end() && !page.done() && it->first.starts_with(request.prefix); ++it)
    if (page.wants(it->first)) page.add(info_of(*it));
  return page.take();
}

Result<ObjectInfo> MemoryStore::put(std::string_view key, std::span<const std::byte> content,
                                    const PutOptions& options) {
  YARD_TRY(check_key(key));
  std::string copy(reinterpret_cast<const char*>(content.data()), content.size());
  std::lock_guard lock(mutex_);
  const auto it = objects_.find(key);
  if (it != objects_.end() && options.if_absent)
    return Error{Code::kInvalidArgument, fmt::format("memory:{}: already exists", key)};
  const uint64_t others = size_bytes_ - (it == objects_.end() ? 0 : it->second.content.size());
  if (copy.size() > size_bytes_max_ - others)
    return Error{Code::kExhausted, fmt::format("memory:{}: store full", key)};
  size_bytes_ = others + copy.size();
  Object object{std::move(copy), ++version_last_, std::chrono::system_clock::now()};
  return info_of(*objects_.insert_or_assign(std::string(key), std::move(object)).first);
}

Result<std::unique_ptr<Upload>> MemoryStore::upload(std::string_view key,
                                                    const PutOptions& options) {
  YARD_TRY(check_key(key));
  return std::unique_ptr<Upload>(std::make_unique<MemoryUpload>(*this, key, options));
}

Result<ObjectInfo> MemoryStore::copy(std::string_view source, std::string_view key,
                                     const PutOptions& options) {
  YARD_TRY(check_key(source));
  std::string content;
  {
    std::lock_guard lock(mutex_);
    const auto it = objects_.find(source);
    if (it == objects_.end()) return not_found(source);
    content = it->second.content;
  }
  return put(key, std::as_bytes(std::span(content)), options);
}

Status MemoryStore::remove(std::string_view key) {
  YARD_TRY(check_key(key));
  std::lock_guard lock(mutex_);
  const auto it = objects_.find(key);
  if (it == objects_.end()) return Ok{};
  size_bytes_ -= it->second.content.size();
  objects_.erase(it);
  return Ok{};
}

}  // namespace yard::storage
