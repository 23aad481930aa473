#include "storage/s3_unfinished.h"

#include <fmt/format.h>

#include "storage/s3_client_internal.h"
#include "storage/s3_xml_internal.h"

namespace yard::storage {

Result<std::vector<UnfinishedUpload>> list_unfinished(S3Service& service, std::string_view bucket,
                                                      std::string_view prefix) {
  std::vector<UnfinishedUpload> uploads;
  s3_xml::UploadsBody page;
  do {
    S3Request request{.bucket = std::string(bucket)};
    request.query = {{"uploads", ""}, {"encoding-type", "url"}};
    if (!prefix.empty()) request.query.push_back({"prefix", std::string(prefix)});
    if (!page.next_key.empty()) {
      request.query.push_back({"key-marker", page.next_key});
      request.query.push_back({"upload-id-marker", page.next_id});
    }
    YARD_ASSIGN(const HttpResponse response, service.client().expect(request));
    auto next = s3_xml::parse_uploads(response.body);
    if (!next)
      return std::move(next).error().while_("listing the uploads of " + s3_name(bucket, prefix));
    if (!next->next_key.empty() && next->next_key == page.next_key && next->next_id == page.next_id)
      return Error{Code::kCorrupt, fmt::format("listing the uploads of {}: the server names the "
                                               "same next page again and again",
                                               s3_name(bucket, prefix))};
    page = *std::move(next);
    for (UnfinishedUpload& upload : page.uploads) uploads.push_back(std::move(upload));
  } while (!page.next_key.empty());
  return uploads;
}

Status abort_unfinished(S3Service& service, std::string_view bucket,
                        const UnfinishedUpload& upload) {
  S3Request request{.method = "DELETE", .bucket = std::string(bucket), .key = upload.key};
  request.query = {{"uploadId", upload.id}};
  const auto aborted = service.client().expect(request);
  if (aborted || aborted.error().code == Code::kNotFound) return Ok{};
  return aborted.error();
}

}  // namespace yard::storage
