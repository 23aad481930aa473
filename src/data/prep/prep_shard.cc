#include "prep/prep_shard.h"

#include <fmt/format.h>

#include "base/crc32c.h"
#include "images/picture_size.h"
#include "shards/tar_header.h"

namespace yard::prep {
namespace {

constexpr size_t kWriteBytes = size_t{1} << 20;
constexpr size_t kEndBytes = 2 * shards::kTarBlockBytes;
constexpr std::array<std::byte, kEndBytes> kZeros{};

std::string member_name_of(std::string_view key, std::string_view extension) {
  return fmt::format("{}.{}", key, extension);
}

}  // namespace

Result<PrepShard> PrepShard::begin(storage::ObjectStore& store, std::string key) {
  YARD_ASSIGN(auto upload, store.upload(key));
  return PrepShard(store, std::move(key), std::move(upload));
}

Status PrepShard::write(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > kWriteBytes) YARD_TRY(flush());
  size_bytes_ += bytes.size();
  if (bytes.size() > kWriteBytes) return upload_->write(bytes);
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  return Ok{};
}

Status PrepShard::flush() {
  if (buffer_.empty()) return Ok{};
  YARD_TRY(upload_->write(buffer_));
  buffer_.clear();
  return Ok{};
}

Status PrepShard::add(std::string_view sample_key, std::span<const shards::NewMember> members) {
  for (const shards::NewMember& member : members) {
    const std::string name = member_name_of(sample_key, member.extension);
    YARD_TRY(write(shards::tar_member_header(name, member.content.size())));
    const uint64_t offset = size_bytes_;
    YARD_TRY(write(member.content));
    YARD_TRY(write(std::span(kZeros).first(shards::padded_to_block(size_bytes_) - size_bytes_)));
    std::optional<images::Size> size;
    if (images::is_picture_extension(member.extension)) size = images::picture_size(member.content);
    auto added = index_.add(name, offset, member.content.size(), crc32c(member.content), size);
    // What is damage in a shard that is read is a wrong request here.
    if (!added) return Error{Code::kInvalidArgument, added.error().message};
  }
  return Ok{};
}

uint64_t PrepShard::size_bytes_with(std::string_view sample_key,
                                    std::span<const shards::NewMember> members) const {
  uint64_t size_bytes = size_bytes_ + kEndBytes;
  for (const shards::NewMember& member : members)
    size_bytes += shards::tar_header_bytes(member_name_of(sample_key, member.extension),
                                           member.content.size()) +
                  shards::padded_to_block(member.content.size());
  return size_bytes;
}

Result<storage::ObjectInfo> PrepShard::commit() {
  YARD_TRY(write(kZeros));
  YARD_TRY(flush());
  YARD_ASSIGN(storage::ObjectInfo info, upload_->commit());
  YARD_TRY(storage::put_text(*store_, shards::index_key(key_), index_.finish(info).encode()));
  return info;
}

}  // namespace yard::prep
