#include "storage/commit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "base/crc32c.h"
#include "base/ids.h"
#include "storage/keys.h"

namespace yard::storage {
namespace {

constexpr uint64_t kManifestBytesMax = uint64_t{64} << 20;
constexpr int kFormat = 1;
constexpr size_t kIdLength = 20;  // of 36 letters and digits: no two commits share one

std::string parts_prefix(std::string_view key) {
  return std::string(key) + ".parts/";
}

// Of the manifest without its own checksum; keys are sorted, so the text is one.
uint32_t checksum_of(Json manifest) {
  manifest.erase("crc32c");
  const std::string text = manifest.dump();
  return crc32c(std::as_bytes(std::span(text)));
}

Json to_json(const Manifest& manifest) {
  Json parts = Json::array();
  for (const ManifestPart& part : manifest.parts)
    parts.push_back({{"name", part.name},
                     {"key", part.key},
                     {"etag", part.etag},
                     {"size_bytes", part.size_bytes},
                     {"crc32c", part.crc32c}});
  Json json{{"format", kFormat}, {"id", manifest.id}, {"parts", parts}, {"note", manifest.note}};
  json["crc32c"] = checksum_of(json);
  return json;
}

Result<ManifestPart> part_of(const Json& json, std::string_view what) {
  ManifestPart part;
  YARD_ASSIGN(part.name, json_field<std::string>(json, "name", what));
  YARD_ASSIGN(part.key, json_field<std::string>(json, "key", what));
  YARD_ASSIGN(part.etag, json_field<std::string>(json, "etag", what));
  YARD_ASSIGN(part.size_bytes, json_field<uint64_t>(json, "size_bytes", what));
  YARD_ASSIGN(part.crc32c, json_field<uint32_t>(json, "crc32c", what));
  return part;
}

Result<Manifest> manifest_of(const std::string& text, std::string_view what) {
  YARD_ASSIGN(const Json json, parse_json(text, what));
  YARD_ASSIGN(const int format, json_field<int>(json, "format", what));
  if (format != kFormat)
    return Error{Code::kInvalidArgument, fmt::format("format {} is not known", format)};
  YARD_ASSIGN(const auto checksum, json_field<uint32_t>(json, "crc32c", what));
  if (checksum != checksum_of(json)) return Error{Code::kInvalidArgument, "its checksum is wrong"};
  Manifest manifest;
  YARD_ASSIGN(manifest.id, json_field<std::string>(json, "id", what));
  YARD_ASSIGN(const Json parts, json_field<Json>(json, "parts", what));
  for (const Json& part : parts) {
    YARD_ASSIGN(manifest.parts.emplace_back(), part_of(part, what));
  }
  YARD_ASSIGN(manifest.note, json_field<Json>(json, "note", what));
  return manifest;
}

}  // namespace

const ManifestPart* Manifest::find(std::string_view name) const {
  const auto found = std::ranges::find(parts, name, &ManifestPart::name);
  return found == parts.end() ? nullptr : &*found;
}

struct Commit::Impl {
  enum class State { kOpen, kPublished, kRefused, kUnknown };

  ObjectStore& store;
  const std::string key;
  const CommitOptions options;
  Manifest manifest;
  State state = State::kOpen;
  std::mutex mutex;             // guards what follows
  std::set<std::string> names;  // begun

  std::string url() const { return store.url() + "/" + key; }

  Result<std::string> begin_part(std::string_view name) {
    const std::string part_key = fmt::format("{}{}/{}", parts_prefix(key), manifest.id, name);
    YARD_TRY(check_key(name));
    YARD_TRY(check_key(part_key));
    const std::lock_guard lock(mutex);
    if (!names.insert(std::string(name)).second)
      return Error{Code::kInvalidArgument,
                   fmt::format("{}: part '{}' is written twice", url(), name)};
    return part_key;
  }

  void add(std::string_view name, const ObjectInfo& info, uint32_t checksum) {
    const std::lock_guard lock(mutex);
    manifest.parts.push_back({std::string(name), info.key, info.etag, info.size_bytes, checksum});
  }

  Status verify(const ManifestPart& part) const {
    if (options.read_back) {
      YARD_TRY(read_part(store, part));
      return Ok{};
    }
    YARD_ASSIGN(const ObjectInfo info, store.head(part.key));
    if (info.size_bytes == part.size_bytes && info.etag == part.etag) return Ok{};
    return Error{Code::kCorrupt,
                 fmt::format("{}/{}: is not as it was written", store.url(), part.key)};
  }

  // After a put of which the answer may have been lost.
  Status settle(const Error& error) {
    const auto there = read_manifest(store, key);
    if (there && there->id == manifest.id) return Ok{};
    const bool is_sure = error.code != Code::kUnavailable &&
                         error.code != Code::kDeadlineExceeded && error.code != Code::kCancelled &&
                         (there || there.error().code == Code::kNotFound);
    state = is_sure ? State::kRefused : State::kUnknown;
    return error;
  }

  // What the store does not remove now is left to sweep_parts().
  void discard() {
    std::vector<std::string> keys;
    for (const std::string& name : names)
      keys.push_back(fmt::format("{}{}/{}", parts_prefix(key), manifest.id, name));
    static_cast<void>(store.remove_all(keys));
  }
};

// Counts a part in once it is there.
class Commit::PartUpload final : public Upload {
 public:
  PartUpload(Impl& commit, std::string name, std::unique_ptr<Upload> inner)
      : commit_(commit), name_(std::move(name)), inner_(std::move(inner)) {}

  Status write(std::span<const std::byte> bytes) override {
    YARD_TRY(inner_->write(bytes));
    checksum_ = crc32c(bytes, checksum_);
    return Ok{};
  }
  Result<ObjectInfo> commit() override {
    YARD_ASSIGN(ObjectInfo info, inner_->commit());
    commit_.add(name_, info, checksum_);
    return info;
  }

 private:
  Impl& commit_;
  const std::string name_;
  const std::unique_ptr<Upload> inner_;
  uint32_t checksum_ = 0;
};

Result<Commit> Commit::begin(ObjectStore& store, std::string_view key,
                             const CommitOptions& options) {
  YARD_TRY(check_key(key));
  auto impl = std::unique_ptr<Impl>(new Impl{store, std::string(key), options, {}});
  impl->manifest.id = random_name(kIdLength);
  return Commit(std::move(impl));
}

Commit::Commit(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Commit::Commit(Commit&&) noexcept = default;
Commit::~Commit() {
  if (!impl_) return;
  if (impl_->state == Impl::State::kOpen || impl_->state == Impl::State::kRefused) impl_->discard();
}

Status Commit::put(std::string_view name, std::span<const std::byte> content) {
  YARD_ASSIGN(const std::string key, impl_->begin_part(name));
  YARD_ASSIGN(const ObjectInfo info, impl_->store.put(key, content, {}));
  impl_->add(name, info, crc32c(content));
  return Ok{};
}

Result<std::unique_ptr<Upload>> Commit::upload(std::string_view name, const PutOptions& options) {
  YARD_ASSIGN(const std::string key, impl_->begin_part(name));
  YARD_ASSIGN(auto inner, impl_->store.upload(key, options));
  return std::unique_ptr<Upload>(
      std::make_unique<PartUpload>(*impl_, std::string(name), std::move(inner)));
}

Status Commit::publish(const Json& note) {
  YARD_CHECK(impl_->state == Impl::State::kOpen);
  impl_->manifest.note = note;
  for (const ManifestPart& part : impl_->manifest.parts) YARD_TRY(impl_->verify(part));
  impl_->state = Impl::State::kPublished;
  const std::string text = to_json(impl_->manifest).dump() + "\n";
  auto put = put_text(impl_->store, impl_->key, text, {.if_absent = impl_->options.if_absent});
  if (!put) return impl_->settle(put.error());
  return Ok{};
}

Result<Manifest> read_manifest(ObjectStore& store, std::string_view key) {
  YARD_ASSIGN(const std::string text, get_all(store, key, kManifestBytesMax));
  const std::string url = fmt::format("{}/{}", store.url(), key);
  auto manifest = manifest_of(text, url);
  if (!manifest)
    return Error{Code::kCorrupt,
                 fmt::format("{}: is no sound manifest: {}", url, manifest.error().message)};
  return manifest;
}

Result<std::string> read_part(ObjectStore& store, const ManifestPart& part) {
  const std::string url = fmt::format("{}/{}", store.url(), part.key);
  std::string content(part.size_bytes, '\0');
  auto read = store.get_range(part.key, part.etag, 0, std::as_writable_bytes(std::span(content)));
  if (!read && read.error().code == Code::kNotFound)
    return Error{Code::kCorrupt, url + ": a part of a manifest is gone"};
  if (!read) return std::move(read).error();
  if (crc32c(std::as_bytes(std::span(content))) != part.crc32c)
    return Error{Code::kCorrupt, url + ": has another checksum than its manifest says"};
  return content;
}

Result<uint64_t> sweep_parts(ObjectStore& store, std::string_view key, std::chrono::seconds age_min,
                             const Clock& clock) {
  const std::string prefix = parts_prefix(key);
  YARD_ASSIGN(const auto objects, list_all(store, prefix));
  if (objects.empty()) return uint64_t{0};
  // Listed first: a manifest that comes meanwhile names parts that are in the list, or none of
  // them.
  std::set<std::string> named;
  Clock::Wall manifest_time{};
  if (auto manifest = read_manifest(store, key)) {
    for (const ManifestPart& part : manifest->parts) named.insert(part.key);
    YARD_ASSIGN(const ObjectInfo info, store.head(key));
    manifest_time = info.modified;  // who read the one before may be reading its parts still
  } else if (manifest.error().code != Code::kNotFound) {
    return std::move(manifest).error();
  }
  const auto commit_of = [&](const std::string& part_key) {
    return part_key.substr(0, part_key.find('/', prefix.size()));
  };
  std::map<std::string, Clock::Wall> last_written;
  for (const ObjectInfo& object : objects) {
    Clock::Wall& last = last_written[commit_of(object.key)];
    last = std::max({last, object.modified, manifest_time});
  }
  std::vector<std::string> abandoned;
  for (const ObjectInfo& object : objects)
    if (!named.contains(object.key) &&
        clock.wall_now() - last_written[commit_of(object.key)] >= age_min)
      abandoned.push_back(object.key);
  YARD_TRY(store.remove_all(abandoned));
  return abandoned.size();
}

}  // namespace yard::storage
