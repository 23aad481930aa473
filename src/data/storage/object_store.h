// ObjectStore: bytes by key. The only way any module reaches stored data.
//
// Implementations: S3Store for a bucket, DirectoryStore for a local folder, MemoryStore for tests;
// testing/faulty_store.h wraps any of them and injects failures by call number. location.h opens
// the one that a URL names, parallel_get.h reads large objects by several requests at once.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace yard::storage {

struct ObjectInfo {
  std::string key;
  uint64_t size_bytes = 0;
  std::string etag;                                  // changes whenever the content changes
  std::chrono::system_clock::time_point modified{};  // when it was put; the epoch when unknown
  // Of the whole content, where head() was told one: "CRC32C:sOO8/Q==", as in checksums.h.
  std::string checksum;
};

struct ListRequest {
  std::string prefix;
  // Keys strictly greater than this one; when it is itself a common prefix, past all keys under it.
  std::string start_after;
  std::string delimiter;  // non-empty: keys are cut after it and given as common_prefixes
  uint32_t object_count_max = 1000;  // 1..1000 objects and common prefixes per page
};

struct ListPage {
  std::vector<ObjectInfo> objects;           // in byte order of their keys
  std::vector<std::string> common_prefixes;  // in byte order
  std::string next_start_after;              // for the next page; empty at the end
};

struct PutOptions {
  bool if_absent = false;  // kInvalidArgument "... already exists" when there is such an object
  // upload() only: how much will be written, as far as it is known. A guess costs nothing but
  // speed.
  uint64_t size_bytes_hint = 0;
};

// How a store answers, by what it has measured so far; choose_part_bytes() in parallel_get.h turns
// it into requests.
struct StoreSpeed {
  std::chrono::microseconds latency{0};  // from a request to its first byte
  double stream_bytes_per_second = 0;    // of one request, once it flows; 0 before it is measured
  bool is_remote = false;                // many requests at once pay off
};

// Fills all of `into` with the bytes from `offset` on. Thread-safe.
using RangeReader = std::function<Status(uint64_t offset, std::span<std::byte> into)>;

// An object being written piece by piece; invisible until commit(). Not thread-safe. Destroying an
// uncommitted upload discards it.
class Upload {
 public:
  virtual ~Upload() = default;
  virtual Status write(std::span<const std::byte> bytes) = 0;  // kExhausted: store full
  // write() of the next `size_bytes`, which `read` gives from offset 0 on, in pieces that the CPU's
  // cache holds. An upload over a network sends them straight from there: it reads some of them
  // after write_from() has returned, until commit() has or it is destroyed, and each more than
  // once, on threads that others wait for, so `read` is of local data. Its errors are passed on,
  // here or by commit(). `on_written` (may be empty) is told how many bytes went on, by any thread.
  virtual Status write_from(uint64_t size_bytes, const RangeReader& read,
                            const std::function<void(uint64_t)>& on_written);
  // Makes the object visible, whole and durable, at once. Call at most once, last.
  virtual Result<ObjectInfo> commit() = 0;
};

// Takes the bytes of a range as they come, `position` counted from its start. An error ends it.
using RangeSink = std::function<Status(uint64_t position, std::span<const std::byte> bytes)>;

// Thread-safe: every method may be called from any thread at any time.
// Keys: 1..1024 bytes of UTF-8, '/' separates; "." or ".." as a part, or a leading '/', is
// kInvalidArgument. Codes besides those named: kUnavailable and kDeadlineExceeded (retry helps).
class ObjectStore {
 public:
  virtual ~ObjectStore() = default;

  // Fills `out` with the bytes [offset, offset + out.size()) of the object.
  // All or nothing: a short read is an Error, never a partly filled buffer that counts.
  //
  // `etag` pins the version: if the object changed since, fails with kCorrupt rather than mixing
  // two versions. Empty means any version. kNotFound; kInvalidArgument: range past the end.
  virtual Status get_range(std::string_view key, std::string_view etag, uint64_t offset,
                           std::span<std::byte> out) = 0;

  // get_range() without memory for the whole range: `sink` gets its bytes in order, by calls one
  // after the other, on any thread, and must not use this store. A request that is repeated starts
  // at position 0 again, with the same bytes where `etag` pins them. Nothing counts before Ok.
  virtual Status get_range_to(std::string_view key, std::string_view etag, uint64_t offset,
                              uint64_t size_bytes, const RangeSink& sink);

  // get_range() of one version of an object again and again: what one of them costs beside its
  // bytes is spent once. Not longer than the store. Errors as get_range(), here or later.
  virtual Result<RangeReader> reader(std::string_view key, std::string_view etag);

  // The whole object that head() or list() described, into `out` of its size; what the store holds
  // as its checksum is verified. Errors as get_range() with its etag.
  virtual Status get_object(const ObjectInfo& info, std::span<std::byte> out) {
    return get_range(info.key, info.etag, 0, out);
  }

  // Metadata without content; kNotFound if there is no such object.
  virtual Result<ObjectInfo> head(std::string_view key) = 0;

  // One page of keys, in byte order, so that all ranks that list the same prefix see the same list.
  virtual Result<ListPage> list(const ListRequest& request) = 0;
  // Every object under `prefix`, in order: all pages of list(), or what costs less.
  virtual Result<std::vector<ObjectInfo>> list_all(std::string_view prefix);

  // The whole object at once, atomically: readers see the old content, the new, or none, never
  // half.
  virtual Result<ObjectInfo> put(std::string_view key, std::span<const std::byte> content,
                                 const PutOptions& options) = 0;
  virtual Result<std::unique_ptr<Upload>> upload(std::string_view key,
                                                 const PutOptions& options = {}) = 0;
  // The object `source` once more under `key`, atomically, without its bytes passing through this
  // process where the store can do that. kNotFound: no such source.
  virtual Result<ObjectInfo> copy(std::string_view source, std::string_view key,
                                  const PutOptions& options) = 0;

  // Ok also when there was none.
  virtual Status remove(std::string_view key) = 0;
  // Removes them in as few requests as the store knows; fails with the first error, after trying
  // all.
  virtual Status remove_all(std::span<const std::string> keys);

  // For messages: "s3://bucket", "file:///data" or "memory:".
  virtual std::string url() const = 0;
  virtual StoreSpeed speed() const { return {}; }
};

// ObjectStore::list_all().
Result<std::vector<ObjectInfo>> list_all(ObjectStore& store, std::string_view prefix);
// head() and the whole content. kExhausted when over `size_bytes_max`.
Result<std::string> get_all(ObjectStore& store, std::string_view key,
                            uint64_t size_bytes_max = uint64_t{1} << 30);
Result<ObjectInfo> put_text(ObjectStore& store, std::string_view key, std::string_view content,
                            const PutOptions& options = {});

// `key` of one store as `target_key` of another: ObjectStore::copy() where they are the same, else
// read and written, `buffer_bytes` at a time. The source is pinned: kCorrupt when it changes.
Result<ObjectInfo> copy_between(ObjectStore& source, std::string_view key, ObjectStore& target,
                                std::string_view target_key, const PutOptions& options = {},
                                size_t buffer_bytes = size_t{8} << 20);

// What a URL or path given by a user names: a store and a key (or prefix) in it.
struct Location {
  std::shared_ptr<ObjectStore> store;
  std::string key;  // empty for the store's root
};
// The path that a path or "file://" URL (RFC 8089) means. kInvalidArgument for any other URL.
Result<std::string> path_of_url(std::string_view url);
// Both take a path or "file://" URL; the directory must exist (kNotFound).
Result<Location> open_directory(std::string_view url);  // store rooted at the directory, empty key
Result<Location> open_object(std::string_view url);     // store rooted at the parent, key = name

}  // namespace yard::storage
