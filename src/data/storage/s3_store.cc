#include "storage/s3_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <mutex>

#include "base/ids.h"
#include "net/encoding.h"
#include "net/uri.h"
#include "storage/keys.h"
#include "storage/s3_client_internal.h"
#include "storage/s3_upload_internal.h"

namespace yard::storage {
namespace {

constexpr uint64_t kPutBytesMax = uint64_t{5} << 30;   // of one request
constexpr uint64_t kCopyBytesMax = uint64_t{1} << 30;  // in one request; more is copied in parts
constexpr uint64_t kCopyPartBytes = uint64_t{256} << 20;
constexpr size_t kRemoveKeysMax = 1000;  // of one request
// Whose put an object is, for a conditional put whose first answer was lost.
constexpr std::string_view kPutTokenHeader = "x-amz-meta-yard-put";

std::string quoted(std::string_view etag) {
  return fmt::format("\"{}\"", etag);
}

Error change_error(std::string_view name) {
  return {Code::kCorrupt, fmt::format("{}: changed while it was read", name)};
}

Error past_end_error(std::string_view name, uint64_t offset, uint64_t count, uint64_t size_bytes) {
  return {Code::kInvalidArgument, fmt::format("{}: range of {} bytes at {} runs past its {} bytes",
                                              name, count, offset, size_bytes)};
}

std::optional<uint64_t> number_of(std::string_view text) {
  uint64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != text.data() + text.size())
    return std::nullopt;
  return value;
}

struct ContentRange {
  uint64_t first = 0;
  uint64_t last = 0;
  uint64_t size_bytes = 0;
};

// "bytes 0-99/1000" (RFC 9110, section 14.4).
std::optional<ContentRange> parse_content_range(std::string_view text) {
  if (!text.starts_with("bytes ")) return std::nullopt;
  text.remove_prefix(6);
  const size_t dash = text.find('-');
  const size_t slash = text.find('/');
  if (dash == text.npos || slash == text.npos || dash > slash) return std::nullopt;
  const auto first = number_of(text.substr(0, dash));
  const auto last = number_of(text.substr(dash + 1, slash - dash - 1));
  const auto size_bytes = number_of(text.substr(slash + 1));
  if (!first || !last || !size_bytes) return std::nullopt;
  return ContentRange{*first, *last, *size_bytes};
}

Status check_version(const ResponseHead& head, std::string_view etag, std::string_view name) {
  if (etag.empty() || s3_xml::without_quotes(head.headers.value_or("ETag", "")) == etag)
    return Ok{};
  return change_error(name);  // the server ignored If-Match
}

Status check_range_head(const ResponseHead& head, std::string_view etag, std::string_view name,
                        uint64_t offset, uint64_t count) {
  YARD_TRY(check_version(head, etag, name));
  const auto content_range = head.headers.find("Content-Range");
  if (!content_range) {
    // Ranges are ignored; that is right only when the range is the whole.
    const auto length = number_of(head.headers.value_or("Content-Length", ""));
    if (head.status == 200 && offset == 0 && length == count) return Ok{};
    return Error{Code::kCorrupt, fmt::format("{}: the server does not give ranges", name)};
  }
  const auto range = parse_content_range(*content_range);  // rclone sends it with 200
  if (!range || range->first != offset)
    return Error{Code::kCorrupt, fmt::format("{}: the server gave another range", name)};
  if (range->last - range->first + 1 < count)
    return past_end_error(name, offset, count, range->size_bytes);
  return Ok{};
}

// The checksum of the parts' checksums ("...-3") is not of the bytes. Some servers forget to say
// that, of objects that were put in parts (their ETags end so, too).
bool is_of_whole(const Headers& headers, std::string_view value) {
  const bool is_multipart = headers.value_or("ETag", "").find('-') != std::string_view::npos;
  return headers.value_or("x-amz-checksum-type", is_multipart ? "COMPOSITE" : "FULL_OBJECT") ==
             "FULL_OBJECT" &&
         value.find('-') == value.npos;
}

Status check_checksums(const Headers& headers, std::span<const std::byte> content,
                       std::string_view name) {
  for (const auto field : headers) {
    const auto algorithm = checksum_of_header(field.name);
    if (!algorithm || *algorithm == ChecksumAlgorithm::kMd5 || !is_of_whole(headers, field.value))
      continue;
    if (checksum_base64(*algorithm, content) != field.value)
      return Error{Code::kCorrupt, fmt::format("{}: the bytes do not have the {} that the server "
                                               "names",
                                               name, to_string(*algorithm))};
  }
  return Ok{};
}

std::string checksum_of(const Headers& headers) {
  for (const auto field : headers) {
    const auto algorithm = checksum_of_header(field.name);
    if (algorithm && *algorithm != ChecksumAlgorithm::kMd5 && is_of_whole(headers, field.value))
      return fmt::format("{}:{}", to_string(*algorithm), field.value);
  }
  return {};
}

// A page of the server's in byte order of both kinds, as PageBuilder wants them.
void add_to_page(s3_xml::ListBody list, PageBuilder& page) {
  auto object = list.objects.begin();
  auto prefix = list.common_prefixes.begin();
  while (object != list.objects.end() || prefix != list.common_prefixes.end()) {
    if (page.done()) return;
    const bool is_object = prefix == list.common_prefixes.end() ||
                           (object != list.objects.end() && object->key < *prefix);
    if (is_object) {
      if (page.wants(object->key)) page.add(std::move(*object));
      ++object;
    } else {
      // Stands for the last key under it, which start_after cannot be past. wants() notes it.
      constexpr std::string_view kLastCharacter = "\xF4\x8F\xBF\xBF";
      static_cast<void>(page.wants(*prefix + std::string(kLastCharacter)));
      ++prefix;
    }
  }
}

std::string copy_source(std::string_view bucket, std::string_view key) {
  return fmt::format("/{}/{}", percent_encode(bucket), percent_encode_path(key));
}

}  // namespace

// ---- the service

Result<std::shared_ptr<S3Service>> S3Service::open(S3Options options, Clock& clock) {
  YARD_ASSIGN(auto client, S3Client::open(std::move(options), clock));
  return std::shared_ptr<S3Service>(new S3Service(std::move(client)));
}

S3Service::S3Service(std::unique_ptr<S3Client> client) : client_(std::move(client)) {}
S3Service::~S3Service() = default;

const std::string& S3Service::endpoint_url() const {
  return client_->endpoint_url();
}

Status S3Service::check_credentials() {
  return client_->check_credentials();
}

Result<std::vector<std::string>> S3Service::list_buckets() {
  YARD_ASSIGN(const HttpResponse response, client_->expect({}));
  return s3_xml::parse_buckets(response.body);
}

Status S3Service::create_bucket(std::string_view bucket) {
  S3Request request{.method = "PUT", .bucket = std::string(bucket)};
  const std::string& region = client_->options().region;
  const std::string body = fmt::format(
      "<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
      "<LocationConstraint>{}</LocationConstraint></CreateBucketConfiguration>",
      region);
  if (region != "us-east-1") request.body = bytes_of(body);  // which must not be named
  YARD_ASSIGN(const HttpResponse response, client_->send(request));
  const auto error = s3_xml::parse_error(response.body);
  if (response.status < 300 || (error && error->code == "BucketAlreadyOwnedByYou")) return Ok{};
  return client_->error_of(request, response);
}

// ---- the store

S3Store::S3Store(std::shared_ptr<S3Service> service, std::string bucket)
    : service_(std::move(service)), client_(service_->client()), bucket_(std::move(bucket)) {}

Status S3Store::check_own_key(std::string_view key) const {
  if (!client_.options().any_key) return check_key(key);
  if (!key.empty() && key.size() <= kKeyBytesMax && key.find('\0') == key.npos && is_utf8(key))
    return Ok{};
  return Error{Code::kInvalidArgument, fmt::format("key '{}': not 1 to {} bytes of UTF-8",
                                                   key.substr(0, 200), kKeyBytesMax)};
}

StoreSpeed S3Store::speed() const {
  return client_.speed();
}

Status S3Store::get_range(std::string_view key, std::string_view etag, uint64_t offset,
                          std::span<std::byte> out) {
  return read_range(key, etag, offset, out.size(), {.into = out});
}

Status S3Store::get_range_to(std::string_view key, std::string_view etag, uint64_t offset,
                             uint64_t size_bytes, const RangeSink& sink) {
  return read_range(key, etag, offset, size_bytes, {.sink = &sink, .sink_bytes = size_bytes});
}

// `request` says where the bytes go.
Status S3Store::read_range(std::string_view key, std::string_view etag, uint64_t offset,
                           uint64_t size_bytes, S3Request request) {
  YARD_TRY(check_own_key(key));
  const std::string name = s3_name(bucket_, key);
  if (size_bytes == 0 || offset > UINT64_MAX - size_bytes) {
    // HTTP has no empty range.
    YARD_ASSIGN(const ObjectInfo info, head(key));
    if (!etag.empty() && info.etag != etag) return change_error(name);
    if (offset > info.size_bytes || size_bytes > info.size_bytes - offset)
      return past_end_error(name, offset, size_bytes, info.size_bytes);
    return Ok{};
  }
  request.bucket = bucket_;
  request.key = key;
  request.may_hedge = true;
  request.headers.add("Range", fmt::format("bytes={}-{}", offset, offset + size_bytes - 1));
  if (!etag.empty()) request.headers.add("If-Match", quoted(etag));
  request.check_head = [&](const ResponseHead& head) {
    return check_range_head(head, etag, name, offset, size_bytes);
  };
  YARD_ASSIGN(const HttpResponse response, client_.send(request));
  if (response.status == 412) return change_error(name);
  if (response.status == 416) {
    const std::string_view range = response.headers.value_or("Content-Range", "");  // "bytes */9"
    const auto object_bytes = number_of(range.substr(std::min(range.find('/') + 1, range.size())));
    return past_end_error(name, offset, size_bytes, object_bytes.value_or(0));
  }
  if (response.status >= 300) return client_.error_of(request, response);
  return Ok{};
}

Status S3Store::get_object(const ObjectInfo& info, std::span<std::byte> out) {
  YARD_CHECK(out.size() == info.size_bytes);
  YARD_TRY(check_own_key(info.key));
  const std::string name = s3_name(bucket_, info.key);
  S3Request request{.bucket = bucket_, .key = info.key, .into = out, .may_hedge = true};
  request.headers.add("x-amz-checksum-mode", "ENABLED");
  if (!info.etag.empty()) request.headers.add("If-Match", quoted(info.etag));
  request.check_head = [&](const ResponseHead& head) -> Status {
    YARD_TRY(check_version(head, info.etag, name));
    const auto length = number_of(head.headers.value_or("Content-Length", ""));
    if (length && *length != info.size_bytes) return change_error(name);
    if (head.status == 206)
      return Error{Code::kCorrupt, name + ": the server gave a range instead of the whole"};
    return Ok{};
  };
  request.check_body = [&](const HttpResponse& response, std::span<const std::byte> content) {
    return check_checksums(response.headers, content, name);
  };
  YARD_ASSIGN(const HttpResponse response, client_.send(request));
  if (response.status == 412) return change_error(name);
  if (response.status >= 300) return client_.error_of(request, response);
  return Ok{};
}

Result<ObjectInfo> S3Store::head(std::string_view key) {
  YARD_TRY(check_own_key(key));
  S3Request request{.method = "HEAD", .bucket = bucket_, .key = std::string(key)};
  request.headers.add("x-amz-checksum-mode", "ENABLED");
  YARD_ASSIGN(const HttpResponse response, client_.expect(request));
  const auto size_bytes = number_of(response.headers.value_or("Content-Length", ""));
  if (!size_bytes)
    return Error{Code::kCorrupt,
                 s3_name(bucket_, key) + ": the server does not say how long it is"};
  ObjectInfo info{std::string(key), *size_bytes,
                  s3_xml::without_quotes(response.headers.value_or("ETag", ""))};
  if (auto modified = parse_http_date(response.headers.value_or("Last-Modified", "")))
    info.modified = *modified;
  info.checksum = checksum_of(response.headers);
  return info;
}

Result<ListPage> S3Store::list(const ListRequest& request) {
  YARD_TRY(check_list_request(request));
  PageBuilder page(request);
  std::string token;
  do {
    S3Request http{.bucket = bucket_};
    http.query = {{"list-type", "2"}, {"encoding-type", "url"}};
    // One more than asked, for start_after's own common prefix, which servers name once more; and
    // to know whether there is a next page.
    http.query.push_back(
        {"max-keys", std::to_string(std::min(1000U, request.object_count_max + 2))});
    if (!request.prefix.empty()) http.query.push_back({"prefix", request.prefix});
    if (!request.delimiter.empty()) http.query.push_back({"delimiter", request.delimiter});
    if (!token.empty())
      http.query.push_back({"continuation-token", token});
    else if (!request.start_after.empty())
      http.query.push_back({"start-after", request.start_after});
    YARD_ASSIGN(const HttpResponse response, client_.expect(http));
    auto list = s3_xml::parse_list(response.body);
    if (!list) return std::move(list).error().while_("listing " + s3_name(bucket_, request.prefix));
    if (!token.empty() && list->continuation_token == token)
      return Error{Code::kCorrupt, fmt::format("listing {}: the server names the same next page "
                                               "again and again",
                                               s3_name(bucket_, request.prefix))};
    token = list->continuation_token;
    add_to_page(*std::move(list), page);
  } while (!token.empty() && !page.done());
  return page.take();
}

Result<ObjectInfo> S3Store::put(std::string_view key, std::span<const std::byte> content,
                                const PutOptions& options) {
  YARD_TRY(check_own_key(key));
  if (content.size() > kPutBytesMax) {
    PutOptions upload_options = options;
    upload_options.size_bytes_hint = content.size();
    YARD_ASSIGN(const auto upload, this->upload(key, upload_options));
    YARD_TRY(upload->write(content));
    return upload->commit();
  }
  const ChecksumAlgorithm algorithm = client_.options().upload_checksum;
  S3Request request{.method = "PUT", .bucket = bucket_, .key = std::string(key), .body = content};
  request.headers.add(checksum_header(algorithm), checksum_base64(algorithm, content));
  const std::string token = random_name(20);
  if (options.if_absent) {
    request.headers.add("If-None-Match", "*");
    request.headers.add(kPutTokenHeader, token);
  }
  YARD_ASSIGN(const HttpResponse response, client_.send(request));
  if (options.if_absent && response.status == 412) {
    // Or an earlier request of ours did it, its answer lost; libcurl may have repeated it by
    // itself.
    S3Request look{.method = "HEAD", .bucket = bucket_, .key = std::string(key)};
    YARD_ASSIGN(const HttpResponse found, client_.send(look));
    if (found.headers.value_or(kPutTokenHeader, "") == token) return head(key);
    return Error{Code::kInvalidArgument, s3_name(bucket_, key) + ": already exists"};
  }
  if (response.status >= 300) return client_.error_of(request, response);
  ObjectInfo info{std::string(key),
                  content.size(),
                  s3_xml::without_quotes(response.headers.value_or("ETag", "")),
                  client_.wall_now(),
                  {}};
  return info;
}

Result<std::unique_ptr<Upload>> S3Store::upload(std::string_view key, const PutOptions& options) {
  YARD_TRY(check_own_key(key));
  return std::unique_ptr<Upload>(
      std::make_unique<S3Upload>(service_, bucket_, std::string(key), options));
}

Result<ObjectInfo> S3Store::copy(std::string_view source, std::string_view key,
                                 const PutOptions& options) {
  return copy_from(*this, source, key, options);
}

Result<ObjectInfo> S3Store::copy_from(const S3Store& source_store, std::string_view source,
                                      std::string_view key, const PutOptions& options) {
  YARD_CHECK(same_service(source_store));
  YARD_TRY(check_own_key(key));
  S3Store from(service_, source_store.bucket_);
  YARD_ASSIGN(const ObjectInfo info, from.head(source));
  if (options.if_absent) {
    // Not every server knows the condition on copies.
    auto found = head(key);
    if (found) return Error{Code::kInvalidArgument, s3_name(bucket_, key) + ": already exists"};
    if (found.error().code != Code::kNotFound) return std::move(found).error();
  }
  if (info.size_bytes > kCopyBytesMax) return copy_parts(from.bucket_, info, key, options);
  S3Request request{.method = "PUT", .bucket = bucket_, .key = std::string(key)};
  request.headers.add("x-amz-copy-source", copy_source(from.bucket_, source));
  request.headers.add("x-amz-copy-source-if-match", quoted(info.etag));
  if (options.if_absent) request.headers.add("If-None-Match", "*");
  request.is_commit = true;
  request.check_body = [](const HttpResponse& response, auto) -> Status {
    // With 200, S3 may send an error nevertheless.
    if (auto error = s3_xml::parse_error(response.body))
      return Error{Code::kUnavailable, fmt::format("{}: {}", error->code, error->message)};
    if (auto written = s3_xml::parse_written(response.body); !written)
      return std::move(written).error();
    return Ok{};
  };
  YARD_ASSIGN(const HttpResponse response, client_.send(request));
  if (response.status == 412 && options.if_absent)
    return Error{Code::kInvalidArgument, s3_name(bucket_, key) + ": already exists"};
  if (response.status == 412) return change_error(s3_name(from.bucket_, source));
  if (response.status >= 300) return client_.error_of(request, response);
  YARD_ASSIGN(s3_xml::WrittenBody written, s3_xml::parse_written(response.body));
  return ObjectInfo{std::string(key),
                    info.size_bytes,
                    std::move(written.etag),
                    written.modified.value_or(client_.wall_now()),
                    {}};
}

Result<ObjectInfo> S3Store::copy_parts(const std::string& source_bucket, const ObjectInfo& source,
                                       std::string_view key, const PutOptions& options) {
  const uint64_t part_bytes = s3_part_bytes(kCopyPartBytes, source.size_bytes, 0);
  const auto part_count = static_cast<size_t>((source.size_bytes + part_bytes - 1) / part_bytes);
  S3Multipart multipart(service_, bucket_, std::string(key));
  YARD_TRY(multipart.create());
  std::vector<std::optional<Result<s3_xml::UploadedPart>>> parts(part_count);
  std::mutex mutex;
  std::condition_variable changed;
  size_t left_count = part_count;
  for (size_t i = 0; i < part_count; ++i)
    client_.part_queue().push([&, i] {
      const uint64_t offset = i * part_bytes;
      auto part = multipart.copy_part(static_cast<int>(i + 1),
                                      copy_source(source_bucket, source.key), source.etag, offset,
                                      std::min(part_bytes, source.size_bytes - offset));
      const std::lock_guard lock(mutex);
      parts[i].emplace(std::move(part));
      if (--left_count == 0) changed.notify_all();
    });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return left_count == 0; });
  }
  std::vector<s3_xml::UploadedPart> done;
  for (auto& part : parts) {
    if (!*part) {
      multipart.abort();
      return std::move(*part).error();
    }
    done.push_back(**std::move(part));
  }
  auto info = multipart.complete(done, {}, source.size_bytes, options);
  if (!info) multipart.abort();
  return info;
}

Status S3Store::remove(std::string_view key) {
  YARD_TRY(check_own_key(key));
  S3Request request{.method = "DELETE", .bucket = bucket_, .key = std::string(key)};
  YARD_ASSIGN(const HttpResponse response, client_.send(request));
  const auto error = s3_xml::parse_error(response.body);
  if (response.status < 300 || (error && error->code == "NoSuchKey")) return Ok{};
  return client_.error_of(request, response);
}

Status S3Store::remove_all(std::span<const std::string> keys) {
  std::optional<Error> first;
  const auto note = [&](Status status) {
    if (!status && !first) first = std::move(status).error();
  };
  std::vector<std::string> batch;
  const auto flush = [&] {
    if (!batch.empty()) note(remove_batch(batch));
    batch.clear();
  };
  for (const std::string& key : keys) {
    if (auto valid = check_own_key(key); !valid)
      note(std::move(valid));
    else if (!s3_xml::can_write(key))
      note(remove(key));
    else
      batch.push_back(key);
    if (batch.size() == kRemoveKeysMax) flush();
  }
  flush();
  if (first) return *std::move(first);
  return Ok{};
}

Status S3Store::remove_batch(std::span<const std::string> keys) {
  const std::string xml = s3_xml::delete_keys(keys);
  S3Request request{.method = "POST", .bucket = bucket_, .query = {{"delete", ""}}};
  request.headers.add("Content-Type", "application/xml");
  request.headers.add("Content-MD5", checksum_base64(ChecksumAlgorithm::kMd5, bytes_of(xml)));
  request.body = bytes_of(xml);
  request.is_commit = true;
  YARD_ASSIGN(const HttpResponse response, client_.send(request));
  if (response.status == 501 || response.status == 405) return ObjectStore::remove_all(keys);
  if (response.status >= 300) return client_.error_of(request, response);
  YARD_ASSIGN(const auto failures, s3_xml::parse_delete_result(response.body));
  for (const auto& failure : failures) {
    if (failure.error.code == "NoSuchKey") continue;
    // One that the server could not remove now may go by itself.
    YARD_TRY(remove(failure.key));
  }
  return Ok{};
}

}  // namespace yard::storage
