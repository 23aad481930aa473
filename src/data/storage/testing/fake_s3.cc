#include "storage/testing/fake_s3.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <pugixml.hpp>

#include "net/aws_chunked.h"
#include "net/checksums.h"
#include "net/encoding.h"

namespace yard::storage::testing {
namespace {

constexpr std::string_view kBucketPath = "/bucket";

std::string value_of(const std::vector<QueryPair>& query, std::string_view name) {
  for (const QueryPair& pair : query)
    if (pair.name == name) return pair.value;
  return {};
}

bool has(const std::vector<QueryPair>& query, std::string_view name) {
  return std::ranges::any_of(query, [&](const QueryPair& pair) { return pair.name == name; });
}

std::string md5_hex(std::string_view bytes) {
  Checksum md5(ChecksumAlgorithm::kMd5);
  md5.update(bytes_of(bytes));
  return md5.hex();
}

std::string time_text(std::chrono::system_clock::time_point time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.000Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(time)));
}

// The checksum header of a request; nullopt when the bytes do not have it.
std::optional<Headers> checked_checksum(const Headers& headers, const std::string& body) {
  Headers found;
  for (const auto field : headers) {
    const auto algorithm = checksum_of_header(field.name);
    if (!algorithm) continue;
    if (checksum_base64(*algorithm, bytes_of(body)) != field.value) return std::nullopt;
    if (*algorithm != ChecksumAlgorithm::kMd5) found.add(field.name, field.value);
  }
  return found;
}

}  // namespace

FakeS3::FakeS3(Fate fate, const Clock& clock)
    : fate_(std::move(fate)),
      verifier_(
          {.region = "us-east-1", .service = "s3"},
          [this](std::string_view key) -> std::optional<Credentials> {
            if (key != credentials_.access_key) return std::nullopt;
            return credentials_;
          },
          clock) {
  auto server = HttpServer::start(
      {}, [this](Request& request, ResponseWriter& response) { handle(request, response); });
  YARD_CHECK(server);
  server_ = *std::move(server);
}

FakeS3::~FakeS3() = default;

S3Options FakeS3::options() const {
  S3Options options;
  options.endpoint = server_->url();
  options.region = "us-east-1";
  options.credentials = credentials_;
  options.retry = {.attempts_max = 4, .delay_first_max = std::chrono::milliseconds(2)};
  options.hedge.enabled = false;
  return options;
}

S3Store FakeS3::store(const S3Options& options, Clock& clock) const {
  auto service = S3Service::open(options, clock);
  YARD_CHECK(service);
  return S3Store(*service, "bucket");
}

void FakeS3::put(const std::string& key, std::string content) {
  const std::lock_guard lock(mutex_);
  const std::string etag = md5_hex(content);
  objects_[key] = {std::move(content), etag, {}, std::chrono::system_clock::now()};
}

std::string FakeS3::content(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto it = objects_.find(key);
  return it == objects_.end() ? std::string() : it->second.content;
}

int FakeS3::call_count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(calls_.size());
}

std::vector<std::string> FakeS3::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

size_t FakeS3::open_upload_count() const {
  const std::lock_guard lock(mutex_);
  return uploads_.size();
}

FakeS3::Answer FakeS3::error(int status, std::string_view code) {
  return {status, {}, fmt::format("<Error><Code>{}</Code><Message>fake</Message></Error>", code)};
}

void FakeS3::handle(Request& request, ResponseWriter& response) {
  S3Call call{.method = std::string(request.method()), .query = std::string(request.query())};
  call.headers = &request.headers();
  call.range = request.headers().value_or("Range", "");
  std::string path =
      percent_decode(request.path()).has_value() ? *percent_decode(request.path()) : "";
  if (path.starts_with(kBucketPath) && path.size() > kBucketPath.size() + 1)
    call.key = path.substr(kBucketPath.size() + 1);
  {
    const std::lock_guard lock(mutex_);
    call.number = static_cast<int>(calls_.size());
    calls_.push_back(
        fmt::format("{} {}{}{}", call.method, call.key, call.query.empty() ? "" : "?", call.query));
  }
  const S3Fault fault = fate_ ? fate_(call) : S3Fault();
  if (fault.before) fault.before();
  auto body = request.read_all(size_t{1} << 30);
  if (!body) return;
  Answer answer;
  if (fault.status != 0) {
    answer.status = fault.status;
    answer.body = fault.body;
    for (const auto& [name, value] : fault.headers) answer.headers.add(name, value);
  } else {
    answer = this->answer(request, call, *body);
  }
  if (fault.lose_answer) return response.abort();
  if (fault.flip_a_byte && !answer.body.empty()) answer.body[answer.body.size() / 2] ^= 1;
  const auto length = answer.headers.find("x-fake-length");  // of a HEAD
  const uint64_t size_bytes = length ? std::stoull(std::string(*length)) : answer.body.size();
  for (const auto field : answer.headers)
    if (field.name != "x-fake-length") response.headers().set(field.name, field.value);
  if (!fault.reset_after_bytes && !length) {
    (void)response.send(answer.status, answer.body);
    return;
  }
  (void)response.start(answer.status, size_bytes);
  if (!fault.reset_after_bytes) return;
  (void)response.write(std::string_view(answer.body).substr(0, *fault.reset_after_bytes));
  (void)response.flush();
  response.abort();
}

FakeS3::Answer FakeS3::answer(Request& request, const S3Call& call, const std::string& body) {
  const auto verified =
      verifier_.verify({request.method(), request.path(), request.query(), request.headers()});
  if (const auto* refused = std::get_if<AuthError>(&verified))
    return error(refused->http_status, refused->code);
  const auto& who = std::get<VerifiedRequest>(verified);
  if (who.payload == PayloadKind::kSha256 && who.payload_sha256 != sha256_hex(body))
    return error(400, "XAmzContentSHA256Mismatch");
  const auto query = *parse_query(request.query());
  if (request.path() == "/")
    return {200,
            {},
            "<ListAllMyBucketsResult><Buckets><Bucket><Name>bucket</Name></Bucket>"
            "</Buckets></ListAllMyBucketsResult>"};
  if (!request.path().starts_with(kBucketPath)) return error(404, "NoSuchBucket");
  const std::lock_guard lock(mutex_);
  if (call.key.empty())
    return call.method == "GET" ? list(query) : has(query, "delete") ? remove_many(body) : Answer{};
  if (has(query, "uploads") || has(query, "uploadId")) return multipart(call, query, body);
  if (call.method == "GET" || call.method == "HEAD") return get(call, call.method == "HEAD");
  if (call.method == "DELETE") {
    objects_.erase(call.key);
    return {204, {}, {}};
  }
  if (call.headers->contains("x-amz-copy-source")) return copy(call, query);
  return put_object(call, body);
}

FakeS3::Answer FakeS3::get(const S3Call& call, bool is_head) {
  const auto it = objects_.find(call.key);
  if (it == objects_.end()) return is_head ? Answer{404, {}, {}} : error(404, "NoSuchKey");
  const Object& object = it->second;
  const auto match = call.headers->find("If-Match");
  if (match && *match != "\"" + object.etag + "\"") return error(412, "PreconditionFailed");
  Answer answer;
  answer.headers.add("ETag", "\"" + object.etag + "\"");
  answer.headers.add("Last-Modified", format_http_date(object.modified));
  const bool wants_checksum = call.headers->value_or("x-amz-checksum-mode", "") == "ENABLED";
  for (const auto field : object.headers)
    if (wants_checksum || field.name.starts_with("x-amz-meta"))
      answer.headers.add(field.name, field.value);
  const uint64_t size_bytes = object.content.size();
  uint64_t first = 0, last = 0;
  if (call.range.empty()) {
    answer.body = object.content;
  } else if (std::sscanf(call.range.c_str(), "bytes=%lu-%lu", &first, &last) != 2 ||
             first >= size_bytes) {
    answer = error(416, "InvalidRange");
    answer.headers.add("Content-Range", fmt::format("bytes */{}", size_bytes));
    return answer;
  } else {
    last = std::min(last, size_bytes - 1);
    answer.status = 206;
    answer.headers.add("Content-Range", fmt::format("bytes {}-{}/{}", first, last, size_bytes));
    answer.body = object.content.substr(first, last - first + 1);
  }
  if (!is_head) return answer;
  answer.headers.add("x-fake-length", std::to_string(answer.body.size()));
  answer.body.clear();
  return answer;
}

FakeS3::Answer FakeS3::put_object(const S3Call& call, const std::string& body) {
  auto checksum = checked_checksum(*call.headers, body);
  if (!checksum) return error(400, "BadDigest");
  if (call.headers->contains("If-None-Match") && objects_.contains(call.key))
    return error(412, "PreconditionFailed");
  for (const auto field : *call.headers)
    if (field.name.starts_with("x-amz-meta")) checksum->add(field.name, field.value);
  Object object{body, md5_hex(body), *std::move(checksum), std::chrono::system_clock::now()};
  Answer answer;
  answer.headers.add("ETag", "\"" + object.etag + "\"");
  objects_[call.key] = std::move(object);
  return answer;
}

FakeS3::Answer FakeS3::copy(const S3Call& call, const std::vector<QueryPair>& query) {
  const std::string source = *percent_decode(call.headers->value_or("x-amz-copy-source", ""));
  const auto it = objects_.find(source.substr(kBucketPath.size() + 1));
  if (it == objects_.end()) return error(404, "NoSuchKey");
  const auto match = call.headers->value_or("x-amz-copy-source-if-match", "");
  if (!match.empty() && match != "\"" + it->second.etag + "\"")
    return error(412, "PreconditionFailed");
  static_cast<void>(query);
  Object object = it->second;
  object.modified = std::chrono::system_clock::now();
  const std::string etag = object.etag;
  objects_[call.key] = std::move(object);
  return {200,
          {},
          fmt::format("<CopyObjectResult><ETag>&quot;{}&quot;</ETag></CopyObjectResult>", etag)};
}

// A key with the continuation's meaning: all that a page's last entry stands for is behind it.
FakeS3::Answer FakeS3::list(const std::vector<QueryPair>& query) {
  const std::string prefix = value_of(query, "prefix"), delimiter = value_of(query, "delimiter"),
                    token = value_of(query, "continuation-token");
  const std::string after = token.empty() ? value_of(query, "start-after") : token.substr(2);
  const size_t count_max = std::stoul(value_of(query, "max-keys"));
  std::string objects, prefixes, last_entry, last_prefix;
  size_t count = 0;
  bool is_truncated = false;
  for (const auto& [key, object] : objects_) {
    if (!key.starts_with(prefix) || key <= after) continue;
    if (!token.empty() && !delimiter.empty() && after.ends_with(delimiter) &&
        key.starts_with(after))
      continue;
    const size_t cut = delimiter.empty() ? key.npos : key.find(delimiter, prefix.size());
    const std::string common = cut == key.npos ? "" : key.substr(0, cut + delimiter.size());
    if (!common.empty() && common == last_prefix) continue;
    if (count == count_max) {
      is_truncated = true;
      break;
    }
    ++count;
    last_entry = common.empty() ? key : common;
    if (common.empty()) {
      objects += fmt::format(
          "<Contents><Key>{}</Key><LastModified>{}</LastModified><ETag>&quot;{}"
          "&quot;</ETag><Size>{}</Size></Contents>",
          percent_encode_path(key), time_text(object.modified), object.etag, object.content.size());
    } else {
      last_prefix = common;
      prefixes += fmt::format("<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>",
                              percent_encode_path(common));
    }
  }
  std::string next;
  if (is_truncated)
    next = fmt::format("<NextContinuationToken>t:{}</NextContinuationToken>", last_entry);
  return {200,
          {},
          fmt::format("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult "
                      "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
                      "<EncodingType>url</EncodingType><IsTruncated>{}</IsTruncated>{}{}{}"
                      "</ListBucketResult>",
                      is_truncated, next, objects, prefixes)};
}

FakeS3::Answer FakeS3::remove_many(const std::string& body) {
  pugi::xml_document document;
  // A key may be a blank.
  if (!document.load_string(body.c_str(), pugi::parse_default | pugi::parse_ws_pcdata_single))
    return error(400, "MalformedXML");
  for (const auto& object : document.document_element().children("Object"))
    objects_.erase(object.child_value("Key"));
  return {200, {}, "<DeleteResult></DeleteResult>"};
}

FakeS3::Answer FakeS3::multipart(const S3Call& call, const std::vector<QueryPair>& query,
                                 const std::string& body) {
  if (has(query, "uploads")) {
    const std::string id = fmt::format("upload-{}", ++upload_count_);
    uploads_[id].key = call.key;
    Headers headers;
    if (takes_trailers_) headers.add(kTakesTrailersHeader, "1");
    return {200, std::move(headers),
            fmt::format("<InitiateMultipartUploadResult><UploadId>{}</UploadId>"
                        "</InitiateMultipartUploadResult>",
                        id)};
  }
  const std::string id = value_of(query, "uploadId");
  if (!uploads_.contains(id)) return error(404, "NoSuchUpload");
  if (call.method == "DELETE") {
    uploads_.erase(id);
    return {204, {}, {}};
  }
  if (call.method == "POST") return complete(call, id, body);
  if (call.headers->contains("x-amz-trailer")) return put_trailed_part(call, query, body);
  auto checksum = checked_checksum(*call.headers, body);
  if (!checksum) return error(400, "BadDigest");
  Answer answer;
  answer.headers.add("ETag", "\"" + md5_hex(body) + "\"");
  uploads_[id].parts[std::stoi(value_of(query, "partNumber"))] = {
      body, md5_hex(body), *std::move(checksum), {}};
  return answer;
}

FakeS3::Answer FakeS3::put_trailed_part(const S3Call& call, const std::vector<QueryPair>& query,
                                        const std::string& body) {
  const std::string size(call.headers->value_or("x-amz-decoded-content-length", "0"));
  AwsChunkedDecoder decoder({.signer = {},
                             .has_trailers = true,
                             .trailers = {std::string(call.headers->value_or("x-amz-trailer", ""))},
                             .decoded_size_bytes = std::stoull(size)});
  std::string content;
  for (std::span<const std::byte> left = bytes_of(body); !left.empty();) {
    const auto piece = decoder.next(left);
    if (!piece) return error(400, decoder.error_code());
    content.append(reinterpret_cast<const char*>(piece->data()), piece->size());
  }
  if (!decoder.finish()) return error(400, decoder.error_code());
  Answer answer;
  answer.headers.add("ETag", "\"" + md5_hex(content) + "\"");
  uploads_[value_of(query, "uploadId")].parts[std::stoi(value_of(query, "partNumber"))] = {
      content, md5_hex(content), decoder.trailers(), {}};
  return answer;
}

FakeS3::Answer FakeS3::complete(const S3Call& call, const std::string& id,
                                const std::string& body) {
  pugi::xml_document document;
  if (!document.load_string(body.c_str())) return error(400, "MalformedXML");
  std::string content, digests;
  int count = 0;
  for (const auto& node : document.document_element().children("Part")) {
    const auto part = uploads_[id].parts.find(std::stoi(node.child_value("PartNumber")));
    if (part == uploads_[id].parts.end() ||
        node.child_value("ETag") != "\"" + part->second.etag + "\"")
      return error(400, "InvalidPart");
    content += part->second.content;
    digests += *hex_decode(part->second.etag);
    ++count;
  }
  auto checksum = checked_checksum(*call.headers, content);
  if (call.headers->value_or("x-amz-checksum-type", "") == "FULL_OBJECT" && !checksum)
    return error(400, "BadDigest");
  if (call.headers->contains("If-None-Match") && objects_.contains(call.key))
    return error(412, "PreconditionFailed");
  const std::string etag = fmt::format("{}-{}", md5_hex(digests), count);
  objects_[call.key] = {std::move(content), etag, checksum.value_or(Headers()),
                        std::chrono::system_clock::now()};
  uploads_.erase(id);
  return {200,
          {},
          fmt::format("<CompleteMultipartUploadResult><ETag>\"{}\"</ETag>"
                      "</CompleteMultipartUploadResult>",
                      etag)};
}

}  // namespace yard::storage::testing
