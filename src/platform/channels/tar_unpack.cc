#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/file.h"
#include "channels/tar_tree.h"
#include "shards/tar_header.h"

namespace yard::channels {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kExtensionBytesMax = 1 << 20;
constexpr size_t kPieceBytes = 256 << 10;
constexpr size_t kModeAt = 100, kModeSize = 8, kLinkAt = 157, kLinkSize = 100;

Error refused(std::string_view name, std::string_view why) {
  return {Code::kInvalidArgument, fmt::format("member '{}': {}", name, why)};
}

// zlib passes over bytes that are no gzip as they are.
class Input {
 public:
  static Result<Input> open(const std::string& path) {
    Input input;
    input.path_ = path;
    input.file_.reset(::gzopen(path.c_str(), "rbe"));
    if (!input.file_) return errno_error(path, errno == 0 ? ENOMEM : errno);
    ::gzbuffer(input.file_.get(), 256 << 10);
    return input;
  }
  // False at the end, before the first byte. kCorrupt: damaged, or it ends in between.
  Result<bool> fill(std::span<std::byte> out) {
    const int got = ::gzread(file_.get(), out.data(), unsigned(out.size()));
    int state = Z_OK;
    const char* const complaint = ::gzerror(file_.get(), &state);
    if (got < 0 || (state != Z_OK && state != Z_STREAM_END))
      return Error{Code::kCorrupt, fmt::format("{}: {}", path_, complaint)};
    if (got == 0) return false;
    if (size_t(got) < out.size()) return Error{Code::kCorrupt, path_ + ": ends in a member"};
    return true;
  }
  Status fill_whole(std::span<std::byte> out) {
    if (out.empty()) return Ok{};
    YARD_ASSIGN(const bool is_there, fill(out));
    if (is_there) return Ok{};
    return Error{Code::kCorrupt, path_ + ": ends in a member"};
  }

 private:
  struct Close {
    void operator()(gzFile_s* file) const { ::gzclose(file); }
  };
  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

struct Member {
  std::string name;
  std::string link;
  uint64_t size_bytes = 0;
  unsigned mode = 0644;
  char type = '0';
};

class Unpacker {
 public:
  Unpacker(Input input, std::string folder, const UnpackLimits& limits)
      : input_(std::move(input)), folder_(std::move(folder)), limits_(limits) {}
  Status run();

 private:
  // What pax and GNU headers say of the member behind them.
  struct Extension {
    std::optional<std::string> name;
    std::optional<std::string> link;
    std::optional<uint64_t> size_bytes;
  };
  Result<std::optional<Member>> next();
  Status extend(const shards::TarHeader& header, Extension& extension);
  Status take(const Member& member);
  Status take_file(const Member& member, const std::string& path);
  Status take_link(const Member& member, const std::string& inner, const std::string& path);
  Status prepare_parents(const std::string& inner, std::string_view name);
  Status skip(uint64_t size_bytes);

  Input input_;
  const std::string folder_;
  const UnpackLimits limits_;
  uint64_t total_bytes_ = 0;
  uint64_t member_count_ = 0;
};

std::string field_text(std::span<const std::byte> block, size_t at, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(block.data()) + at, size);
  return std::string(bytes.substr(0, bytes.find('\0')));
}

unsigned mode_of(std::span<const std::byte> block) {
  unsigned mode = 0;
  for (const char c : field_text(block, kModeAt, kModeSize))
    if (c >= '0' && c <= '7') mode = mode * 8 + unsigned(c - '0');
  // No set-uid programs out of an archive; and we must be able to remove what we unpack.
  return (mode & 0777) | 0600;
}

Status Unpacker::extend(const shards::TarHeader& header, Extension& extension) {
  if (header.size_bytes > kExtensionBytesMax) return Error{Code::kCorrupt, "a header is too large"};
  std::vector<std::byte> content(shards::padded_to_block(header.size_bytes));
  YARD_TRY(input_.fill_whole(content));
  const std::string_view text(reinterpret_cast<const char*>(content.data()), header.size_bytes);
  if (header.type == 'L') extension.name = std::string(text.substr(0, text.find('\0')));
  if (header.type == 'K') extension.link = std::string(text.substr(0, text.find('\0')));
  if (header.type != 'x') return Ok{};
  YARD_ASSIGN(const auto records, shards::parse_pax(text));
  for (const auto& [key, value] : records) {
    if (key == "path") extension.name = std::string(value);
    if (key == "linkpath") extension.link = std::string(value);
    if (key != "size") continue;
    uint64_t size = 0;
    for (const char c : value) {
      if (c < '0' || c > '9' || size >> 58 != 0)
        return Error{Code::kCorrupt, "a member's size is no number"};
      size = size * 10 + uint64_t(c - '0');
    }
    extension.size_bytes = size;
  }
  return Ok{};
}

Result<std::optional<Member>> Unpacker::next() {
  Extension extension;
  while (true) {
    shards::TarBlock block;
    YARD_ASSIGN(const bool is_there, input_.fill(block));
    if (!is_there) return std::optional<Member>();
    YARD_ASSIGN(const auto header, shards::parse_tar_header(block));
    if (!header) return std::optional<Member>();
    if (header->type == 'x' || header->type == 'g' || header->type == 'L' || header->type == 'K') {
      YARD_TRY(extend(*header, extension));
      continue;
    }
    Member member{.name = extension.name.value_or(header->name),
                  .link = extension.link.value_or(field_text(block, kLinkAt, kLinkSize)),
                  .size_bytes = extension.size_bytes.value_or(header->size_bytes),
                  .mode = mode_of(block),
                  .type = header->type == '\0' ? '0' : header->type};
    return std::optional<Member>(std::move(member));
  }
}

// A folder on the way that is a link would let later members leave.
Status Unpacker::prepare_parents(const std::string& inner, std::string_view name) {
  for (size_t slash = inner.find('/'); slash != std::string::npos;
       slash = inner.find('/', slash + 1)) {
    const std::string path = folder_ + "/" + inner.substr(0, slash);
    struct stat info = {};
    if (::lstat(path.c_str(), &info) != 0) {
      if (::mkdir(path.c_str(), 0777) != 0) return errno_error(path, errno);
    } else if (!S_ISDIR(info.st_mode)) {
      return refused(name, "lies behind a link or a file");
    }
  }
  return Ok{};
}

Status Unpacker::take_file(const Member& member, const std::string& path) {
  ::unlink(path.c_str());
  const UniqueFd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, member.mode));
  if (!file.valid()) return errno_error(path, errno);
  std::vector<std::byte> buffer(kPieceBytes);
  for (uint64_t left = member.size_bytes; left > 0;) {
    const auto piece = std::span(buffer).first(size_t(std::min<uint64_t>(left, buffer.size())));
    YARD_TRY(input_.fill_whole(piece));
    for (size_t at = 0; at < piece.size();) {
      const ssize_t put = ::write(file.get(), piece.data() + at, piece.size() - at);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return errno_error(path, errno);
      at += size_t(put);
    }
    left -= piece.size();
  }
  return skip(shards::padded_to_block(member.size_bytes) - member.size_bytes);
}

Status Unpacker::take_link(const Member& member, const std::string& inner,
                           const std::string& path) {
  // A hard link's target is named from the archive's root, a symbolic link's from its own folder.
  const bool is_hard = member.type == '1';
  const fs::path folder = is_hard ? fs::path() : fs::path(inner).parent_path();
  const auto target = member.link.starts_with('/')
                          ? Result<std::string>(refused(member.name, "links out of the archive"))
                          : inner_path((folder / member.link).lexically_normal().string());
  // inner_path() refuses ".", which a symbolic link may well mean.
  const bool is_root = !is_hard && (folder / member.link).lexically_normal() == ".";
  if (!target && !is_root) return refused(member.name, "links out of the archive");
  ::unlink(path.c_str());
  if (is_hard) {
    YARD_TRY(prepare_parents(*target, member.name));
    if (::link((folder_ + "/" + *target).c_str(), path.c_str()) != 0)
      return errno_error(path, errno);
  } else if (::symlink(member.link.c_str(), path.c_str()) != 0) {
    return errno_error(path, errno);
  }
  return skip(shards::padded_to_block(member.size_bytes));
}

Status Unpacker::skip(uint64_t size_bytes) {
  std::vector<std::byte> buffer(kPieceBytes);
  for (; size_bytes > 0; size_bytes -= std::min<uint64_t>(size_bytes, buffer.size()))
    YARD_TRY(input_.fill_whole(
        std::span(buffer).first(size_t(std::min<uint64_t>(size_bytes, buffer.size())))));
  return Ok{};
}

Status Unpacker::take(const Member& member) {
  const bool is_folder = member.type == '5';
  std::string_view name = member.name;
  while (is_folder && name.size() > 1 && name.ends_with('/')) name.remove_suffix(1);
  if (is_folder && (name == "." || name == "./")) return skip(0);
  YARD_ASSIGN(const std::string inner, inner_path(name));
  YARD_TRY(prepare_parents(inner, member.name));
  const std::string path = folder_ + "/" + inner;
  switch (member.type) {
    case '0':
    case '7':
      return take_file(member, path);
    case '1':
    case '2':
      return take_link(member, inner, path);
    case '5':
      return prepare_parents(inner + "/", member.name);
    default:
      return refused(member.name, "is neither file, folder nor link");
  }
}

Status Unpacker::run() {
  while (true) {
    YARD_ASSIGN(const auto member, next());
    if (!member) return Ok{};
    total_bytes_ += member->size_bytes;
    if (++member_count_ > limits_.member_count_max || total_bytes_ > limits_.size_bytes_max)
      return Error{Code::kExhausted, "the archive is larger than is allowed"};
    YARD_TRY(take(*member));
  }
}

}  // namespace

Result<std::string> inner_path(std::string_view name) {
  std::string out;
  if (name.starts_with('/') || name.find('\0') != std::string_view::npos)
    return refused(name, "lies outside");
  while (!name.empty()) {
    const std::string_view part = name.substr(0, name.find('/'));
    name.remove_prefix(std::min(name.size(), part.size() + 1));
    if (part.empty() || part == ".") continue;
    if (part == "..") return refused(name, "lies outside");
    if (!out.empty()) out += '/';
    out += part;
  }
  if (out.empty()) return refused(name, "has no name");
  return out;
}

Status unpack_tar(const std::string& archive_path, const std::string& folder,
                  const UnpackLimits& limits) {
  YARD_ASSIGN(Input input, Input::open(archive_path));
  YARD_TRY(make_directories(folder));
  Unpacker unpacker(std::move(input), folder, limits);
  if (auto done = unpacker.run(); !done) return std::move(done).error().while_(archive_path);
  return Ok{};
}

}  // namespace yard::channels
