#include "shards/shard_index.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/crc32c.h"
#include "shards/byte_codec_internal.h"
#include "shards/sample_name.h"

namespace yard::shards {
namespace {

constexpr std::string_view kMagic = "YARDIDX\n";
constexpr uint32_t kVersionPlain = 1, kVersionPictures = 2;
constexpr size_t kChecksummedFrom = 16;
constexpr uint64_t kMemberRecordBytes = 24;
constexpr uint64_t kSampleRecordBytes = 8;
constexpr uint64_t kPictureRecordBytes = 8;
constexpr uint64_t kSampleCountOffset = 32;

uint32_t checksum_of(std::string_view bytes) {
  return crc32c(std::as_bytes(std::span(bytes.substr(kChecksummedFrom))));
}

Error corrupt_index(std::string_view name, std::string_view why) {
  return {Code::kCorrupt, fmt::format("{}: {}; 'yard shards index' makes it anew", name, why)};
}

struct Head {
  ByteReader rest;
  uint32_t version = 0;
};

// Past the magic and a version that is known.
Result<Head> begin_decoding(std::string_view bytes, std::string_view name) {
  if (!bytes.starts_with(kMagic) || bytes.size() < kChecksummedFrom)
    return corrupt_index(name, "not a shard index");
  ByteReader in(bytes.substr(kMagic.size()));
  const auto version = in.number<uint32_t>();
  if (version != kVersionPlain && version != kVersionPictures)
    return corrupt_index(name, fmt::format("index version {} is not known", version));
  return Head{in, version};
}

}  // namespace

std::string index_key(std::string_view shard_key) {
  return std::string(shard_key) + ".idx";
}
bool is_index_key(std::string_view key) {
  return key.ends_with(".idx");
}

std::string_view ShardIndex::key(uint64_t sample) const {
  YARD_CHECK(sample < samples_.size());
  const uint64_t begin = key_begin(sample);
  return std::string_view(keys_).substr(begin, samples_[sample].key_end - begin);
}

std::span<const ShardIndex::Member> ShardIndex::members(uint64_t sample) const {
  YARD_CHECK(sample < samples_.size());
  const uint64_t begin = member_begin(sample);
  return std::span(members_).subspan(begin, samples_[sample].member_end - begin);
}

std::string_view ShardIndex::extension(const Member& member) const {
  return lower_extensions_[member.extension];
}

std::string ShardIndex::member_name(uint64_t sample, const Member& member) const {
  return fmt::format("{}.{}", key(sample), extensions_[member.extension]);
}

const ShardIndex::Member* ShardIndex::find(uint64_t sample, std::string_view extension) const {
  for (const Member& member : members(sample))
    if (lower_extensions_[member.extension] == extension) return &member;
  return nullptr;
}

std::optional<images::Size> ShardIndex::picture_size(uint64_t sample, const Member& member) const {
  const std::span<const Member> all = members(sample);
  YARD_CHECK(&member >= all.data() && &member < all.data() + all.size());
  if (pictures_.empty()) return std::nullopt;
  const images::Size size = pictures_[static_cast<size_t>(&member - members_.data())];
  if (size.width == 0) return std::nullopt;
  return size;
}

bool ShardIndex::same_content(const ShardIndex& other) const {
  return shard_size_bytes_ == other.shard_size_bytes_ && keys_ == other.keys_ &&
         samples_ == other.samples_ && members_ == other.members_ &&
         extensions_ == other.extensions_ && has_same_pictures(other);
}

bool ShardIndex::has_same_pictures(const ShardIndex& other) const {
  if (pictures_.empty() || other.pictures_.empty()) return true;
  return std::ranges::equal(pictures_, other.pictures_, [](images::Size a, images::Size b) {
    return a.width == 0 || b.width == 0 || a == b;
  });
}

uint64_t ShardIndex::memory_bytes() const {
  return keys_.capacity() + samples_.capacity() * sizeof(Sample) +
         members_.capacity() * sizeof(Member) + pictures_.capacity() * sizeof(images::Size) +
         sizeof *this;
}

void ShardIndex::fill_lower_extensions() {
  lower_extensions_.clear();
  for (const std::string& extension : extensions_) lower_extensions_.push_back(to_lower(extension));
}

std::string ShardIndex::encode() const {
  std::string body;
  put_number(body, shard_size_bytes_);
  put_number(body, uint32_t(shard_etag_.size()));
  put_number(body, uint32_t(extensions_.size()));
  put_number(body, uint64_t{samples_.size()});
  put_number(body, uint64_t{members_.size()});
  put_number(body, uint64_t{keys_.size()});
  body += shard_etag_;
  for (const std::string& extension : extensions_) {
    put_number(body, uint32_t(extension.size()));
    body += extension;
  }
  for (uint64_t i = 0; i < samples_.size(); ++i) {
    put_number(body, uint32_t(samples_[i].key_end - key_begin(i)));
    put_number(body, uint32_t(samples_[i].member_end - member_begin(i)));
  }
  body += keys_;
  for (const Member& member : members_) {
    put_number(body, member.offset);
    put_number(body, member.size_bytes);
    put_number(body, member.crc32c);
    put_number(body, member.extension);
  }
  encode_pictures(body);
  std::string bytes(kMagic);
  put_number(bytes, pictures_.empty() ? kVersionPlain : kVersionPictures);
  put_number(bytes, crc32c(std::as_bytes(std::span(body))));
  return bytes + body;
}

// 1 for each extension whose members have sizes.
std::vector<uint8_t> ShardIndex::picture_extensions() const {
  std::vector<uint8_t> flags(extensions_.size(), 0);
  for (size_t i = 0; i < pictures_.size(); ++i)
    if (pictures_[i].width != 0) flags[members_[i].extension] = 1;
  return flags;
}

void ShardIndex::encode_pictures(std::string& body) const {
  if (pictures_.empty()) return;
  const std::vector<uint8_t> flags = picture_extensions();
  for (const uint8_t flag : flags) put_number(body, flag);
  for (size_t i = 0; i < members_.size(); ++i) {
    if (flags[members_[i].extension] == 0) continue;
    put_number(body, static_cast<uint32_t>(pictures_[i].width));
    put_number(body, static_cast<uint32_t>(pictures_[i].height));
  }
}

// False: not as encode_pictures() writes it. All members must be there and sound.
bool ShardIndex::decode_pictures(ByteReader& in) {
  std::vector<uint8_t> flags;
  for (size_t i = 0; i < extensions_.size(); ++i) flags.push_back(in.number<uint8_t>());
  if (std::ranges::any_of(flags, [](uint8_t flag) { return flag > 1; })) return false;
  const auto count = static_cast<uint64_t>(std::ranges::count_if(
      members_, [&](const Member& member) { return flags[member.extension] == 1; }));
  if (!in.ok() || in.left_bytes() != count * kPictureRecordBytes) return false;
  pictures_.resize(members_.size());
  for (size_t i = 0; i < members_.size(); ++i) {
    if (flags[members_[i].extension] == 0) continue;
    const auto width = in.number<uint32_t>(), height = in.number<uint32_t>();
    if (std::max(width, height) > INT32_MAX || (width == 0) != (height == 0)) return false;
    pictures_[i] = {static_cast<int>(width), static_cast<int>(height)};
  }
  return true;
}

Result<uint64_t> ShardIndex::decode_sample_count(std::string_view head, std::string_view name) {
  YARD_TRY(begin_decoding(head, name));
  return ByteReader(head.substr(std::min<size_t>(kSampleCountOffset, head.size())))
      .number<uint64_t>();
}

Result<ShardIndex> ShardIndex::decode(std::string_view bytes, std::string_view name) {
  const auto corrupt = [&](std::string_view why) { return corrupt_index(name, why); };
  YARD_ASSIGN(Head head, begin_decoding(bytes, name));
  ByteReader& in = head.rest;
  if (in.number<uint32_t>() != checksum_of(bytes)) return corrupt("the index is damaged");

  ShardIndex index;
  index.shard_size_bytes_ = in.number<uint64_t>();
  const auto etag_bytes = in.number<uint32_t>();
  const auto extension_count = in.number<uint32_t>();
  const auto sample_count = in.number<uint64_t>();
  const auto member_count = in.number<uint64_t>();
  const auto key_bytes = in.number<uint64_t>();
  index.shard_etag_ = in.take(etag_bytes);
  for (uint32_t i = 0; i < extension_count && in.ok(); ++i)
    index.extensions_.emplace_back(in.take(in.number<uint32_t>()));
  // So that no count makes us allocate more than the file could hold.
  if (!in.ok() || sample_count > in.left_bytes() / kSampleRecordBytes ||
      member_count > in.left_bytes() / kMemberRecordBytes)
    return corrupt("the index is damaged");
  ShardIndex::Sample end;
  for (uint64_t i = 0; i < sample_count; ++i) {
    end.key_end += in.number<uint32_t>();
    end.member_end += in.number<uint32_t>();
    index.samples_.push_back(end);
  }
  index.keys_ = in.take(key_bytes);
  for (uint64_t i = 0; i < member_count; ++i) {
    Member member;
    member.offset = in.number<uint64_t>();
    member.size_bytes = in.number<uint64_t>();
    member.crc32c = in.number<uint32_t>();
    member.extension = in.number<uint32_t>();
    index.members_.push_back(member);
  }
  if (!in.ok() || !index.is_consistent()) return corrupt("the index is damaged");
  const bool has_pictures = head.version == kVersionPictures;
  if (has_pictures ? !index.decode_pictures(in) : in.left_bytes() != 0)
    return corrupt("the index is damaged");
  index.fill_lower_extensions();
  return index;
}

// Whoever writes a right checksum over wrong numbers must not make us read out of bounds.
bool ShardIndex::is_consistent() const {
  const Sample end = samples_.empty() ? Sample{} : samples_.back();
  if (end.key_end != keys_.size() || end.member_end != members_.size()) return false;
  for (uint64_t i = 0; i < samples_.size(); ++i)
    if (samples_[i].member_end == member_begin(i)) return false;
  uint64_t offset = 0;
  for (const Member& member : members_) {
    if (member.extension >= extensions_.size() || member.offset < offset ||
        member.offset > shard_size_bytes_ || member.size_bytes > shard_size_bytes_ - member.offset)
      return false;
    offset = member.offset + member.size_bytes;
  }
  return true;
}

uint32_t ShardIndexBuilder::extension_number(std::string_view extension) {
  const auto [it, is_new] = extension_numbers_.emplace(extension, index_.extensions_.size());
  if (is_new) index_.extensions_.emplace_back(extension);
  return it->second;
}

Status ShardIndexBuilder::start_sample(std::string_view key, std::string_view member_name) {
  const auto [it, is_new] = first_members_.emplace(key, member_name);
  if (!is_new)
    return Error{Code::kCorrupt,
                 fmt::format("members '{}' and '{}' belong to one sample, but members of another "
                             "lie between them",
                             it->second, member_name)};
  index_.keys_ += key;
  index_.samples_.push_back({index_.keys_.size(), index_.members_.size()});
  return Ok{};
}

Status ShardIndexBuilder::add(std::string_view member_name, uint64_t offset, uint64_t size_bytes,
                              uint32_t crc32c, std::optional<images::Size> picture) {
  const auto name = split_member_name(member_name);
  if (!name) return Ok{};
  const bool is_same = !index_.samples_.empty() && index_.key(sample_count() - 1) == name->key;
  if (!is_same) YARD_TRY(start_sample(name->key, member_name));
  const uint64_t sample = sample_count() - 1;
  for (const auto& other : index_.members(sample)) {
    if (to_lower(index_.extensions_[other.extension]) == to_lower(name->extension))
      return Error{Code::kCorrupt,
                   fmt::format("members '{}' and '{}' are one and the same of their sample",
                               index_.member_name(sample, other), member_name)};
  }
  index_.members_.push_back({offset, size_bytes, crc32c, extension_number(name->extension)});
  index_.samples_.back().member_end = index_.members_.size();
  if (picture) {
    index_.pictures_.resize(index_.members_.size() - 1);
    index_.pictures_.push_back(*picture);
  }
  return Ok{};
}

ShardIndex ShardIndexBuilder::finish(const storage::ObjectInfo& shard) {
  index_.shard_size_bytes_ = shard.size_bytes;
  index_.shard_etag_ = shard.etag;
  if (!index_.pictures_.empty()) index_.pictures_.resize(index_.members_.size());
  index_.fill_lower_extensions();
  return std::move(index_);
}

}  // namespace yard::shards
