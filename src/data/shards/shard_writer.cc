#include "shards/shard_writer.h"

#include <fmt/format.h>

#include "base/crc32c.h"
#include "shards/member_picture_internal.h"
#include "shards/shard_index.h"
#include "shards/shard_layout_internal.h"
#include "shards/tar_header.h"
#include "storage/keys.h"

namespace yard::shards {
namespace {

constexpr size_t kWriteBytes = size_t{1} << 20;

// A tar being written, gathered into large writes.
class TarUpload {
 public:
  explicit TarUpload(std::unique_ptr<storage::Upload> upload) : upload_(std::move(upload)) {}

  // The offset of the content.
  Result<uint64_t> add(std::string_view name, std::span<const std::byte> content) {
    YARD_TRY(write(tar_member_header(name, content.size())));
    const uint64_t offset = size_bytes_;
    YARD_TRY(write(content));
    YARD_TRY(pad(padded_to_block(size_bytes_)));
    return offset;
  }

  Result<storage::ObjectInfo> commit() {
    YARD_TRY(pad(size_bytes_ + kEndMarkBytes));
    YARD_TRY(flush());
    return upload_->commit();
  }

  uint64_t size_bytes() const { return size_bytes_; }

 private:
  Status write(std::span<const std::byte> bytes) {
    if (buffer_.size() + bytes.size() > kWriteBytes) YARD_TRY(flush());
    size_bytes_ += bytes.size();
    if (bytes.size() > kWriteBytes) return upload_->write(bytes);
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    return Ok{};
  }
  Status pad(uint64_t size_bytes) {
    const TarBlock zeros = {};
    while (size_bytes_ < size_bytes)
      YARD_TRY(write(std::span(zeros).first(std::min(kTarBlockBytes, size_bytes - size_bytes_))));
    return Ok{};
  }
  Status flush() {
    YARD_TRY(upload_->write(buffer_));
    buffer_.clear();
    return Ok{};
  }

  std::unique_ptr<storage::Upload> upload_;
  std::vector<std::byte> buffer_;
  uint64_t size_bytes_ = 0;
};

}  // namespace

struct ShardWriter::Impl {
  struct Shard {
    std::string key;
    TarUpload tar;
    ShardIndexBuilder index;
  };

  uint64_t packed_size_bytes(std::string_view key, std::span<const NewMember> members) const {
    uint64_t size_bytes = 0;
    for (const NewMember& member : members)
      size_bytes += frame_bytes(member_name(key, member.extension), member.content.size());
    return size_bytes;
  }

  Status start_shard() {
    std::string key = shard_key(options.prefix, summaries.size());
    YARD_ASSIGN(auto upload, store.upload(key));
    shard.emplace(Shard{std::move(key), TarUpload(std::move(upload)), {}});
    return Ok{};
  }

  Status finish_shard() {
    YARD_ASSIGN(const storage::ObjectInfo info, shard->tar.commit());
    const uint64_t sample_count = shard->index.sample_count();
    YARD_TRY(storage::put_text(store, index_key(shard->key), shard->index.finish(info).encode()));
    summaries.push_back({shard->key, info.size_bytes, sample_count});
    shard.reset();
    return Ok{};
  }

  Status add(std::string_view key, std::span<const NewMember> members) {
    if (members.empty())
      return Error{Code::kInvalidArgument, fmt::format("sample '{}' has no members", key)};
    for (const NewMember& member : members) YARD_TRY(check_member(key, member.extension));
    if (shard && shard->tar.size_bytes() + packed_size_bytes(key, members) + kEndMarkBytes >
                     options.size_bytes_max)
      YARD_TRY(finish_shard());
    if (!shard) YARD_TRY(start_shard());
    for (const NewMember& member : members) {
      const std::string name = member_name(key, member.extension);
      YARD_ASSIGN(const uint64_t offset, shard->tar.add(name, member.content));
      auto added = shard->index.add(name, offset, member.content.size(), crc32c(member.content),
                                    picture_size_of(name, member.content));
      // What is damage in a shard that is read is a wrong request here.
      if (!added) return Error{Code::kInvalidArgument, added.error().message};
    }
    return Ok{};
  }

  Status remember(Status status) {
    if (!status) failed = status.error();
    return status;
  }

  storage::ObjectStore& store;
  const ShardWriterOptions options;
  std::optional<Shard> shard;
  std::vector<ShardSummary> summaries;
  std::optional<Error> failed;
};

Result<ShardWriter> ShardWriter::create(storage::ObjectStore& store,
                                        const ShardWriterOptions& options) {
  if (options.size_bytes_max == 0)
    return Error{Code::kInvalidArgument, "the size of a shard must be more than 0 bytes"};
  YARD_TRY(storage::check_key(options.prefix + "-000000.tar.idx"));
  return ShardWriter(std::unique_ptr<Impl>(new Impl{store, options, {}, {}, {}}));
}

ShardWriter::ShardWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ShardWriter::ShardWriter(ShardWriter&&) noexcept = default;
ShardWriter::~ShardWriter() = default;

Status ShardWriter::add(std::string_view key, std::span<const NewMember> members) {
  if (impl_->failed) return *impl_->failed;
  return impl_->remember(impl_->add(key, members));
}

Result<std::vector<ShardSummary>> ShardWriter::finish() {
  if (impl_->failed) return *impl_->failed;
  if (impl_->shard) YARD_TRY(impl_->remember(impl_->finish_shard()));
  return impl_->summaries;
}

}  // namespace yard::shards
