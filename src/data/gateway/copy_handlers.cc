// CopyObject and UploadPartCopy.
#include <unistd.h>

#include "gateway/keep_alive_internal.h"
#include "net/encoding.h"

namespace yard::gateway {
namespace {

constexpr uint64_t kStepBytes = 64 << 20;
constexpr size_t kPieceBytes = 1 << 20;

struct Source {
  std::string bucket;
  std::string key;
};

// "bucket/key" or "/bucket/key", percent-encoded, perhaps with "?versionId=null".
S3Result<Source> source_of(std::string_view header) {
  if (const size_t mark = header.find('?'); mark != header.npos) {
    const std::string_view version = header.substr(mark + 1);
    if (version != "versionId=null" && version != "versionId=") return s3::kNoSuchVersion;
    header = header.substr(0, mark);
  }
  auto path = percent_decode(header);
  std::string_view text = path ? std::string_view(*path) : std::string_view();
  if (text.starts_with('/')) text.remove_prefix(1);
  const size_t slash = text.find('/');
  if (slash == text.npos || slash == 0 || slash + 1 == text.size())
    return S3Error(s3::kInvalidArgument,
                   "Copy Source must mention the source bucket and key: sourcebucket/sourcekey");
  Source source{std::string(text.substr(0, slash)), std::string(text.substr(slash + 1))};
  YARD_TRY(check_key(source.key));
  return source;
}

S3Result<ObjectFile> open_source(Call& call, const Source& source) {
  YARD_ASSIGN(const Bucket bucket, call.services.root->bucket(source.bucket));
  auto object = bucket.open(source.key);
  if (!object && object.error().code == s3::kNoSuchKey.code)
    return std::move(object).error().with("Key", source.key);
  if (!object) return object;
  auto allowed = check_read_conditions(call.headers(), {object->meta.etag, object->modified()},
                                       kCopySourceConditions);
  if (!allowed && allowed.error().http_status == 304) return s3::kPreconditionFailed;
  if (!allowed) return std::move(allowed).error();
  return object;
}

// A file that is rewritten in place while it is copied must not become half and half.
S3Status check_unchanged(const ObjectFile& source) {
  struct stat info = {};
  if (::fstat(source.fd.get(), &info) == 0 && stamp_of(info) == source.stamp) return Ok{};
  return S3Error(s3::kServiceUnavailable, "The source changed while it was copied.");
}

// Without looking at the bytes.
S3Status copy_blocks(const ObjectFile& source, TempFile& file, KeepAlive& keep_alive) {
  for (uint64_t at = 0; at < source.size_bytes(); at += kStepBytes) {
    YARD_TRY(file.append(source.fd.get(), at, std::min(kStepBytes, source.size_bytes() - at)));
    keep_alive.tick();
  }
  return check_unchanged(source);
}

template <typename File>
S3Result<BodyDigests> copy_and_digest(const ObjectFile& source, const ByteRange& range, File& file,
                                      ChecksumAlgorithm algorithm, KeepAlive& keep_alive) {
  Checksum md5(ChecksumAlgorithm::kMd5);
  Checksum wanted(algorithm);
  std::vector<std::byte> buffer(std::min<uint64_t>(range.length, kPieceBytes));
  for (uint64_t done = 0; done < range.length;) {
    const size_t want = std::min<uint64_t>(buffer.size(), range.length - done);
    const ssize_t got = ::pread(source.fd.get(), buffer.data(), want, off_t(range.offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return s3_errno("the source of a copy", errno);
    if (got == 0) break;
    const auto piece = std::span<const std::byte>(buffer).first(size_t(got));
    md5.update(piece);
    wanted.update(piece);
    YARD_TRY(file.write(piece));
    done += uint64_t(got);
    keep_alive.tick();
  }
  YARD_TRY(check_unchanged(source));
  return BodyDigests{range.length, md5.digest(), wanted.digest()};
}

S3Result<bool> replaces_metadata(const Call& call) {
  const std::string_view directive = call.header("x-amz-metadata-directive").value_or("COPY");
  if (directive == "REPLACE") return true;
  if (directive == "COPY") return false;
  return S3Error(s3::kInvalidArgument, "Unknown metadata directive.");
}

// The algorithm that the copy's checksum is to have.
S3Result<ChecksumAlgorithm> algorithm_of(const Call& call, const ObjectMeta& source) {
  if (const auto named = call.header("x-amz-checksum-algorithm")) {
    const auto algorithm = parse_checksum_algorithm(*named);
    if (algorithm && *algorithm != ChecksumAlgorithm::kMd5) return *algorithm;
    return S3Error(s3::kInvalidRequest, "Checksum algorithm provided is unsupported.");
  }
  return source.checksum ? source.checksum->algorithm : ChecksumAlgorithm::kCrc64Nvme;
}

// Whether what is known of the source is what S3 says of its copy: an ETag that is the MD5, and a
// checksum of the whole.
bool knows_digests(const ObjectMeta& source, ChecksumAlgorithm algorithm) {
  return source.etag.find('-') == source.etag.npos && source.checksum &&
         source.checksum->algorithm == algorithm &&
         source.checksum->type == ChecksumType::kFullObject;
}

S3Result<ObjectMeta> copy_bytes(Call& call, const ObjectFile& source, TempFile& file,
                                KeepAlive& keep_alive) {
  YARD_ASSIGN(const bool replaces, replaces_metadata(call));
  YARD_ASSIGN(const ChecksumAlgorithm algorithm, algorithm_of(call, source.meta));
  ObjectMeta meta;
  if (replaces) {
    YARD_ASSIGN(meta, meta_of_request(call.headers()));
  } else {
    meta.headers = source.meta.headers;
    meta.user = source.meta.user;
  }
  YARD_TRY(file.reserve(source.size_bytes()));
  if (knows_digests(source.meta, algorithm)) {
    YARD_TRY(copy_blocks(source, file, keep_alive));
    meta.etag = source.meta.etag;
    meta.checksum = source.meta.checksum;
    return meta;
  }
  YARD_ASSIGN(const BodyDigests digests,
              copy_and_digest(source, {0, source.size_bytes()}, file, algorithm, keep_alive));
  meta.etag = hex_encode(bytes_of(digests.md5));
  meta.checksum =
      ObjectChecksum{algorithm, ChecksumType::kFullObject, base64_encode(bytes_of(digests.wanted))};
  return meta;
}

S3Result<XmlWriter> do_copy(Call& call, const ObjectFile& source, Bucket& bucket,
                            KeepAlive& keep_alive) {
  YARD_ASSIGN(TempFile file, call.services.root->make_temp_file());
  YARD_ASSIGN(const ObjectMeta meta, copy_bytes(call, source, file, keep_alive));
  YARD_TRY(bucket.store(std::move(file), meta, call.route.key, write_conditions(call)));
  tell(call, "ObjectCreated:Copy", call.route.key, source.size_bytes(), meta.etag);
  XmlWriter xml("CopyObjectResult");
  xml.text("LastModified", format_time(call.services.clock.wall_now()));
  xml.text("ETag", quoted(meta.etag)).text("ChecksumType", to_string(meta.checksum->type));
  xml.text(checksum_element(meta.checksum->algorithm), meta.checksum->base64);
  return xml;
}

}  // namespace

S3Status copy_object(Call& call) {
  YARD_TRY(check_storage_headers(call.headers()));
  YARD_ASSIGN(Bucket bucket, call.bucket());
  YARD_ASSIGN(const Source from, source_of(*call.header("x-amz-copy-source")));
  YARD_ASSIGN(const ObjectFile source, open_source(call, from));
  YARD_ASSIGN(const bool replaces, replaces_metadata(call));
  const bool is_itself = from.bucket == call.route.bucket && from.key == call.route.key;
  if (is_itself && !replaces && !call.header("x-amz-checksum-algorithm"))
    return S3Error(s3::kInvalidRequest,
                   "This copy request is illegal because it is trying to copy an object to itself "
                   "without changing the object's metadata, storage class, website redirect "
                   "location or encryption attributes.");
  YARD_TRY(check_early(call, bucket));
  KeepAlive keep_alive(call);
  return keep_alive.finish(do_copy(call, source, bucket, keep_alive));
}

S3Status upload_part_copy(Call& call) {
  YARD_TRY(call.bucket());
  YARD_ASSIGN(const uint32_t number, part_number_of(call.route));
  YARD_ASSIGN(const UploadInfo upload, upload_of(call));
  YARD_ASSIGN(const Source from, source_of(*call.header("x-amz-copy-source")));
  YARD_ASSIGN(const ObjectFile source, open_source(call, from));
  ByteRange range{0, source.size_bytes()};
  if (const auto wanted = call.header("x-amz-copy-source-range")) {
    YARD_ASSIGN(range, parse_copy_range(*wanted, source.size_bytes()));
  }
  KeepAlive keep_alive(call);
  const auto copied = [&]() -> S3Result<XmlWriter> {
    YARD_ASSIGN(PartFile file, call.services.uploads.open_part(upload, number, range.length));
    YARD_ASSIGN(const BodyDigests digests,
                copy_and_digest(source, range, file, upload.algorithm, keep_alive));
    YARD_TRY(call.services.uploads.put_part(upload, number, std::move(file), digests));
    XmlWriter xml("CopyPartResult");
    xml.text("LastModified", format_time(call.services.clock.wall_now()));
    xml.text("ETag", quoted(hex_encode(bytes_of(digests.md5))));
    xml.text(checksum_element(upload.algorithm), base64_encode(bytes_of(digests.wanted)));
    return xml;
  };
  return keep_alive.finish(copied());
}

}  // namespace yard::gateway
