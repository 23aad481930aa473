#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <pugixml.hpp>

#include "net/uri.h"
#include "storage/s3_xml_internal.h"

namespace yard::storage::s3_xml {
namespace {

using std::chrono::system_clock;

Error bad_document(std::string_view what) {
  return {Code::kCorrupt, fmt::format("the server's answer is no {}", what)};
}

// Without its name-space prefix.
std::string_view local_name(const pugi::xml_node& node) {
  const std::string_view name = node.name();
  const size_t colon = name.find(':');
  return colon == name.npos ? name : name.substr(colon + 1);
}

class Document {
 public:
  explicit Document(std::string_view body) {
    // A key may be a single blank; pugixml would drop it as white space.
    constexpr unsigned kFlags = pugi::parse_default | pugi::parse_ws_pcdata_single;
    if (document_.load_buffer(body.data(), body.size(), kFlags, pugi::encoding_utf8))
      root_ = document_.document_element();
  }
  bool is(std::string_view name) const { return root_ && local_name(root_) == name; }
  pugi::xml_node root() const { return root_; }

 private:
  pugi::xml_document document_;
  pugi::xml_node root_;
};

std::string text_of(const pugi::xml_node& parent, std::string_view name) {
  for (const pugi::xml_node& child : parent.children())
    if (local_name(child) == name) return child.child_value();
  return {};
}

template <typename Visit>
void for_each(const pugi::xml_node& parent, std::string_view name, Visit visit) {
  for (const pugi::xml_node& child : parent.children())
    if (local_name(child) == name) visit(child);
}

// encoding-type=url: a form's encoding, in which a blank is '+'.
Result<std::string> decoded(std::string text, bool is_encoded) {
  if (!is_encoded) return text;
  std::ranges::replace(text, '+', ' ');
  return percent_decode(text);
}

ErrorBody error_of(const pugi::xml_node& node) {
  return {text_of(node, "Code"), text_of(node, "Message"), text_of(node, "Region")};
}

Status read_object(const pugi::xml_node& node, bool is_encoded, ListBody& list) {
  ObjectInfo info;
  auto key = decoded(text_of(node, "Key"), is_encoded);
  const std::string size = text_of(node, "Size");
  const auto parsed = std::from_chars(size.data(), size.data() + size.size(), info.size_bytes);
  if (!key || key->empty() || size.empty() || parsed.ptr != size.data() + size.size() ||
      parsed.ec != std::errc())
    return bad_document("list of objects");
  info.key = *std::move(key);
  info.etag = without_quotes(text_of(node, "ETag"));
  info.modified = parse_time(text_of(node, "LastModified")).value_or(system_clock::time_point{});
  list.objects.push_back(std::move(info));
  return Ok{};
}

void append_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (c == '\r')
      out += "&#13;";
    else
      out += c;
  }
}

void append_element(std::string& out, std::string_view name, std::string_view text) {
  out.append("<").append(name).append(">");
  append_escaped(out, text);
  out.append("</").append(name).append(">");
}

constexpr std::string_view kNameSpace = "http://s3.amazonaws.com/doc/2006-03-01/";

// Digits only, all of them.
std::optional<int> number_at(std::string_view text, size_t at, size_t count) {
  int value = 0;
  for (const char c : text.substr(at, count)) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

}  // namespace

std::optional<ErrorBody> parse_error(std::string_view body) {
  const Document document(body);
  if (!document.is("Error")) return std::nullopt;
  return error_of(document.root());
}

Result<ListBody> parse_list(std::string_view body) {
  const Document document(body);
  if (!document.is("ListBucketResult")) return bad_document("list of objects");
  const bool is_encoded = text_of(document.root(), "EncodingType") == "url";
  ListBody list;
  std::optional<Error> error;
  for_each(document.root(), "Contents", [&](const pugi::xml_node& node) {
    if (auto read = read_object(node, is_encoded, list); !read) error = std::move(read).error();
  });
  for_each(document.root(), "CommonPrefixes", [&](const pugi::xml_node& node) {
    auto prefix = decoded(text_of(node, "Prefix"), is_encoded);
    if (prefix)
      list.common_prefixes.push_back(*std::move(prefix));
    else
      error = std::move(prefix).error();
  });
  if (error) return Error{Code::kCorrupt, std::move(error->message)};
  if (text_of(document.root(), "IsTruncated") == "true") {
    list.continuation_token = text_of(document.root(), "NextContinuationToken");
    if (list.continuation_token.empty()) return bad_document("list of objects with a next page");
  }
  return list;
}

Result<std::vector<std::string>> parse_buckets(std::string_view body) {
  const Document document(body);
  if (!document.is("ListAllMyBucketsResult")) return bad_document("list of buckets");
  std::vector<std::string> names;
  for_each(document.root(), "Buckets", [&](const pugi::xml_node& buckets) {
    for_each(buckets, "Bucket",
             [&](const pugi::xml_node& bucket) { names.push_back(text_of(bucket, "Name")); });
  });
  return names;
}

Result<std::string> parse_upload_id(std::string_view body) {
  const Document document(body);
  std::string id = text_of(document.root(), "UploadId");
  // rclone leaves the "Result" out.
  if ((!document.is("InitiateMultipartUploadResult") && !document.is("InitiateMultipartUpload")) ||
      id.empty())
    return bad_document("start of an upload");
  return id;
}

Result<UploadsBody> parse_uploads(std::string_view body) {
  const Document document(body);
  if (!document.is("ListMultipartUploadsResult")) return bad_document("list of uploads");
  const bool is_encoded = text_of(document.root(), "EncodingType") == "url";
  UploadsBody list;
  bool is_bad = false;
  for_each(document.root(), "Upload", [&](const pugi::xml_node& node) {
    auto key = decoded(text_of(node, "Key"), is_encoded);
    std::string id = text_of(node, "UploadId");
    is_bad |= !key || key->empty() || id.empty();
    if (key)
      list.uploads.push_back(
          {*std::move(key), std::move(id),
           parse_time(text_of(node, "Initiated")).value_or(system_clock::time_point{})});
  });
  if (text_of(document.root(), "IsTruncated") == "true") {
    auto next = decoded(text_of(document.root(), "NextKeyMarker"), is_encoded);
    is_bad |= !next || next->empty();
    if (next) list.next_key = *std::move(next);
    list.next_id = text_of(document.root(), "NextUploadIdMarker");
  }
  if (is_bad) return bad_document("list of uploads");
  return list;
}

Result<WrittenBody> parse_written(std::string_view body) {
  const Document document(body);
  const bool is_known = document.is("CopyObjectResult") || document.is("CopyPartResult") ||
                        document.is("CompleteMultipartUploadResult") ||
                        document.is("CompleteMultipartUpload");
  if (!is_known) return bad_document("report of what was written");
  return WrittenBody{without_quotes(text_of(document.root(), "ETag")),
                     parse_time(text_of(document.root(), "LastModified"))};
}

Result<std::vector<DeleteFailure>> parse_delete_result(std::string_view body) {
  const Document document(body);
  if (!document.is("DeleteResult")) return bad_document("report of what was removed");
  std::vector<DeleteFailure> failures;
  for_each(document.root(), "Error", [&](const pugi::xml_node& node) {
    failures.push_back({text_of(node, "Key"), error_of(node)});
  });
  return failures;
}

std::string complete_upload(const std::vector<UploadedPart>& parts,
                            std::string_view checksum_element) {
  std::string xml = fmt::format("<CompleteMultipartUpload xmlns=\"{}\">", kNameSpace);
  for (const UploadedPart& part : parts) {
    xml += "<Part>";
    append_element(xml, "PartNumber", std::to_string(part.number));
    append_element(xml, "ETag", fmt::format("\"{}\"", part.etag));
    if (!part.checksum_base64.empty()) append_element(xml, checksum_element, part.checksum_base64);
    xml += "</Part>";
  }
  return xml + "</CompleteMultipartUpload>";
}

std::string delete_keys(std::span<const std::string> keys) {
  std::string xml = fmt::format("<Delete xmlns=\"{}\"><Quiet>true</Quiet>", kNameSpace);
  for (const std::string& key : keys) {
    xml += "<Object>";
    append_element(xml, "Key", key);
    xml += "</Object>";
  }
  return xml + "</Delete>";
}

bool can_write(std::string_view text) {
  return std::ranges::none_of(text, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 && c != '\t' && c != '\n' && c != '\r';
  });
}

std::string without_quotes(std::string_view etag) {
  if (etag.size() >= 2 && etag.starts_with('"') && etag.ends_with('"'))
    etag = etag.substr(1, etag.size() - 2);
  return std::string(etag);
}

// Whole years that fit into the clock's nanoseconds.
constexpr int kYearMin = 1678;
constexpr int kYearMax = 2261;

std::optional<system_clock::time_point> parse_time(std::string_view text) {
  if (text.size() < 20 || text[4] != '-' || text[7] != '-' || text[10] != 'T' || text[13] != ':' ||
      text[16] != ':' || !text.ends_with('Z'))
    return std::nullopt;
  const auto year = number_at(text, 0, 4), month = number_at(text, 5, 2),
             day = number_at(text, 8, 2), hour = number_at(text, 11, 2),
             minute = number_at(text, 14, 2), second = number_at(text, 17, 2);
  if (!year || !month || !day || !hour || !minute || !second) return std::nullopt;
  if (*year < kYearMin || *year > kYearMax) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(*year),
                                         std::chrono::month(unsigned(*month)),
                                         std::chrono::day(unsigned(*day))};
  if (!date.ok() || *hour > 23 || *minute > 59 || *second > 60) return std::nullopt;
  auto time = std::chrono::sys_days(date) + std::chrono::hours(*hour) +
              std::chrono::minutes(*minute) + std::chrono::seconds(*second) +
              std::chrono::milliseconds(0);
  if (text[19] == '.') {
    if (const auto millis = number_at(text, 20, 3); millis && text.size() >= 24)
      time += std::chrono::milliseconds(*millis);
  }
  return time;
}

}  // namespace yard::storage::s3_xml
