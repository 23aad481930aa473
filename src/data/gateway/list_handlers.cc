// ListObjects, both versions.
#include <charconv>

#include "gateway/handlers_internal.h"
#include "net/encoding.h"

namespace yard::gateway {
namespace {

constexpr uint32_t kKeysMax = 1000;

S3Error invalid(std::string message, std::string_view name, std::string_view value) {
  return S3Error(s3::kInvalidArgument, std::move(message))
      .with("ArgumentName", std::string(name))
      .with("ArgumentValue", std::string(value));
}

S3Result<ListQuery> query_of(const Route& route) {
  ListQuery query;
  query.prefix = route.parameter("prefix").value_or("");
  query.delimiter = route.parameter("delimiter").value_or("");
  YARD_ASSIGN(query.entry_count_max, count_parameter(route, "max-keys", kKeysMax));
  return query;
}

enum class WithOwner { kNo, kYes };

void write_object(XmlWriter& xml, const ListedObject& object, const KeyText& key_text,
                  WithOwner with_owner) {
  xml.text("Key", key_text(object.key));
  xml.text("LastModified", format_time(object.modified)).text("ETag", quoted(object.etag));
  if (object.checksum)
    xml.text("ChecksumAlgorithm", to_string(object.checksum->algorithm))
        .text("ChecksumType", to_string(object.checksum->type));
  xml.number("Size", object.size_bytes);
  if (with_owner == WithOwner::kYes) write_principal(xml, "Owner");
  xml.text("StorageClass", "STANDARD");
}

void write_common_prefixes(XmlWriter& xml, const ListedPage& page, const KeyText& key_text) {
  for (const std::string& prefix : page.common_prefixes)
    xml.open("CommonPrefixes").text("Prefix", key_text(prefix)).close();
}

void write_objects(XmlWriter& xml, const ListedPage& page, const KeyText& key_text,
                   WithOwner with_owner) {
  for (const ListedObject& object : page.objects) {
    xml.open("Contents");
    write_object(xml, object, key_text, with_owner);
    xml.close();
  }
  write_common_prefixes(xml, page, key_text);
}

void write_question(XmlWriter& xml, const Call& call, const ListQuery& query,
                    const KeyText& key_text) {
  xml.text("Name", call.route.bucket).text("Prefix", key_text(query.prefix));
  if (!query.delimiter.empty()) xml.text("Delimiter", key_text(query.delimiter));
  xml.number("MaxKeys", query.entry_count_max);
  if (key_text.is_encoded()) xml.text("EncodingType", "url");
}

}  // namespace

S3Result<KeyText> KeyText::of(const Route& route) {
  const std::string_view type = route.parameter("encoding-type").value_or("");
  if (type.empty() || type == "url") return KeyText(!type.empty());
  return invalid("Invalid Encoding Method specified in Request", "encoding-type", type);
}

void write_principal(XmlWriter& xml, std::string_view element) {
  xml.open(element).text("ID", "trainyard").text("DisplayName", "trainyard").close();
}

S3Result<uint32_t> count_parameter(const Route& route, std::string_view name, uint32_t count_max) {
  return count_parameter(route, name, count_max, count_max);
}

S3Result<uint32_t> count_parameter(const Route& route, std::string_view name, uint32_t count_max,
                                   uint32_t otherwise) {
  return count_value(name, route.parameter(name), count_max, otherwise);
}

S3Result<uint32_t> count_value(std::string_view name, std::optional<std::string_view> text,
                               uint32_t count_max, uint32_t otherwise) {
  if (!text || text->empty()) return otherwise;
  uint32_t count = 0;
  const auto [end, failed] = std::from_chars(text->data(), text->data() + text->size(), count);
  if (failed == std::errc::result_out_of_range && text->front() != '-') return count_max;
  if (failed != std::errc{} || end != text->data() + text->size())
    return invalid("Provided " + std::string(name) + " not an integer or within integer range",
                   name, *text);
  return std::min(count, count_max);
}

S3Status list_objects(Call& call) {
  YARD_ASSIGN(const Bucket bucket, call.bucket());
  YARD_ASSIGN(const KeyText key_text, KeyText::of(call.route));
  YARD_ASSIGN(ListQuery query, query_of(call.route));
  query.after = call.route.parameter("marker").value_or("");
  YARD_ASSIGN(const ListedPage page, call.services.lister.list(bucket, query));
  XmlWriter xml("ListBucketResult");
  write_question(xml, call, query, key_text);
  xml.text("Marker", key_text(query.after)).flag("IsTruncated", page.is_truncated);
  if (page.is_truncated) xml.text("NextMarker", key_text(page.last));
  write_objects(xml, page, key_text, WithOwner::kYes);
  return send_xml(call, std::move(xml));
}

S3Status list_objects_v2(Call& call) {
  YARD_ASSIGN(const Bucket bucket, call.bucket());
  YARD_ASSIGN(const KeyText key_text, KeyText::of(call.route));
  YARD_ASSIGN(ListQuery query, query_of(call.route));
  const auto start_after = call.route.parameter("start-after");
  const auto token = call.route.parameter("continuation-token");
  query.after = start_after.value_or("");
  if (token) {
    auto position = base64_decode(*token);
    if (!position || position->empty())
      return invalid("The continuation token provided is incorrect", "continuation-token", *token);
    query.after = *std::move(position);
  }
  YARD_ASSIGN(const ListedPage page, call.services.lister.list(bucket, query));
  XmlWriter xml("ListBucketResult");
  write_question(xml, call, query, key_text);
  xml.number("KeyCount", page.objects.size() + page.common_prefixes.size());
  xml.flag("IsTruncated", page.is_truncated);
  if (token) xml.text("ContinuationToken", *token);
  if (page.is_truncated) xml.text("NextContinuationToken", base64_encode(bytes_of(page.last)));
  if (start_after) xml.text("StartAfter", key_text(*start_after));
  const bool with_owner = call.route.parameter("fetch-owner") == "true";
  write_objects(xml, page, key_text, with_owner ? WithOwner::kYes : WithOwner::kNo);
  return send_xml(call, std::move(xml));
}

// As of a bucket that never had versions: each object has the one that is called "null".
S3Status list_versions(Call& call) {
  YARD_ASSIGN(const Bucket bucket, call.bucket());
  YARD_ASSIGN(const KeyText key_text, KeyText::of(call.route));
  YARD_ASSIGN(ListQuery query, query_of(call.route));
  query.after = call.route.parameter("key-marker").value_or("");
  const std::string_view version = call.route.parameter("version-id-marker").value_or("");
  if (!version.empty() && query.after.empty())
    return invalid("A version-id marker cannot be specified without a key marker.",
                   "version-id-marker", version);
  if (!version.empty() && version != "null")
    return invalid("Invalid version id specified", "version-id-marker", version);
  YARD_ASSIGN(const ListedPage page, call.services.lister.list(bucket, query));
  XmlWriter xml("ListVersionsResult");
  write_question(xml, call, query, key_text);
  xml.text("KeyMarker", key_text(query.after)).text("VersionIdMarker", version);
  xml.flag("IsTruncated", page.is_truncated);
  if (page.is_truncated)
    xml.text("NextKeyMarker", key_text(page.last)).text("NextVersionIdMarker", "null");
  for (const ListedObject& object : page.objects) {
    xml.open("Version").text("VersionId", "null").flag("IsLatest", true);
    write_object(xml, object, key_text, WithOwner::kYes);
    xml.close();
  }
  write_common_prefixes(xml, page, key_text);
  return send_xml(call, std::move(xml));
}

}  // namespace yard::gateway
