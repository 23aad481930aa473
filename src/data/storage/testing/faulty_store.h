// FaultyStore: a store that fails on command, so that every path of failure has a test. Wraps a
// real implementation; production code never links it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "storage/object_store.h"

namespace yard::storage::testing {

enum class Method { kGetRange, kHead, kList, kPut, kUpload, kWrite, kCommit, kCopy, kRemove };

struct Call {
  uint64_t number = 0;  // 0-based, over all methods; of one thread's calls it is deterministic
  Method method{};
  std::string_view key;  // the prefix for kList
};

// Thread-safe as its inner store is.
class FaultyStore final : public ObjectStore {
 public:
  // Decides the fate of each call before the inner store sees it. Given the call's number, not a
  // random draw: a failing test must fail again when rerun.
  using Fate = std::function<Status(const Call& call)>;

  // `inner` must outlive this object and its uploads.
  // `is_remote`: what speed() says, whatever the inner store is.
  FaultyStore(ObjectStore& inner, Fate fate, bool is_remote = false)
      : inner_(inner), fate_(std::move(fate)), is_remote_(is_remote) {}

  Status get_range(std::string_view key, std::string_view etag, uint64_t offset,
                   std::span<std::byte> out) override {
    YARD_TRY(fate(Method::kGetRange, key));
    return inner_.get_range(key, etag, offset, out);
  }
  Status get_range_to(std::string_view key, std::string_view etag, uint64_t offset,
                      uint64_t size_bytes, const RangeSink& sink) override {
    YARD_TRY(fate(Method::kGetRange, key));
    return inner_.get_range_to(key, etag, offset, size_bytes, sink);
  }
  Result<ObjectInfo> head(std::string_view key) override {
    YARD_TRY(fate(Method::kHead, key));
    return inner_.head(key);
  }
  Result<ListPage> list(const ListRequest& request) override {
    YARD_TRY(fate(Method::kList, request.prefix));
    return inner_.list(request);
  }
  Result<ObjectInfo> put(std::string_view key, std::span<const std::byte> content,
                         const PutOptions& options) override {
    YARD_TRY(fate(Method::kPut, key));
    return inner_.put(key, content, options);
  }
  Result<std::unique_ptr<Upload>> upload(std::string_view key,
                                         const PutOptions& options = {}) override {
    YARD_TRY(fate(Method::kUpload, key));
    YARD_ASSIGN(std::unique_ptr<Upload> upload, inner_.upload(key, options));
    return std::unique_ptr<Upload>(
        std::make_unique<FaultyUpload>(*this, std::string(key), std::move(upload)));
  }
  Result<ObjectInfo> copy(std::string_view source, std::string_view key,
                          const PutOptions& options) override {
    YARD_TRY(fate(Method::kCopy, key));
    return inner_.copy(source, key, options);
  }
  Status remove(std::string_view key) override {
    YARD_TRY(fate(Method::kRemove, key));
    return inner_.remove(key);
  }
  std::string url() const override { return inner_.url(); }
  StoreSpeed speed() const override { return {.is_remote = is_remote_}; }

  uint64_t call_count() const { return calls_; }

 private:
  class FaultyUpload final : public Upload {
   public:
    FaultyUpload(FaultyStore& store, std::string key, std::unique_ptr<Upload> inner)
        : store_(store), key_(std::move(key)), inner_(std::move(inner)) {}
    Status write(std::span<const std::byte> bytes) override {
      YARD_TRY(store_.fate(Method::kWrite, key_));
      return inner_->write(bytes);
    }
    Result<ObjectInfo> commit() override {
      YARD_TRY(store_.fate(Method::kCommit, key_));
      return inner_->commit();
    }

   private:
    FaultyStore& store_;
    const std::string key_;
    const std::unique_ptr<Upload> inner_;
  };

  Status fate(Method method, std::string_view key) { return fate_({calls_++, method, key}); }

  ObjectStore& inner_;
  const Fate fate_;
  const bool is_remote_;
  std::atomic<uint64_t> calls_ = 0;
};

}  // namespace yard::storage::testing
