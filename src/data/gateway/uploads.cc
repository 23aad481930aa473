#include "gateway/uploads.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "base/ids.h"
#include "gateway/folders.h"
#include "net/encoding.h"
#include "net/uri.h"

namespace yard::gateway {
namespace {

constexpr const char* kUploadFile = "upload";
constexpr const char* kStagedName = "staged";  // in a part's metadata
constexpr size_t kIdBytes = 40;
constexpr uint64_t kStepBytes = 64 << 20;
constexpr size_t kUploadFileBytesMax = 1 << 20;
constexpr S3ErrorKind kOperationAborted{
    "OperationAborted", 409,
    "A conflicting conditional operation is currently in progress against this resource. Try "
    "again."};

std::string read_boot_id() {
  auto text = read_file("/proc/sys/kernel/random/boot_id");
  return text ? text->substr(0, text->find('\n')) : "unknown";
}

bool is_id(std::string_view text) {
  return text.size() == kIdBytes && std::ranges::all_of(text, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
         });
}

// A file of two lines: what is uploaded, and the object's metadata as object_meta.h has it.
std::string encode_upload(const UploadInfo& upload) {
  const auto begun = std::chrono::floor<std::chrono::milliseconds>(upload.begun);
  StampedMeta stamped{upload.meta, {}};
  stamped.meta.etag = "none";
  return format_query({{"bucket", upload.bucket},
                       {"key", upload.key},
                       {"begun_ms", std::to_string(begun.time_since_epoch().count())},
                       {"algorithm", std::string(to_string(upload.algorithm))},
                       {"type", std::string(to_string(upload.checksum_type))},
                       {"named", upload.names_algorithm ? "1" : "0"}}) +
         "\n" + encode_meta(stamped) + "\n";
}

std::optional<UploadInfo> decode_upload(std::string id, std::string_view text) {
  const size_t line = text.find('\n');
  if (line == text.npos || !text.ends_with('\n')) return std::nullopt;
  const auto pairs = parse_query(text.substr(0, line));
  auto stamped = decode_meta(text.substr(line + 1, text.size() - line - 2));
  if (!pairs || pairs->size() != 6 || !stamped) return std::nullopt;
  const auto value = [&](size_t index) -> const std::string& { return (*pairs)[index].value; };
  const auto algorithm = parse_checksum_algorithm(value(3));
  int64_t begun_ms = 0;
  std::from_chars(value(2).data(), value(2).data() + value(2).size(), begun_ms);
  if (!algorithm) return std::nullopt;
  stamped->meta.etag.clear();
  return UploadInfo{
      .id = std::move(id),
      .bucket = value(0),
      .key = value(1),
      .begun = std::chrono::system_clock::time_point(std::chrono::milliseconds(begun_ms)),
      .meta = std::move(stamped->meta),
      .algorithm = *algorithm,
      .checksum_type = value(4) == to_string(ChecksumType::kFullObject) ? ChecksumType::kFullObject
                                                                        : ChecksumType::kComposite,
      .names_algorithm = value(5) == "1"};
}

S3Error invalid_part(const UploadInfo& upload, const CompletedPart& wanted) {
  return S3Error(s3::kInvalidPart)
      .with("UploadId", upload.id)
      .with("PartNumber", std::to_string(wanted.number))
      .with("ETag", wanted.etag);
}

bool is_wanted(const UploadInfo& upload, const PartInfo& part, const CompletedPart& wanted) {
  if (part.etag != wanted.etag) return false;
  if (!wanted.checksum || wanted.checksum->first != upload.algorithm) return true;
  return base64_decode(wanted.checksum->second) == part.digest;
}

ObjectChecksum checksum_of(const UploadInfo& upload, const std::vector<PartInfo>& parts) {
  if (upload.checksum_type == ChecksumType::kComposite) {
    Checksum checksum(upload.algorithm);
    for (const PartInfo& part : parts) checksum.update(bytes_of(part.digest));
    return {upload.algorithm, ChecksumType::kComposite,
            fmt::format("{}-{}", checksum.base64(), parts.size())};
  }
  std::string whole = parts.front().digest;
  for (size_t i = 1; i < parts.size(); ++i)
    whole = combine_crc_digests(upload.algorithm, whole, parts[i].digest, parts[i].size_bytes);
  return {upload.algorithm, ChecksumType::kFullObject, base64_encode(bytes_of(whole))};
}

// Where the bytes of a part are: in its file of `file_bytes`, or at its place.
struct PartPlace {
  uint64_t size_bytes = 0;
  bool is_staged = false;
};

// Nothing for a part of an earlier boot, and for what is none.
std::optional<PartPlace> place_of(const HeaderList& user, std::string_view boot_id,
                                  uint64_t file_bytes) {
  if (user.empty() || user.front() != std::pair<std::string, std::string>("boot", boot_id))
    return std::nullopt;
  if (user.size() == 1) return PartPlace{file_bytes, false};
  const std::string& text = user[1].second;
  uint64_t size_bytes = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), size_bytes);
  const bool is_number = failed == std::errc{} && end == text.data() + text.size();
  if (user[1].first != kStagedName || !is_number || file_bytes != 0) return std::nullopt;
  return PartPlace{size_bytes, true};
}

// Whether the object is the staged file up to its size: every part fits where it belongs, and none
// lies behind.
bool fills_places(const Assembly& assembly, uint64_t part_bytes,
                  const std::vector<std::string>& names) {
  const size_t count = assembly.parts.size();
  for (size_t i = 0; i < count; ++i) {
    const PartInfo& part = assembly.parts[i];
    if (part.number != i + 1 || part.size_bytes > part_bytes) return false;
    if (i + 1 < count && part.size_bytes != part_bytes) return false;
  }
  return std::ranges::none_of(names, [&](const std::string& name) {
    return part_number_of_name(name).value_or(0) > count;
  });
}

S3Status append_part(TempFile& to, int from_fd, uint64_t offset, uint64_t size_bytes,
                     const std::function<void()>& progress) {
  for (uint64_t done = 0; done < size_bytes; done += kStepBytes) {
    YARD_TRY(to.append(from_fd, offset + done, std::min(kStepBytes, size_bytes - done)));
    ::sync_file_range(to.fd(), 0, 0, SYNC_FILE_RANGE_WRITE);
    progress();
  }
  return Ok{};
}

// Of PartInfo or of CompletedPart.
template <typename Part>
std::string etag_of_parts(const std::vector<Part>& parts) {
  Checksum md5(ChecksumAlgorithm::kMd5);
  for (const Part& part : parts) md5.update(bytes_of(hex_decode(part.etag).value_or("")));
  return fmt::format("{}-{}", md5.hex(), parts.size());
}

}  // namespace

S3Result<Assembly> plan_assembly(const UploadInfo& upload, const std::vector<PartInfo>& uploaded,
                                 const std::vector<CompletedPart>& wanted) {
  if (wanted.empty() || wanted.size() > kPartCountMax) return s3::kMalformedXml;
  const auto is_out_of_order = [](const CompletedPart& a, const CompletedPart& b) {
    return a.number >= b.number;
  };
  if (std::ranges::adjacent_find(wanted, is_out_of_order) != wanted.end())
    return s3::kInvalidPartOrder;
  Assembly assembly;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto found = std::ranges::lower_bound(uploaded, wanted[i].number, {}, &PartInfo::number);
    if (found == uploaded.end() || found->number != wanted[i].number ||
        !is_wanted(upload, *found, wanted[i]))
      return invalid_part(upload, wanted[i]);
    if (i + 1 < wanted.size() && found->size_bytes < kPartBytesMin)
      return S3Error(s3::kEntityTooSmall)
          .with("ProposedSize", std::to_string(found->size_bytes))
          .with("MinSizeAllowed", std::to_string(kPartBytesMin))
          .with("PartNumber", std::to_string(found->number))
          .with("ETag", found->etag);
    assembly.size_bytes += found->size_bytes;
    assembly.parts.push_back(*found);
  }
  if (assembly.size_bytes > kObjectBytesMax) return s3::kEntityTooLarge;
  assembly.etag = etag_of_parts(assembly.parts);
  assembly.checksum = checksum_of(upload, assembly.parts);
  return assembly;
}

std::optional<Assembly> find_assembly(const ObjectFile& object, std::string_view upload_id,
                                      const std::vector<CompletedPart>& wanted) {
  const ObjectMeta& meta = object.meta;
  if (upload_id.empty() || meta.upload_id != upload_id || meta.etag != etag_of_parts(wanted) ||
      !meta.checksum)
    return std::nullopt;
  return Assembly{.parts = {},
                  .size_bytes = object.size_bytes(),
                  .etag = meta.etag,
                  .checksum = *meta.checksum};
}

Uploads::Uploads(Root& root) : root_(root), boot_id_(read_boot_id()) {
  // What was killed while it began or ended an upload left a folder that is none.
  for (const std::string& id : names_in(root_.uploads().get())) {
    auto upload = read_upload(id);
    const bool is_none =
        upload ? is_half_removed(*upload) : upload.error().code == s3::kNoSuchUpload.code;
    if (is_none) remove(id);
  }
}

// The gateway was killed just after the staged file had become the object.
bool Uploads::is_half_removed(const UploadInfo& upload) const {
  const auto folder = open_folder(upload.id);
  if (!folder) return false;
  const auto names = names_in(folder->get());
  if (staged_part_bytes(names)) return false;
  return std::ranges::any_of(names, [&](const std::string& name) {
    const auto part = open_part_file(upload, folder->get(), name);
    return part && *part && (*part)->info.is_staged;
  });
}

S3Result<UploadInfo> Uploads::begin(UploadInfo upload) {
  upload.id = random_name(kIdBytes);
  const std::string text = encode_upload(upload);
  const std::string& id = upload.id;
  // An upload only once it has the file.
  if (::mkdirat(root_.uploads().get(), id.c_str(), 0700) != 0) return s3_errno("an upload", errno);
  YARD_ASSIGN(const UniqueFd folder, open_folder(id));
  YARD_ASSIGN(TempFile file, root_.make_temp_file());
  YARD_TRY(file.write(bytes_of(text)));
  YARD_TRY(file.sync());
  if (!file.rename_to(folder.get(), kUploadFile, TempFile::Existing::kReplaced))
    return s3_errno("an upload", errno);
  YARD_TRY(sync_folder(folder.get()));
  YARD_TRY(sync_folder(root_.uploads().get()));
  return upload;
}

S3Result<UniqueFd> Uploads::open_folder(std::string_view id) const {
  if (!is_id(id)) return s3::kNoSuchUpload;
  UniqueFd folder(::openat(root_.uploads().get(), std::string(id).c_str(),
                           O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (folder.valid()) return folder;
  if (errno == ENOENT) return s3::kNoSuchUpload;
  return s3_errno("an upload", errno);
}

S3Result<UploadInfo> Uploads::read_upload(const std::string& id) const {
  YARD_ASSIGN(const UniqueFd folder, open_folder(id));
  const auto text = read_small_file(folder.get(), kUploadFile, kUploadFileBytesMax);
  if (!text && errno != ENOENT) return s3_errno("an upload", errno);
  auto upload = text ? decode_upload(id, *text) : std::nullopt;
  if (!upload) return s3::kNoSuchUpload;
  return *std::move(upload);
}

S3Result<UploadInfo> Uploads::find(std::string_view bucket, std::string_view key,
                                   std::string_view id) const {
  YARD_ASSIGN(UploadInfo upload, read_upload(std::string(id)));
  if (upload.bucket != bucket || upload.key != key) return s3::kNoSuchUpload;
  return upload;
}

S3Result<std::vector<UploadInfo>> Uploads::list(std::string_view bucket) const {
  std::vector<UploadInfo> uploads;
  for (const std::string& id : names_in(root_.uploads().get())) {
    auto upload = read_upload(id);
    if (upload && upload->bucket == bucket) uploads.push_back(*std::move(upload));
  }
  std::ranges::sort(uploads, [](const UploadInfo& a, const UploadInfo& b) {
    return std::tie(a.key, a.begun, a.id) < std::tie(b.key, b.begun, b.id);
  });
  return uploads;
}

S3Result<PartFile> Uploads::open_part(const UploadInfo& upload, uint32_t number,
                                      uint64_t size_bytes) {
  YARD_ASSIGN(const UniqueFd folder, open_folder(upload.id));
  YARD_ASSIGN(auto place, staging_.take(upload.id, folder.get(), number, size_bytes));
  if (place) return PartFile(*std::move(place));
  YARD_ASSIGN(TempFile file, root_.make_temp_file());
  return PartFile(std::move(file));
}

S3Status Uploads::put_part(const UploadInfo& upload, uint32_t number, PartFile part,
                           const BodyDigests& digests) {
  YARD_ASSIGN(const UniqueFd folder, open_folder(upload.id));
  ObjectMeta meta;
  meta.etag = hex_encode(bytes_of(digests.md5));
  meta.user = {{"boot", boot_id_}};
  meta.checksum = ObjectChecksum{upload.algorithm, ChecksumType::kFullObject,
                                 base64_encode(bytes_of(digests.wanted))};
  if (const Staging::Place* place = part.place()) {
    if (!place->is_full()) return s3::kIncompleteBody;
    // The disk may begin now with what completing will wait for.
    ::sync_file_range(place->fd(), off_t(place->offset()), off_t(place->size_bytes()),
                      SYNC_FILE_RANGE_WRITE);
    meta.user.emplace_back(kStagedName, std::to_string(place->size_bytes()));
    YARD_ASSIGN(TempFile record, root_.make_temp_file());
    return record_part(upload, number, std::move(record), meta, folder);
  }
  ::sync_file_range(part.own()->fd(), 0, 0, SYNC_FILE_RANGE_WRITE);
  return record_part(upload, number, std::move(*part.own()), meta, folder);
}

S3Status Uploads::record_part(const UploadInfo& upload, uint32_t number, TempFile file,
                              const ObjectMeta& meta, const UniqueFd& folder) {
  YARD_TRY(root_.meta().attach(file.fd(), meta));
  if (!file.rename_to(folder.get(), part_name(number), TempFile::Existing::kReplaced)) {
    if (errno == ENOENT) return s3::kNoSuchUpload;
    return s3_errno("a part", errno);
  }
  // Who ends an upload takes this file first: without it, nobody else may see the part to remove
  // it.
  if (::faccessat(folder.get(), kUploadFile, F_OK, 0) == 0) return Ok{};
  remove(upload.id);
  return s3::kNoSuchUpload;
}

S3Result<std::optional<Uploads::OpenPart>> Uploads::open_part_file(const UploadInfo& upload,
                                                                   int folder_fd,
                                                                   const std::string& name) const {
  std::optional<OpenPart> none;
  const auto number = part_number_of_name(name);
  if (!number) return none;
  UniqueFd file(::openat(folder_fd, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info = {};
  if (!file.valid() || ::fstat(file.get(), &info) != 0) {
    if (errno == ENOENT) return none;
    return s3_errno("a part", errno);
  }
  const auto meta = root_.meta().find(file.get(), stamp_of(info));
  const auto place = meta ? place_of(meta->user, boot_id_, uint64_t(info.st_size)) : std::nullopt;
  if (!place || !meta->checksum || meta->checksum->algorithm != upload.algorithm) return none;
  using namespace std::chrono;
  PartInfo part{.number = *number,
                .size_bytes = place->size_bytes,
                .etag = meta->etag,
                .digest = base64_decode(meta->checksum->base64).value_or(""),
                .is_staged = place->is_staged,
                .modified = system_clock::from_time_t(info.st_mtim.tv_sec)};
  return std::optional(OpenPart{std::move(part), std::move(file)});
}

S3Result<std::vector<PartInfo>> Uploads::parts(const UploadInfo& upload) const {
  YARD_ASSIGN(const UniqueFd folder, open_folder(upload.id));
  const auto names = names_in(folder.get());
  const bool has_staged = staged_part_bytes(names).has_value();
  std::vector<PartInfo> parts;
  for (const std::string& name : names) {
    YARD_ASSIGN(auto part, open_part_file(upload, folder.get(), name));
    if (part && (has_staged || !part->info.is_staged)) parts.push_back(std::move(part->info));
  }
  std::ranges::sort(parts, {}, &PartInfo::number);
  return parts;
}

S3Status Uploads::complete(const UploadInfo& upload, const Assembly& assembly, Bucket& bucket,
                           const Precondition& precondition,
                           const std::function<void()>& progress) {
  const Staging::Ending ending(staging_, upload.id);
  if (!ending.is_ours()) return kOperationAborted;
  YARD_ASSIGN(const UniqueFd folder, open_folder(upload.id));
  const auto names = names_in(folder.get());
  const auto part_bytes = staged_part_bytes(names);
  const bool in_place =
      ending.is_alone() && part_bytes && fills_places(assembly, *part_bytes, names);
  auto assembled = in_place
                       ? assemble_in_place(upload, assembly, folder.get(), *part_bytes, progress)
                       : assemble_copy(upload, assembly, folder.get(), part_bytes, progress);
  if (!assembled) return std::move(assembled).error();
  ObjectMeta meta = upload.meta;
  meta.etag = assembly.etag;
  meta.checksum = assembly.checksum;
  meta.upload_id = upload.id;
  for (const PartInfo& part : assembly.parts) meta.part_sizes_bytes.push_back(part.size_bytes);
  YARD_TRY(bucket.store(*std::move(assembled), meta, upload.key, precondition));
  remove(upload.id);
  return Ok{};
}

// The part, as it was when the assembly was planned: it may have been uploaded again since.
S3Result<Uploads::OpenPart> Uploads::open_planned(const UploadInfo& upload, const PartInfo& planned,
                                                  int folder_fd) const {
  YARD_ASSIGN(auto part, open_part_file(upload, folder_fd, part_name(planned.number)));
  if (!part || part->info.etag != planned.etag || part->info.size_bytes != planned.size_bytes)
    return s3::kInvalidPart;
  return *std::move(part);
}

// The staged file itself, with the parts in it that came another way. What is refused later loses
// nothing: a place is overwritten only while its part is a file of its own.
S3Result<TempFile> Uploads::assemble_in_place(const UploadInfo& upload, const Assembly& assembly,
                                              int folder_fd, uint64_t part_bytes,
                                              const std::function<void()>& progress) {
  YARD_ASSIGN(TempFile file, TempFile::open_kept(folder_fd, staged_name(part_bytes)));
  uint64_t at = 0;
  for (const PartInfo& planned : assembly.parts) {
    YARD_ASSIGN(const OpenPart part, open_planned(upload, planned, folder_fd));
    if (!part.info.is_staged) {
      YARD_TRY(file.seek(at));
      YARD_TRY(append_part(file, part.file.get(), 0, planned.size_bytes, progress));
    }
    at += planned.size_bytes;
  }
  YARD_TRY(file.truncate(at));
  YARD_TRY(file.write_out(kStepBytes, progress));
  return file;
}

S3Result<TempFile> Uploads::assemble_copy(const UploadInfo& upload, const Assembly& assembly,
                                          int folder_fd, std::optional<uint64_t> part_bytes,
                                          const std::function<void()>& progress) {
  UniqueFd staged;
  if (part_bytes)
    staged = UniqueFd(
        ::openat(folder_fd, staged_name(*part_bytes).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  YARD_ASSIGN(TempFile file, root_.make_temp_file());
  YARD_TRY(file.reserve(assembly.size_bytes));
  for (const PartInfo& planned : assembly.parts) {
    YARD_ASSIGN(const OpenPart part, open_planned(upload, planned, folder_fd));
    if (part.info.is_staged && !staged.valid()) return s3::kInvalidPart;
    const int from = part.info.is_staged ? staged.get() : part.file.get();
    const uint64_t offset = part.info.is_staged ? (planned.number - 1) * *part_bytes : 0;
    YARD_TRY(append_part(file, from, offset, planned.size_bytes, progress));
  }
  return file;
}

S3Status Uploads::abort(const UploadInfo& upload) {
  const Staging::Ending ending(staging_, upload.id);
  if (!ending.is_ours()) return kOperationAborted;
  remove(upload.id);
  return Ok{};
}

void Uploads::remove(const std::string& id) {
  // First what makes it an upload, so that no listing finds half of one.
  if (auto folder = open_folder(id)) {
    ::unlinkat(folder->get(), kUploadFile, 0);
    for (const std::string& name : names_in(folder->get())) {
      struct stat info = {};
      if (::fstatat(folder->get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0)
        root_.meta().forget(stamp_of(info));
    }
  }
  remove_tree(root_.uploads().get(), id.c_str());
  staging_.forget(id);
}

void Uploads::abort_all(std::string_view bucket) {
  const auto uploads = list(bucket);
  if (!uploads) return;
  for (const UploadInfo& upload : *uploads) (void)abort(upload);
}

}  // namespace yard::gateway
