// GetObjectAttributes.
#include <algorithm>

#include "gateway/handlers_internal.h"

namespace yard::gateway {
namespace {

constexpr std::string_view kAttributes[] = {"ETag", "Checksum", "ObjectParts", "StorageClass",
                                            "ObjectSize"};

S3Error invalid(std::string message, std::string_view value) {
  return S3Error(s3::kInvalidArgument, std::move(message))
      .with("ArgumentName", "x-amz-object-attributes")
      .with("ArgumentValue", std::string(value));
}

// What the client asked for, in any number of headers.
S3Result<std::vector<std::string>> wanted_attributes(const Headers& headers) {
  std::vector<std::string> wanted;
  const std::string joined = headers.joined("x-amz-object-attributes");
  for (std::string_view rest = joined; !rest.empty();) {
    const size_t comma = rest.find(',');
    std::string_view name = rest.substr(0, comma);
    rest.remove_prefix(comma == rest.npos ? rest.size() : comma + 1);
    while (name.starts_with(' ')) name.remove_prefix(1);
    while (name.ends_with(' ')) name.remove_suffix(1);
    if (std::ranges::find(kAttributes, name) == std::end(kAttributes))
      return invalid("Invalid attribute name specified.", name);
    wanted.emplace_back(name);
  }
  if (wanted.empty())
    return invalid(
        "The x-amz-object-attributes header specifying the attributes to be retrieved "
        "is either missing or empty",
        "");
  return wanted;
}

S3Result<uint32_t> count_header(const Call& call, std::string_view name, uint32_t count_max,
                                uint32_t otherwise) {
  const auto text = call.header(name);
  return count_value(name, text, count_max, otherwise);
}

// The checksums of the single parts are not kept, so parts have their sizes only.
S3Status write_parts(const Call& call, const std::vector<uint64_t>& sizes_bytes, XmlWriter& xml) {
  constexpr uint32_t kPartsMax = 1000;
  YARD_ASSIGN(const uint32_t count_max,
              count_header(call, "x-amz-max-parts", kPartsMax, kPartsMax));
  YARD_ASSIGN(const uint32_t after,
              count_header(call, "x-amz-part-number-marker", kPartCountMax, 0));
  const auto count = uint32_t(sizes_bytes.size());
  const uint32_t last = std::min(count, std::max(after, after + count_max));
  xml.open("ObjectParts").number("PartsCount", count).number("PartNumberMarker", after);
  xml.number("NextPartNumberMarker", std::max(after, last)).number("MaxParts", count_max);
  xml.flag("IsTruncated", last < count);
  for (uint32_t number = after + 1; number <= last; ++number)
    xml.open("Part").number("PartNumber", number).number("Size", sizes_bytes[number - 1]).close();
  xml.close();
  return Ok{};
}

}  // namespace

S3Status get_object_attributes(Call& call) {
  YARD_ASSIGN(const auto wanted, wanted_attributes(call.headers()));
  YARD_ASSIGN(const ObjectFile object, open_object(call));
  const auto wants = [&](std::string_view name) {
    return std::ranges::find(wanted, name) != wanted.end();
  };
  XmlWriter xml("GetObjectAttributesResponse");
  const ObjectMeta& meta = object.meta;
  if (wants("ETag")) xml.text("ETag", meta.etag);
  if (wants("Checksum") && meta.checksum)
    xml.open("Checksum")
        .text(checksum_element(meta.checksum->algorithm), meta.checksum->base64)
        .text("ChecksumType", to_string(meta.checksum->type))
        .close();
  if (wants("ObjectParts") && !meta.part_sizes_bytes.empty())
    YARD_TRY(write_parts(call, meta.part_sizes_bytes, xml));
  if (wants("StorageClass")) xml.text("StorageClass", "STANDARD");
  if (wants("ObjectSize")) xml.number("ObjectSize", object.size_bytes());
  call.response.headers().set("Last-Modified", format_http_date(object.modified()));
  return send_xml(call, std::move(xml));
}

}  // namespace yard::gateway
