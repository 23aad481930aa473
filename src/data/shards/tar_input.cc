#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <future>
#include <memory>
#include <string_view>
#include <vector>

#include "shards/decoder_internal.h"
#include "shards/tar_input_internal.h"

namespace yard::shards {
namespace {

using storage::ObjectInfo;
using storage::ObjectStore;
using Bytes = std::vector<std::byte>;

// From a remote store, parts are under way before they are asked for.
constexpr uint64_t kPartBytes = uint64_t{4} << 20;
constexpr size_t kPartsAhead = 8;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Reads `size_bytes` at `offset`, as much of it as the object has.
Result<Bytes> read_part(ObjectStore& store, const ObjectInfo& object, uint64_t offset,
                        uint64_t size_bytes) {
  Bytes bytes(std::min(size_bytes, object.size_bytes - offset));
  YARD_TRY(store.get_range(object.key, object.etag, offset, bytes));
  return bytes;
}

class PlainInput final : public TarInput {
 public:
  PlainInput(ObjectStore& store, ObjectInfo object)
      : store_(store), object_(std::move(object)), is_remote_(store.speed().is_remote) {}

  Result<std::span<const std::byte>> window(uint64_t offset, uint64_t size_bytes) override {
    YARD_CHECK(size_bytes <= kTarWindowBytes);
    const uint64_t begin = std::min(offset, object_.size_bytes);
    const uint64_t end = begin + std::min(size_bytes, object_.size_bytes - begin);
    if (begin < buffer_offset_ || end > buffer_offset_ + buffer_.size())
      YARD_TRY(is_remote_ ? fill_from_parts(begin, end) : fill(begin));
    return std::span<const std::byte>(buffer_).subspan(begin - buffer_offset_, end - begin);
  }
  std::optional<uint64_t> size_bytes() const override { return object_.size_bytes; }
  TarCompression compression() const override { return TarCompression::kNone; }

 private:
  Status fill(uint64_t begin) {
    buffer_.resize(std::min(kTarWindowBytes, object_.size_bytes - begin));
    buffer_offset_ = begin;
    return store_.get_range(object_.key, object_.etag, begin, buffer_);
  }

  Status fill_from_parts(uint64_t begin, uint64_t end) {
    drop_before(begin);
    while (buffer_offset_ + buffer_.size() < end) {
      read_ahead();
      auto part = parts_.front().get();
      parts_.pop_front();
      if (!part) return std::move(part).error();
      const uint64_t part_offset = parts_offset_;
      parts_offset_ += part->size();
      // A seek may have landed inside the part.
      const uint64_t skipped = begin > part_offset ? begin - part_offset : 0;
      if (buffer_.empty()) buffer_offset_ = part_offset + skipped;
      buffer_.insert(buffer_.end(), part->begin() + std::ptrdiff_t(skipped), part->end());
    }
    read_ahead();
    return Ok{};
  }

  void drop_before(uint64_t begin) {
    const uint64_t dropped = begin > buffer_offset_ ? begin - buffer_offset_ : 0;
    if (dropped < buffer_.size()) {
      buffer_.erase(buffer_.begin(), buffer_.begin() + std::ptrdiff_t(dropped));
      buffer_offset_ = begin;
      return;
    }
    buffer_.clear();
    while (!parts_.empty() && parts_offset_ + kPartBytes <= begin) {
      parts_.pop_front();  // waits for it
      parts_offset_ += kPartBytes;
    }
    if (parts_.empty()) parts_offset_ = begin;
  }

  void read_ahead() {
    while (parts_.size() < kPartsAhead) {
      const uint64_t offset = parts_offset_ + parts_.size() * kPartBytes;
      if (offset >= object_.size_bytes) return;
      parts_.push_back(std::async(std::launch::async, read_part, std::ref(store_),
                                  std::cref(object_), offset, kPartBytes));
    }
  }

  ObjectStore& store_;
  const ObjectInfo object_;
  const bool is_remote_;
  Bytes buffer_;  // bytes [buffer_offset_, +size) of the object
  uint64_t buffer_offset_ = 0;
  std::deque<std::future<Result<Bytes>>> parts_;  // the first begins at parts_offset_
  uint64_t parts_offset_ = 0;
};

class UnpackedInput final : public TarInput {
 public:
  UnpackedInput(std::unique_ptr<TarInput> packed, std::string name, TarCompression compression)
      : packed_(std::move(packed)),
        name_(std::move(name)),
        compression_(compression),
        decoder_(Decoder::create(compression)),
        memory_(std::make_unique_for_overwrite<std::byte[]>(kBufferBytes)) {}

  Result<std::span<const std::byte>> window(uint64_t offset, uint64_t size_bytes) override {
    YARD_CHECK(size_bytes <= kTarWindowBytes && offset >= begin_offset_);
    while (begin_offset_ + filled_ - begin_ < offset + size_bytes) {
      drop_before(offset);
      YARD_ASSIGN(const size_t added, unpack());
      if (added == 0) break;
    }
    drop_before(offset);
    return std::span<const std::byte>(buffer_).subspan(
        begin_, std::min<uint64_t>(size_bytes, filled_ - begin_));
  }
  std::optional<uint64_t> size_bytes() const override { return std::nullopt; }
  TarCompression compression() const override { return compression_; }
  bool is_damaged() const override { return is_damaged_; }

 private:
  void drop_before(uint64_t offset) {
    const auto dropped = std::min<uint64_t>(offset - begin_offset_, filled_ - begin_);
    begin_ += dropped;
    begin_offset_ += dropped;
  }

  // Some more bytes into the buffer; 0 at the end.
  Result<size_t> unpack() {
    if (begin_ > 0) {
      std::ranges::copy(buffer_.subspan(begin_, filled_ - begin_), buffer_.begin());
      filled_ -= begin_;
      begin_ = 0;
    }
    YARD_CHECK(filled_ < buffer_.size());
    for (;;) {
      YARD_ASSIGN(std::span<const std::byte> in, packed_->window(packed_offset_, kStepBytes));
      const size_t given = in.size();
      auto unpacked = decoder_->decode(in, buffer_.subspan(filled_));
      if (!unpacked) return fail(unpacked.error().message);
      packed_offset_ += given - in.size();
      filled_ += *unpacked;
      if (*unpacked > 0) return *unpacked;
      if (given > 0) continue;
      if (!decoder_->is_at_end()) return fail("truncated: the compressed data ends in its middle");
      return size_t{0};
    }
  }

  Error fail(std::string_view why) {
    is_damaged_ = true;
    return {Code::kCorrupt, fmt::format("{}: byte {}: {}", name_, packed_offset_, why)};
  }

  static constexpr uint64_t kStepBytes = uint64_t{256} << 10;
  static constexpr size_t kBufferBytes = 2 * kTarWindowBytes;
  const std::unique_ptr<TarInput> packed_;
  const std::string name_;
  const TarCompression compression_;
  const std::unique_ptr<Decoder> decoder_;
  uint64_t packed_offset_ = 0;
  // Not zeroed: of a small archive most of it is never touched.
  const std::unique_ptr<std::byte[]> memory_;
  const std::span<std::byte> buffer_{memory_.get(), kBufferBytes};  // unpacked: [begin_, filled_)
  size_t begin_ = 0;
  size_t filled_ = 0;
  uint64_t begin_offset_ = 0;  // of buffer_[begin_] in the archive
  bool is_damaged_ = false;
};

// What the first bytes say, for what is not read too.
std::string_view name_of_compression(std::string_view bytes) {
  if (bytes.starts_with("\x1f\x8b")) return "gzip";
  if (bytes.starts_with("\x28\xb5\x2f\xfd")) return "zstd";
  if (bytes.starts_with("\xfd"
                        "7zXZ"))
    return "xz";
  if (bytes.starts_with("BZh")) return "bzip2";
  if (bytes.starts_with("\x04\x22\x4d\x18")) return "lz4";
  return {};
}

}  // namespace

std::string_view to_string(TarCompression compression) {
  switch (compression) {
    case TarCompression::kNone:
      return "none";
    case TarCompression::kGzip:
      return "gzip";
    case TarCompression::kZstd:
      return "zstd";
  }
  YARD_UNREACHABLE();
}

Result<std::unique_ptr<TarInput>> TarInput::open(ObjectStore& store, const ObjectInfo& shard) {
  auto plain = std::make_unique<PlainInput>(store, shard);
  YARD_ASSIGN(const auto first, plain->window(0, kTarBlockBytes));
  const std::string_view name = name_of_compression(text_of(first));
  if (name.empty()) return std::unique_ptr<TarInput>(std::move(plain));
  const std::string url = fmt::format("{}/{}", store.url(), shard.key);
  if (name != "gzip" && name != "zstd")
    return Error{
        Code::kInvalidArgument,
        fmt::format("{}: compressed with {}; gzip and zstd are read, unpack it first", url, name)};
  return std::unique_ptr<TarInput>(std::make_unique<UnpackedInput>(
      std::move(plain), url, name == "gzip" ? TarCompression::kGzip : TarCompression::kZstd));
}

}  // namespace yard::shards
