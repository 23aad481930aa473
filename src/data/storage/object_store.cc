#include "storage/object_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>

#include "storage/directory_store.h"
#include "storage/keys.h"

namespace yard::storage {
namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// RFC 3986, section 2.1; nullopt for a '%' that no two hexadecimal digits follow.
std::optional<std::string> percent_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex_value(text[i + 1]), low = hex_value(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    decoded += char(high * 16 + low);
    i += 2;
  }
  return decoded;
}

}  // namespace

Status ObjectStore::get_range_to(std::string_view key, std::string_view etag, uint64_t offset,
                                 uint64_t size_bytes, const RangeSink& sink) {
  // Small enough to be in the CPU's cache still when the sink gets it.
  constexpr uint64_t kPieceBytes = 256 << 10;
  const auto buffer =
      std::make_unique_for_overwrite<std::byte[]>(std::min(size_bytes, kPieceBytes));
  uint64_t position = 0;
  do {
    const std::span<std::byte> piece(buffer.get(), std::min(size_bytes - position, kPieceBytes));
    YARD_TRY(get_range(key, etag, offset + position, piece));
    YARD_TRY(sink(position, piece));
    position += piece.size();
  } while (position < size_bytes);
  return Ok{};
}

Status ObjectStore::remove_all(std::span<const std::string> keys) {
  std::optional<Error> first;
  for (const std::string& key : keys)
    if (auto removed = remove(key); !removed && !first) first = std::move(removed).error();
  if (first) return *std::move(first);
  return Ok{};
}

Result<std::vector<ObjectInfo>> list_all(ObjectStore& store, std::string_view prefix) {
  return store.list_all(prefix);
}

Result<std::vector<ObjectInfo>> ObjectStore::list_all(std::string_view prefix) {
  std::vector<ObjectInfo> objects;
  ListRequest request{.prefix = std::string(prefix)};
  do {
    YARD_ASSIGN(ListPage page, list(request));
    std::ranges::move(page.objects, std::back_inserter(objects));
    request.start_after = std::move(page.next_start_after);
  } while (!request.start_after.empty());
  return objects;
}

Result<std::string> get_all(ObjectStore& store, std::string_view key, uint64_t size_bytes_max) {
  YARD_ASSIGN(const ObjectInfo info, store.head(key));
  if (info.size_bytes > size_bytes_max)
    return Error{Code::kExhausted, fmt::format("{}/{}: {} bytes, more than the limit of {}",
                                               store.url(), key, info.size_bytes, size_bytes_max)};
  std::string content(info.size_bytes, '\0');
  YARD_TRY(store.get_object(info, std::as_writable_bytes(std::span(content))));
  return content;
}

Result<ObjectInfo> put_text(ObjectStore& store, std::string_view key, std::string_view content,
                            const PutOptions& options) {
  return store.put(key, std::as_bytes(std::span(content)), options);
}

Result<RangeReader> ObjectStore::reader(std::string_view key, std::string_view etag) {
  return RangeReader([this, key = std::string(key), etag = std::string(etag)](
                         uint64_t offset, std::span<std::byte> into) {
    return get_range(key, etag, offset, into);
  });
}

Status Upload::write_from(uint64_t size_bytes, const RangeReader& read,
                          const std::function<void(uint64_t)>& on_written) {
  constexpr uint64_t kPieceBytes = 256 << 10;
  std::vector<std::byte> buffer(std::min(size_bytes, kPieceBytes));
  for (uint64_t at = 0; at < size_bytes; at += buffer.size()) {
    const auto piece = std::span(buffer).first(std::min<uint64_t>(size_bytes - at, buffer.size()));
    YARD_TRY(read(at, piece));
    YARD_TRY(write(piece));
    if (on_written) on_written(piece.size());
  }
  return Ok{};
}

Result<ObjectInfo> copy_between(ObjectStore& source, std::string_view key, ObjectStore& target,
                                std::string_view target_key, const PutOptions& options,
                                size_t buffer_bytes) {
  YARD_CHECK(buffer_bytes > 0);
  if (&source == &target) return target.copy(key, target_key, options);
  YARD_ASSIGN(const ObjectInfo info, source.head(key));
  PutOptions upload_options = options;
  upload_options.size_bytes_hint = info.size_bytes;
  if (info.size_bytes <= buffer_bytes) {
    std::vector<std::byte> buffer(info.size_bytes);
    YARD_TRY(source.get_object(info, buffer));
    return target.put(target_key, buffer, options);
  }
  YARD_ASSIGN(const auto upload, target.upload(target_key, upload_options));
  std::vector<std::byte> buffer(buffer_bytes);
  for (uint64_t at = 0; at < info.size_bytes; at += buffer.size()) {
    buffer.resize(std::min<uint64_t>(buffer.size(), info.size_bytes - at));
    YARD_TRY(source.get_range(key, info.etag, at, buffer));
    YARD_TRY(upload->write(buffer));
  }
  return upload->commit();
}

Result<std::string> path_of_url(std::string_view url) {
  const size_t scheme_end = url.find("://");
  if (url.empty()) return Error{Code::kInvalidArgument, "an empty path was given"};
  if (scheme_end == url.npos) return std::string(url);
  const auto bad = [&](std::string_view why) {
    return Error{Code::kInvalidArgument, fmt::format("'{}': {}", url, why)};
  };
  if (url.substr(0, scheme_end) != "file")
    return bad("is no s3://bucket/key (in small letters), no file:///path and no path");
  std::string_view rest = url.substr(scheme_end + 3);
  if (rest.starts_with("localhost/")) rest.remove_prefix(9);
  if (!rest.starts_with('/')) return bad("a file URL is file:///path");
  auto path = percent_decoded(rest);
  if (!path || path->find('\0') != path->npos) return bad("a '%' needs two hexadecimal digits");
  return *std::move(path);
}

Result<Location> open_directory(std::string_view url) {
  YARD_ASSIGN(const std::string path, path_of_url(url));
  YARD_ASSIGN(std::shared_ptr<ObjectStore> store, DirectoryStore::open(path));
  return Location{std::move(store), ""};
}

Result<Location> open_object(std::string_view url) {
  YARD_ASSIGN(const std::string path, path_of_url(url));
  const std::filesystem::path split(path);
  const std::string name = split.filename().string();
  if (auto valid = check_key(name); !valid)
    return Error{Code::kInvalidArgument, fmt::format("'{}' does not name a file", url)};
  const std::string parent = split.parent_path().string();
  YARD_ASSIGN(std::shared_ptr<ObjectStore> store,
              DirectoryStore::open(parent.empty() ? "." : parent));
  return Location{std::move(store), name};
}

}  // namespace yard::storage
