#include "prep/object_events.h"

#include <algorithm>

#include "base/json.h"
#include "net/uri.h"
#include "shards/sample_name.h"
#include "text/unicode.h"

namespace yard::prep {
namespace {

Error unexpected(std::string_view what) {
  return {Code::kInvalidArgument, "the message is no S3 event: " + std::string(what)};
}

// S3 encodes keys in events as forms do: a space is '+'.
Result<std::string> decode_key(std::string text) {
  std::ranges::replace(text, '+', ' ');
  return percent_decode(text);
}

std::string without_quotes(std::string etag) {
  std::erase(etag, '"');
  return etag;
}

Result<std::optional<ObjectEvent>> parse_record(const Json& record) {
  YARD_ASSIGN(const std::string name, json_field<std::string>(record, "eventName", "record"));
  if (name.find("ObjectCreated:") == name.npos) return std::optional<ObjectEvent>();
  YARD_ASSIGN(const Json s3, json_field<Json>(record, "s3", "record"));
  YARD_ASSIGN(const Json bucket, json_field<Json>(s3, "bucket", "s3"));
  YARD_ASSIGN(const Json object, json_field<Json>(s3, "object", "s3"));
  ObjectEvent event;
  YARD_ASSIGN(event.bucket, json_field<std::string>(bucket, "name", "bucket"));
  YARD_ASSIGN(std::string key, json_field<std::string>(object, "key", "object"));
  YARD_ASSIGN(event.key, decode_key(std::move(key)));
  YARD_ASSIGN(std::string etag, json_field<std::string>(object, "eTag", "object"));
  event.etag = without_quotes(std::move(etag));
  YARD_ASSIGN(event.size_bytes, json_field_or<uint64_t>(object, "size", 0, "object"));
  if (event.key.empty() || event.etag.empty()) return unexpected("no key or no eTag");
  return std::optional(std::move(event));
}

}  // namespace

std::string write_object_event(const ObjectEvent& event) {
  const Json object = {{"key", percent_encode_path(event.key)},
                       {"size", event.size_bytes},
                       {"eTag", without_quotes(event.etag)}};
  const Json record = {{"eventVersion", "2.1"},
                       {"eventSource", "aws:s3"},
                       {"eventName", "ObjectCreated:Put"},
                       {"s3", {{"bucket", {{"name", event.bucket}}}, {"object", object}}}};
  return Json{{"Records", Json::array({record})}}.dump();
}

Result<std::optional<ObjectEvent>> parse_object_event(std::string_view body) {
  YARD_ASSIGN(const Json json, parse_json(body, "message"));
  if (!json.is_object()) return unexpected("no JSON object");
  if (json.value("Event", Json()) == "s3:TestEvent") return std::optional<ObjectEvent>();
  const Json records = json.value("Records", Json());
  if (!records.is_array() || records.size() != 1)
    return unexpected("it has not exactly one record");
  return parse_record(records[0]);
}

ObjectVersion version_of(const ObjectEvent& event) {
  return {event.key, without_quotes(event.etag)};
}

std::string dedupe_key(const ObjectEvent& event) {
  return event.bucket + "/" + event.key + " " + without_quotes(event.etag);
}

std::optional<PictureName> picture_name(std::string_view key) {
  const size_t last = key.rfind('/') + 1;  // 0 without a slash
  const size_t dot = key.rfind('.');
  if (dot == key.npos || dot <= last) return std::nullopt;
  return PictureName{std::string(key.substr(0, dot)), shards::to_lower(key.substr(dot + 1))};
}

std::string sample_key_of(std::string_view stem, std::string_view prefix) {
  if (stem.starts_with(prefix)) stem.remove_prefix(prefix.size());
  std::string key = text::to_utf8(text::from_utf8(stem));
  const size_t last = key.rfind('/') + 1;
  for (size_t i = 0; i < key.size(); ++i) {
    const bool is_control = uint8_t(key[i]) < 0x20 || key[i] == 0x7F;
    if (is_control || key[i] == '\\' || (key[i] == '.' && i >= last)) key[i] = '_';
  }
  // WebDataset passes over what lies under a name like "__meta__".
  if (key.empty() || key.starts_with("__") || key.starts_with('/')) key.insert(0, "x");
  return key;
}

}  // namespace yard::prep
