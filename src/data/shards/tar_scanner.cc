#include "shards/tar_scanner.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

namespace yard::shards {
namespace {

constexpr uint64_t kWindowBytes = uint64_t{1} << 20;
// Names and attributes; a longer one is damage or an attack.
constexpr uint64_t kExtensionBytesMax = uint64_t{1} << 20;

// Types that have no content whatever their size field says (tarfile and GNU tar agree).
bool has_no_content(char type) {
  return type >= '1' && type <= '6';
}
bool is_regular(const TarHeader& header) {
  if (header.type == '\0') return !header.name.ends_with('/');
  return header.type == '0' || header.type == '7';
}

std::string_view compression_of(std::string_view bytes) {
  if (bytes.starts_with("\x1f\x8b")) return "gzip";
  if (bytes.starts_with("\x28\xb5\x2f\xfd")) return "zstd";
  if (bytes.starts_with("\xfd"
                        "7zXZ"))
    return "xz";
  if (bytes.starts_with("BZh")) return "bzip2";
  return {};
}

}  // namespace

Result<TarScanner> TarScanner::open(storage::ObjectStore& store, std::string_view key) {
  YARD_ASSIGN(storage::ObjectInfo shard, store.head(key));
  return TarScanner(store, std::move(shard));
}

Error TarScanner::fail(Code code, std::string_view message) const {
  return {code,
          fmt::format("{}/{}: offset {}: {}", store_->url(), shard_.key, header_offset_, message)};
}

Error TarScanner::not_a_tar(std::span<const std::byte> block) const {
  const auto compression =
      compression_of({reinterpret_cast<const char*>(block.data()), block.size()});
  const std::string name = fmt::format("{}/{}", store_->url(), shard_.key);
  if (compression.empty()) return {Code::kInvalidArgument, name + ": not a tar archive"};
  return {Code::kInvalidArgument,
          fmt::format("{}: compressed with {}; a shard is read in places, unpack it first", name,
                      compression)};
}

Result<std::span<const std::byte>> TarScanner::window(uint64_t offset, uint64_t size_bytes) {
  YARD_CHECK(size_bytes <= kWindowBytes && offset + size_bytes <= shard_.size_bytes);
  if (offset < buffer_offset_ || offset + size_bytes > buffer_offset_ + buffer_.size()) {
    buffer_.resize(std::min(kWindowBytes, shard_.size_bytes - offset));
    buffer_offset_ = offset;
    YARD_TRY(store_->get_range(shard_.key, shard_.etag, offset, buffer_));
  }
  return std::span<const std::byte>(buffer_).subspan(offset - buffer_offset_, size_bytes);
}

Result<std::optional<TarHeader>> TarScanner::read_header() {
  header_offset_ = offset_;
  if (shard_.size_bytes - offset_ < kTarBlockBytes) {
    if (offset_ == 0) return not_a_tar({});
    return fail(Code::kCorrupt, "truncated: the archive ends without its end mark");
  }
  YARD_ASSIGN(const auto block, window(offset_, kTarBlockBytes));
  auto header = parse_tar_header(block);
  if (!header && offset_ == 0 && !has_tar_magic(block)) return not_a_tar(block);
  if (!header) return fail(Code::kCorrupt, header.error().message);
  offset_ += kTarBlockBytes;
  return header;
}

Result<std::string> TarScanner::read_text(uint64_t size_bytes) {
  if (size_bytes > kExtensionBytesMax)
    return fail(Code::kCorrupt, fmt::format("an extended header of {} bytes", size_bytes));
  if (size_bytes > shard_.size_bytes - offset_)
    return fail(Code::kCorrupt, "truncated inside an extended header");
  YARD_ASSIGN(const auto bytes, window(offset_, size_bytes));
  offset_ = std::min(offset_ + padded_to_block(size_bytes), shard_.size_bytes);
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Result<bool> TarScanner::extend(const TarHeader& header, Extension& extension) {
  switch (header.type) {
    case 'x':
    case 'g': {
      YARD_ASSIGN(const std::string content, read_text(header.size_bytes));
      YARD_TRY(extend_by_pax(content, header.type == 'g', extension));
      return true;
    }
    case 'L': {
      YARD_ASSIGN(const std::string content, read_text(header.size_bytes));
      extension.name = content.substr(0, content.find('\0'));
      return true;
    }
    case 'K':  // the long name of a link's target
      YARD_TRY(read_text(header.size_bytes));
      return true;
    default:
      return false;
  }
}

Status TarScanner::extend_by_pax(const std::string& content, bool is_global, Extension& extension) {
  auto records = parse_pax(content);
  if (!records) return fail(Code::kCorrupt, records.error().message);
  for (const auto& [key, value] : *records) {
    if (key.starts_with("GNU.sparse."))
      return fail(Code::kInvalidArgument,
                  "a sparse member; write the archive without tar's --sparse");
    if (key != "path" && key != "size") continue;
    if (is_global)
      return fail(Code::kInvalidArgument, fmt::format("a global pax header sets '{}'", key));
    if (key == "path") extension.name = value;
    if (key == "size") {
      uint64_t size_bytes = 0;
      const auto [end, failed] =
          std::from_chars(value.data(), value.data() + value.size(), size_bytes);
      if (failed != std::errc() || end != value.data() + value.size())
        return fail(Code::kCorrupt, "a pax header's size is no number");
      extension.size_bytes = size_bytes;
    }
  }
  return Ok{};
}

Status TarScanner::check_name(const std::string& name) const {
  const auto bad = [&](std::string_view why) {
    return fail(Code::kCorrupt, fmt::format("member '{}': {}", name, why));
  };
  if (name.empty()) return bad("has no name");
  if (name.find('\0') != name.npos) return bad("has a zero byte in its name");
  if (name.starts_with('/')) return bad("an absolute name");
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    if (std::string_view(name).substr(begin, end - begin) == "..") return bad("'..' in its name");
    begin = end + 1;
  }
  return Ok{};
}

// Zeros up to the end: anything else would be a second archive that nobody reads.
Status TarScanner::check_end() {
  while (offset_ < shard_.size_bytes) {
    const uint64_t size_bytes = std::min(kWindowBytes, shard_.size_bytes - offset_);
    YARD_ASSIGN(const auto rest, window(offset_, size_bytes));
    if (!std::ranges::all_of(rest, [](std::byte b) { return b == std::byte{0}; }))
      return fail(Code::kCorrupt,
                  "bytes follow the end of the archive; were archives joined with cat?");
    offset_ += size_bytes;
  }
  return Ok{};
}

Result<std::optional<TarMember>> TarScanner::next() {
  Extension extension;
  while (true) {
    YARD_ASSIGN(const auto found, read_header());
    if (!found) {
      YARD_TRY(check_end());
      return std::optional<TarMember>();
    }
    TarHeader header = *found;
    YARD_ASSIGN(const bool is_extension, extend(header, extension));
    if (is_extension) continue;
    header.name = extension.name.value_or(header.name);
    header.size_bytes = extension.size_bytes.value_or(header.size_bytes);
    extension = {};
    if (header.type == 'S' || header.type == 'M')
      return fail(Code::kInvalidArgument,
                  fmt::format("member '{}' is {}, which a shard cannot have", header.name,
                              header.type == 'S' ? "sparse" : "a part of a multi-volume archive"));
    if (header.type == '1' || header.type == '2') ++link_count_;
    if (has_no_content(header.type)) continue;
    if (header.size_bytes > shard_.size_bytes - offset_)
      return fail(Code::kCorrupt,
                  fmt::format("truncated: member '{}' of {} bytes runs past the end of the shard",
                              header.name, header.size_bytes));
    member_ = {std::move(header.name), offset_, header.size_bytes};
    offset_ = std::min(offset_ + padded_to_block(header.size_bytes), shard_.size_bytes);
    header.name = member_.name;
    if (!is_regular(header)) continue;
    YARD_TRY(check_name(member_.name));
    return std::optional(member_);
  }
}

Status TarScanner::read_content(const Sink& sink) {
  for (uint64_t done = 0; done < member_.size_bytes;) {
    const uint64_t size_bytes = std::min(kWindowBytes, member_.size_bytes - done);
    YARD_ASSIGN(const auto piece, window(member_.offset + done, size_bytes));
    YARD_TRY(sink(piece));
    done += size_bytes;
  }
  return Ok{};
}

}  // namespace yard::shards
