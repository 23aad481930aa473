// MemoryStore: objects in this process's memory, for tests and for small things made on the way.
#pragma once

#include <map>
#include <mutex>

#include "storage/object_store.h"

namespace yard::storage {

// Thread-safe. kExhausted when the contents would take more than `size_bytes_max` together.
class MemoryStore final : public ObjectStore {
 public:
  explicit MemoryStore(uint64_t size_bytes_max = UINT64_MAX) : size_bytes_max_(size_bytes_max) {}

  Status get_range(std::string_view key, std::string_view etag, uint64_t offset,
                   std::span<std::byte> out) override;
  Result<ObjectInfo> head(std::string_view key) override;
  Result<ListPage> list(const ListRequest& request) override;
  Result<ObjectInfo> put(std::string_view key, std::span<const std::byte> content,
                         const PutOptions& options) override;
  Result<std::unique_ptr<Upload>> upload(std::string_view key,
                                         const PutOptions& options = {}) override;
  Result<ObjectInfo> copy(std::string_view source, std::string_view key,
                          const PutOptions& options) override;
  Status remove(std::string_view key) override;
  std::string url() const override { return "memory:"; }

 private:
  class MemoryUpload;
  struct Object {
    std::string content;
    uint64_t version = 0;
    std::chrono::system_clock::time_point modified{};
  };
  using Objects = std::map<std::string, Object, std::less<>>;
  static ObjectInfo info_of(const Objects::value_type& object);

  const uint64_t size_bytes_max_;
  std::mutex mutex_;
  Objects objects_;
  uint64_t size_bytes_ = 0;
  uint64_t version_last_ = 0;
};

}  // namespace yard::storage
