// ListMultipartUploads.
#include "gateway/handlers_internal.h"

namespace yard::gateway {
namespace {

struct Question {
  std::string_view prefix;
  std::string_view delimiter;
  std::string_view key_marker;
  std::string_view id_marker;
  uint32_t count_max = 1000;
};

// One entry of the answer: an upload, or a common prefix of several.
struct Entry {
  const UploadInfo* upload = nullptr;
  std::string_view common_prefix;
};

struct Page {
  std::vector<Entry> entries;
  bool is_truncated = false;
};

std::string_view common_prefix_of(const UploadInfo& upload, const Question& question) {
  if (question.delimiter.empty()) return {};
  const size_t at = upload.key.find(question.delimiter, question.prefix.size());
  if (at == upload.key.npos) return {};
  return std::string_view(upload.key).substr(0, at + question.delimiter.size());
}

// Uploads of one key are in the order of their begin, and the id marker names one of them.
Page page_of(const std::vector<UploadInfo>& uploads, const Question& question) {
  Page page;
  bool is_behind_marker = question.id_marker.empty();
  for (const UploadInfo& upload : uploads) {
    if (!upload.key.starts_with(question.prefix)) continue;
    if (upload.key < question.key_marker) continue;
    if (upload.key == question.key_marker) {
      if (question.id_marker.empty()) continue;
      const bool was_behind = is_behind_marker;
      is_behind_marker |= upload.id == question.id_marker;
      if (!was_behind) continue;
    }
    const std::string_view common = common_prefix_of(upload, question);
    if (!common.empty() && (common == question.key_marker ||
                            (!page.entries.empty() && page.entries.back().common_prefix == common)))
      continue;
    page.is_truncated = page.entries.size() == question.count_max;
    if (page.is_truncated) return page;
    page.entries.push_back({common.empty() ? &upload : nullptr, common});
  }
  return page;
}

}  // namespace

S3Status list_uploads(Call& call) {
  YARD_TRY(call.bucket());
  const Route& route = call.route;
  YARD_ASSIGN(const KeyText key_text, KeyText::of(route));
  Question question{.prefix = route.parameter("prefix").value_or(""),
                    .delimiter = route.parameter("delimiter").value_or(""),
                    .key_marker = route.parameter("key-marker").value_or(""),
                    .id_marker = route.parameter("upload-id-marker").value_or("")};
  YARD_ASSIGN(question.count_max, count_parameter(route, "max-uploads", 1000));
  YARD_ASSIGN(const auto uploads, call.services.uploads.list(route.bucket));
  const Page page = page_of(uploads, question);
  XmlWriter xml("ListMultipartUploadsResult");
  xml.text("Bucket", route.bucket).text("KeyMarker", key_text(question.key_marker));
  xml.text("UploadIdMarker", question.id_marker).text("Prefix", key_text(question.prefix));
  if (!question.delimiter.empty()) xml.text("Delimiter", key_text(question.delimiter));
  if (key_text.is_encoded()) xml.text("EncodingType", "url");
  xml.number("MaxUploads", question.count_max).flag("IsTruncated", page.is_truncated);
  if (page.is_truncated && !page.entries.empty()) {
    const Entry& last = page.entries.back();
    xml.text("NextKeyMarker", key_text(last.upload ? last.upload->key : last.common_prefix));
    xml.text("NextUploadIdMarker", last.upload ? std::string_view(last.upload->id) : "");
  }
  for (const auto& [upload, common_prefix] : page.entries) {
    if (upload == nullptr) {
      xml.open("CommonPrefixes").text("Prefix", key_text(common_prefix)).close();
      continue;
    }
    xml.open("Upload").text("Key", key_text(upload->key)).text("UploadId", upload->id);
    write_principal(xml, "Initiator");
    write_principal(xml, "Owner");
    xml.text("StorageClass", "STANDARD").text("Initiated", format_time(upload->begun));
    if (upload->names_algorithm)
      xml.text("ChecksumAlgorithm", to_string(upload->algorithm))
          .text("ChecksumType", to_string(upload->checksum_type));
    xml.close();
  }
  return send_xml(call, std::move(xml));
}

}  // namespace yard::gateway
