// The XML of the S3 protocol, both as a server and as a client read it.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "gateway/xml.h"
#include "storage/s3_xml_internal.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yard;
  const std::string_view document(reinterpret_cast<const char*>(data), size);

  const auto deletion = gateway::read_delete_request(document);
  if (deletion) YARD_CHECK(!deletion->objects.empty() && deletion->objects.size() <= 1000);
  if (const auto parts = gateway::read_complete_request(document))
    for (const auto& part : *parts) YARD_CHECK(part.number >= 1 && part.number <= 10'000);
  (void)gateway::read_location_constraint(document);
  if (const auto rules = gateway::read_notification_rules(document)) {
    const auto again = gateway::read_notification_rules(gateway::write_notification_rules(*rules));
    YARD_CHECK(again && *again == *rules);
  }

  (void)storage::s3_xml::parse_error(document);
  (void)storage::s3_xml::parse_list(document);
  (void)storage::s3_xml::parse_buckets(document);
  (void)storage::s3_xml::parse_upload_id(document);
  (void)storage::s3_xml::parse_written(document);
  (void)storage::s3_xml::parse_delete_result(document);
  (void)storage::s3_xml::parse_time(document);
  return 0;
}
