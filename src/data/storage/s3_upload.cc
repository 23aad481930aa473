#include "storage/s3_upload_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "net/encoding.h"
#include "storage/trailed_body.h"

namespace yard::storage {
namespace {

constexpr int kPartsPerDoubling = 1000;
constexpr uint64_t kPieceBytes = 256 << 10;
constexpr uint64_t kSummedBytes = 128 << 10;  // small enough to be on the heap already

// "ChecksumCRC32C", as the elements of S3's XML are named.
std::string checksum_element(ChecksumAlgorithm algorithm) {
  return fmt::format("Checksum{}", to_string(algorithm));
}

// What a copy or the end of an upload answered; with 200, S3 may send an error nevertheless.
Status check_written(const HttpResponse& response) {
  if (auto error = s3_xml::parse_error(response.body))
    return Error{Code::kUnavailable, fmt::format("{}: {}", error->code, error->message)};
  auto written = s3_xml::parse_written(response.body);
  if (!written) return std::move(written).error();
  return Ok{};
}

}  // namespace

uint64_t s3_part_bytes(uint64_t part_bytes, uint64_t size_bytes_hint, int index) {
  constexpr uint64_t kMiB = 1 << 20;
  const uint64_t needed = (size_bytes_hint + kS3PartCountMax - 1) / kS3PartCountMax;
  uint64_t bytes = std::max(part_bytes, (needed + kMiB - 1) / kMiB * kMiB);
  // Beyond what was announced, too.
  const bool is_announced = uint64_t(index) * bytes < size_bytes_hint;
  if (!is_announced) bytes <<= std::min(index / kPartsPerDoubling, 10);
  return std::min(bytes, kS3PartBytesMax);
}

// ---- the upload on the server

S3Request S3Multipart::request(std::string method) const {
  return {.method = std::move(method), .bucket = bucket_, .key = key_};
}

Status S3Multipart::create() {
  S3Request create = request("POST");
  create.query = {{"uploads", ""}};
  create.headers.add("x-amz-checksum-algorithm", to_string(client_.options().upload_checksum));
  // CRC64NVME is of the whole anyway.
  if (client_.options().upload_checksum != ChecksumAlgorithm::kCrc64Nvme)
    create.headers.add("x-amz-checksum-type", "FULL_OBJECT");
  create.check_body = [](const HttpResponse& response, auto) -> Status {
    if (auto id = s3_xml::parse_upload_id(response.body); !id) return std::move(id).error();
    return Ok{};
  };
  YARD_ASSIGN(const HttpResponse response, client_.expect(create));
  YARD_ASSIGN(upload_id_, s3_xml::parse_upload_id(response.body));
  takes_trailers_ = response.headers.contains(kTakesTrailersHeader);
  return Ok{};
}

// Without its checksum.
Result<s3_xml::UploadedPart> S3Multipart::send_part(int number, S3Request put) {
  put.query = {{"partNumber", std::to_string(number)}, {"uploadId", upload_id_}};
  YARD_ASSIGN(const HttpResponse response, client_.expect(put));
  s3_xml::UploadedPart part{.number = number};
  part.etag = s3_xml::without_quotes(response.headers.value_or("ETag", ""));
  if (!part.etag.empty()) return part;
  return Error{Code::kCorrupt,
               fmt::format("{}: the server gave part {} no ETag", s3_name(bucket_, key_), number)};
}

Result<s3_xml::UploadedPart> S3Multipart::put_part(int number, std::span<const std::byte> bytes,
                                                   std::string checksum_base64) {
  S3Request put = request("PUT");
  put.headers.add(checksum_header(client_.options().upload_checksum), checksum_base64);
  put.body = bytes;
  YARD_ASSIGN(s3_xml::UploadedPart part, send_part(number, std::move(put)));
  part.checksum_base64 = std::move(checksum_base64);
  return part;
}

// In a buffer that stays in the CPU's cache.
Result<std::string> S3Multipart::sum(const RangeReader& read, uint64_t size_bytes) const {
  Checksum checksum(client_.options().upload_checksum);
  const auto buffer =
      std::make_unique_for_overwrite<std::byte[]>(std::min(size_bytes, kSummedBytes));
  for (uint64_t at = 0; at < size_bytes; at += kSummedBytes) {
    const std::span<std::byte> piece(buffer.get(), std::min(size_bytes - at, kSummedBytes));
    YARD_TRY(read(at, piece));
    checksum.update(piece);
  }
  return checksum.base64();
}

Result<s3_xml::UploadedPart> S3Multipart::put_part_from(int number, const RangeReader& read,
                                                        uint64_t size_bytes) {
  if (takes_trailers_) return put_trailed_part(number, read, size_bytes);
  S3Request put = request("PUT");
  YARD_ASSIGN(std::string checksum_base64, sum(read, size_bytes));
  put.headers.add(checksum_header(client_.options().upload_checksum), checksum_base64);
  put.body_reader = read;
  put.body_reader_bytes = size_bytes;
  YARD_ASSIGN(s3_xml::UploadedPart part, send_part(number, std::move(put)));
  part.checksum_base64 = std::move(checksum_base64);
  return part;
}

Result<s3_xml::UploadedPart> S3Multipart::put_trailed_part(int number, const RangeReader& read,
                                                           uint64_t size_bytes) {
  TrailedBody body(client_.options().upload_checksum, read, size_bytes);
  S3Request put = request("PUT");
  put.headers = body.headers();
  put.body_reader = [&body](uint64_t offset, std::span<std::byte> into) {
    return body.read(offset, into);
  };
  put.body_reader_bytes = body.encoded_bytes();
  put.has_trailer = true;
  YARD_ASSIGN(s3_xml::UploadedPart part, send_part(number, std::move(put)));
  part.checksum_base64 = body.checksum_base64();
  return part;
}

Result<s3_xml::UploadedPart> S3Multipart::copy_part(int number, std::string_view source,
                                                    std::string_view etag, uint64_t offset,
                                                    uint64_t size_bytes) {
  S3Request copy = request("PUT");
  copy.query = {{"partNumber", std::to_string(number)}, {"uploadId", upload_id_}};
  copy.headers.add("x-amz-copy-source", source);
  copy.headers.add("x-amz-copy-source-if-match", fmt::format("\"{}\"", etag));
  copy.headers.add("x-amz-copy-source-range",
                   fmt::format("bytes={}-{}", offset, offset + size_bytes - 1));
  copy.is_commit = true;
  copy.check_body = [](const HttpResponse& response, auto) { return check_written(response); };
  YARD_ASSIGN(const HttpResponse response, client_.expect(copy));
  YARD_ASSIGN(s3_xml::WrittenBody written, s3_xml::parse_written(response.body));
  return s3_xml::UploadedPart{.number = number, .etag = std::move(written.etag)};
}

Result<ObjectInfo> S3Multipart::complete(const std::vector<s3_xml::UploadedPart>& parts,
                                         std::string_view checksum, uint64_t size_bytes,
                                         const PutOptions& options) {
  const ChecksumAlgorithm algorithm = client_.options().upload_checksum;
  const std::string xml = s3_xml::complete_upload(parts, checksum_element(algorithm));
  S3Request complete = request("POST");
  complete.query = {{"uploadId", upload_id_}};
  complete.headers.add("Content-Type", "application/xml");
  if (!checksum.empty()) {
    complete.headers.add("x-amz-checksum-type", "FULL_OBJECT");
    complete.headers.add(checksum_header(algorithm), checksum);
  }
  if (options.if_absent) complete.headers.add("If-None-Match", "*");
  complete.body = bytes_of(xml);
  complete.is_commit = true;
  complete.check_body = [](const HttpResponse& response, auto) { return check_written(response); };
  YARD_ASSIGN(const HttpResponse response, client_.send(complete));
  if (response.status == 412)
    return Error{Code::kInvalidArgument, s3_name(bucket_, key_) + ": already exists"};
  if (response.status >= 300) {
    Error error = client_.error_of(complete, response);
    if (response.status == 404) return after_lost_answer(parts.size(), checksum, size_bytes, error);
    return error;
  }
  upload_id_.clear();
  YARD_ASSIGN(s3_xml::WrittenBody written, s3_xml::parse_written(response.body));
  if (written.etag.empty())  // radosgw 16 does so
    return after_lost_answer(parts.size(), checksum, size_bytes,
                             {Code::kCorrupt, s3_name(bucket_, key_) + ": is not what was put"});
  return ObjectInfo{key_, size_bytes, std::move(written.etag), client_.wall_now(), {}};
}

// The server knows the upload no more: an earlier request of ours (libcurl repeats one by itself
// when a kept connection turns out dead) may have ended it, its answer lost.
Result<ObjectInfo> S3Multipart::after_lost_answer(size_t part_count, std::string_view checksum,
                                                  uint64_t size_bytes, const Error& error) const {
  S3Store store(service_, bucket_);
  auto info = store.head(key_);
  if (!info) return info.error().code == Code::kNotFound ? error : std::move(info).error();
  const std::string ours =
      fmt::format("{}:{}", to_string(client_.options().upload_checksum), checksum);
  const bool is_ours = info->size_bytes == size_bytes &&
                       info->etag.ends_with(fmt::format("-{}", part_count)) &&
                       (info->checksum.empty() || checksum.empty() || info->checksum == ours);
  return is_ours ? info : Result<ObjectInfo>(error);
}

void S3Multipart::abort() {
  if (!is_open()) return;
  S3Request abort = request("DELETE");
  abort.query = {{"uploadId", upload_id_}};
  abort.is_cleanup = true;
  upload_id_.clear();
  if (auto aborted = client_.expect(abort); !aborted && aborted.error().code != Code::kNotFound)
    log_warning(
        "an unfinished upload stays on the server: {}; `yard s3 uploads '{}'` shows it, "
        "with --abort removes it",
        aborted.error().message, s3_name(bucket_, key_));
}

// ---- the object being written

S3Upload::S3Upload(std::shared_ptr<S3Service> service, std::string bucket, std::string key,
                   const PutOptions& options)
    : service_(std::move(service)),
      client_(service_->client()),
      bucket_(bucket),
      key_(key),
      options_(options),
      multipart_(service_, std::move(bucket), std::move(key)) {}

S3Upload::~S3Upload() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return under_way_count_ == 0; });
  }
  drop(filling_);
  if (!done_) multipart_.abort();
}

void S3Upload::drop(Buffer& buffer) {
  if (!buffer.memory) return;
  const size_t capacity = buffer.memory.span().size();
  buffer.memory.reset();
  if (buffer.is_of_budget) client_.upload_memory().give(capacity);
  const std::lock_guard lock(mutex_);
  if (!buffer.is_of_budget) own_buffer_in_use_ = false;
  changed_.notify_all();
}

// Every upload may have one buffer, so that none waits for the others; more come out of the budget.
Status S3Upload::take_buffer() {
  const uint64_t capacity = next_part_bytes();
  std::unique_lock lock(mutex_);
  bool is_of_budget = false;
  changed_.wait(lock, [&] {
    if (error_ || !own_buffer_in_use_) return true;
    return is_of_budget = under_way_count_ < client_.options().part_count_at_once &&
                          client_.upload_memory().try_take(capacity);
  });
  if (error_) {
    if (is_of_budget) client_.upload_memory().give(capacity);
    return *error_;
  }
  if (!is_of_budget) own_buffer_in_use_ = true;
  filling_ = {client_.upload_buffers().take(capacity), 0, is_of_budget,
              Checksum(client_.options().upload_checksum)};
  return Ok{};
}

Status S3Upload::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    YARD_ASSIGN(const auto piece, next_piece(bytes.size()));
    std::memcpy(piece.data(), bytes.data(), piece.size());
    filled(piece);
    bytes = bytes.subspan(piece.size());
  }
  return Ok{};
}

// Whether more than one part follows, or parts were sent: what fits into one is put in one request.
bool S3Upload::is_sent_straight(uint64_t left_bytes) const {
  if (filling_.memory || client_.signs_bodies()) return false;
  return part_count_ == 0 ? left_bytes > next_part_bytes() : left_bytes >= next_part_bytes();
}

Status S3Upload::write_from(uint64_t size_bytes, const RangeReader& read,
                            const std::function<void(uint64_t)>& on_written) {
  const auto shared_read = std::make_shared<const RangeReader>(read);
  for (uint64_t at = 0; at < size_bytes;) {
    if (is_sent_straight(size_bytes - at)) {
      const uint64_t part_bytes = next_part_bytes();
      YARD_TRY(send_read_part(at, part_bytes, shared_read, on_written));
      at += part_bytes;
      continue;
    }
    YARD_ASSIGN(const auto piece, next_piece(size_bytes - at));
    YARD_TRY(read(at, piece));
    filled(piece);
    if (on_written) on_written(piece.size());
    at += piece.size();
  }
  return Ok{};
}

// Space for some of the next bytes. A full part is sent when more follows, so that what fits into
// one part is put in one request.
Result<std::span<std::byte>> S3Upload::next_piece(uint64_t bytes_max) {
  if (filling_.memory && filling_.size_bytes == filling_.memory.span().size())
    YARD_TRY(send_part());
  if (!filling_.memory) YARD_TRY(take_buffer());
  const auto space = filling_.memory.span().subspan(filling_.size_bytes);
  return space.first(std::min({bytes_max, uint64_t{space.size()}, kPieceBytes}));
}

void S3Upload::filled(std::span<const std::byte> piece) {
  filling_.checksum->update(piece);  // while the CPU's cache holds it
  filling_.size_bytes += piece.size();
  size_bytes_ += piece.size();
}

// The number of the next part, which is under way from now on.
Result<int> S3Upload::add_part(uint64_t size_bytes) {
  if (!multipart_.is_open()) YARD_TRY(multipart_.create());
  const int number = ++part_count_;
  if (number > kS3PartCountMax)
    return Error{Code::kExhausted,
                 fmt::format("{}: more than {} parts", s3_name(bucket_, key_), kS3PartCountMax)};
  const std::lock_guard lock(mutex_);
  ++under_way_count_;
  parts_.emplace_back();
  part_sizes_.push_back(size_bytes);
  return number;
}

Status S3Upload::send_part() {
  YARD_ASSIGN(const int number, add_part(filling_.size_bytes));
  // std::function wants to be copied.
  auto buffer = std::make_shared<Buffer>(std::move(filling_));
  filling_ = {};
  client_.part_queue().push([this, number, buffer] { run_part(number, std::move(*buffer)); });
  return Ok{};
}

Status S3Upload::send_read_part(uint64_t offset, uint64_t size_bytes,
                                const std::shared_ptr<const RangeReader>& read,
                                const std::function<void(uint64_t)>& on_written) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(
        lock, [&] { return error_ || under_way_count_ < client_.options().part_count_at_once; });
    if (error_) return *error_;
  }
  YARD_ASSIGN(const int number, add_part(size_bytes));
  size_bytes_ += size_bytes;
  const auto read_here = [read, offset](uint64_t position, std::span<std::byte> into) {
    return (*read)(offset + position, into);
  };
  client_.part_queue().push(
      [this, part = ReadPart{number, size_bytes, read_here, on_written}] { run_read_part(part); });
  return Ok{};
}

bool S3Upload::is_wanted() {
  const std::lock_guard lock(mutex_);
  return !error_;
}

void S3Upload::end_part(int number, Result<s3_xml::UploadedPart> sent) {
  const std::lock_guard lock(mutex_);
  if (sent)
    parts_[size_t(number - 1)] = *std::move(sent);
  else if (!error_)
    error_ = std::move(sent).error();
  --under_way_count_;
  changed_.notify_all();
}

void S3Upload::run_part(int number, Buffer buffer) {
  Result<s3_xml::UploadedPart> sent = s3_xml::UploadedPart{};
  if (is_wanted())
    sent = multipart_.put_part(number, buffer.memory.span().first(buffer.size_bytes),
                               buffer.checksum->base64());
  drop(buffer);
  end_part(number, std::move(sent));
}

void S3Upload::run_read_part(const ReadPart& part) {
  Result<s3_xml::UploadedPart> sent = s3_xml::UploadedPart{};
  if (is_wanted()) {
    sent = multipart_.put_part_from(part.number, part.read, part.size_bytes);
    if (sent && part.on_written) part.on_written(part.size_bytes);
  }
  end_part(part.number, std::move(sent));
}

Status S3Upload::wait_until_sent() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return under_way_count_ == 0; });
  if (error_) return *error_;
  return Ok{};
}

Result<ObjectInfo> S3Upload::put_whole() {
  S3Store store(service_, bucket_);
  return store.put(key_, filling_.memory.span().first(filling_.size_bytes), options_);
}

Result<ObjectInfo> S3Upload::commit() {
  if (!multipart_.is_open()) {
    YARD_ASSIGN(ObjectInfo info, put_whole());
    done_ = true;
    return info;
  }
  if (filling_.size_bytes > 0) YARD_TRY(send_part());
  YARD_TRY(wait_until_sent());
  const ChecksumAlgorithm algorithm = client_.options().upload_checksum;
  std::string digest = *base64_decode(parts_.front().checksum_base64);
  for (size_t i = 1; i < parts_.size(); ++i)
    digest = combine_crc_digests(algorithm, digest, *base64_decode(parts_[i].checksum_base64),
                                 part_sizes_[i]);
  YARD_ASSIGN(ObjectInfo info,
              multipart_.complete(parts_, base64_encode(bytes_of(digest)), size_bytes_, options_));
  done_ = true;
  return info;
}

}  // namespace yard::storage
