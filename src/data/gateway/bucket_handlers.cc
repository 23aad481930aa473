// Operations on buckets, but for listings of objects.
#include <algorithm>

#include "gateway/handlers_internal.h"

namespace yard::gateway {
namespace {

// What S3 says of a bucket that never had the setting.
struct MissingSetting {
  std::string_view setting;
  S3ErrorKind error;
};
constexpr MissingSetting kMissing[] = {
    {"cors", {"NoSuchCORSConfiguration", 404, "The CORS configuration does not exist"}},
    {"encryption",
     {"ServerSideEncryptionConfigurationNotFoundError", 404,
      "The server side encryption configuration was not found"}},
    {"lifecycle",
     {"NoSuchLifecycleConfiguration", 404, "The lifecycle configuration does not exist"}},
    {"object-lock",
     {"ObjectLockConfigurationNotFoundError", 404,
      "Object Lock configuration does not exist for this bucket"}},
    {"ownershipControls",
     {"OwnershipControlsNotFoundError", 404, "The bucket ownership controls were not found"}},
    {"policy", {"NoSuchBucketPolicy", 404, "The bucket policy does not exist"}},
    {"policyStatus", {"NoSuchBucketPolicy", 404, "The bucket policy does not exist"}},
    {"publicAccessBlock",
     {"NoSuchPublicAccessBlockConfiguration", 404,
      "The public access block configuration was not found"}},
    {"replication",
     {"ReplicationConfigurationNotFoundError", 404, "The replication configuration was not found"}},
    {"tagging", {"NoSuchTagSet", 404, "The TagSet does not exist"}},
    {"website",
     {"NoSuchWebsiteConfiguration", 404,
      "The specified bucket does not have a website configuration"}},
};

}  // namespace

S3Status list_buckets(Call& call) {
  YARD_ASSIGN(const auto buckets, call.services.root->list_buckets());
  const std::string_view prefix = call.route.parameter("prefix").value_or("");
  XmlWriter xml("ListAllMyBucketsResult");
  write_principal(xml, "Owner");
  xml.open("Buckets");
  for (const BucketInfo& bucket : buckets) {
    if (!bucket.name.starts_with(prefix)) continue;
    xml.open("Bucket").text("Name", bucket.name);
    xml.text("CreationDate", format_time(bucket.created)).close();
  }
  return send_xml(call, std::move(xml));
}

S3Status create_bucket(Call& call) {
  YARD_ASSIGN(const std::string document, read_document(call));
  YARD_TRY(read_location_constraint(document));
  if (call.header("x-amz-bucket-object-lock-enabled").value_or("") == "true")
    return s3::kNotImplemented;
  YARD_TRY(check_storage_headers(call.headers()));
  YARD_TRY(call.services.root->create_bucket(call.route.bucket));
  call.services.notifications.forget(call.route.bucket);
  call.response.headers().set("Location", "/" + call.route.bucket);
  return send_empty(call, 200);
}

S3Status head_bucket(Call& call) {
  YARD_TRY(call.bucket());
  call.response.headers().set("x-amz-bucket-region", call.services.options.region);
  call.response.headers().set("Content-Type", "application/xml");
  return send_empty(call, 200);
}

S3Status delete_bucket(Call& call) {
  YARD_TRY(call.services.root->delete_bucket(call.route.bucket));
  call.services.uploads.abort_all(call.route.bucket);
  call.services.notifications.forget(call.route.bucket);
  return send_empty(call, 204);
}

S3Status get_bucket_location(Call& call) {
  YARD_TRY(call.bucket());
  // S3 says nothing for its first region.
  const std::string& region = call.services.options.region;
  XmlWriter xml("LocationConstraint");
  std::string document = xml.take();
  if (region != "us-east-1") document.insert(document.rfind("</"), escape_xml(region));
  call.response.headers().set("Content-Type", "application/xml");
  (void)call.response.send(200, document);
  return Ok{};
}

S3Status get_bucket_setting(Call& call) {
  YARD_TRY(call.bucket());
  const std::string_view setting = call.route.setting;
  const auto* missing = std::ranges::find(kMissing, setting, &MissingSetting::setting);
  if (missing != std::end(kMissing))
    return S3Error(missing->error).with("BucketName", call.route.bucket);
  if (setting == "versioning") return send_xml(call, XmlWriter("VersioningConfiguration"));
  if (setting == "accelerate") return send_xml(call, XmlWriter("AccelerateConfiguration"));
  if (setting == "logging") return send_xml(call, XmlWriter("BucketLoggingStatus"));
  if (setting == "requestPayment")
    return send_xml(
        call, std::move(XmlWriter("RequestPaymentConfiguration").text("Payer", "BucketOwner")));
  return get_object_setting(call);
}

S3Status delete_bucket_setting(Call& call) {
  YARD_TRY(call.bucket());
  return send_empty(call, 204);
}

S3Status get_object_setting(Call& call) {
  YARD_ASSIGN(const Bucket bucket, call.bucket());
  if (!call.route.key.empty()) {
    YARD_TRY(bucket.open(call.route.key));
  }
  const std::string_view setting = call.route.setting;
  if (setting == "tagging") return send_xml(call, std::move(XmlWriter("Tagging").open("TagSet")));
  if (setting != "acl")
    return S3Error(S3ErrorKind{"NoSuchObjectLockConfiguration", 404,
                               "The specified object does not have a ObjectLock configuration"});
  XmlWriter xml("AccessControlPolicy");
  write_principal(xml, "Owner");
  xml.open("AccessControlList").open("Grant");
  xml.open_with("Grantee",
                "xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" "
                "xsi:type=\"CanonicalUser\"");
  xml.text("ID", "trainyard").text("DisplayName", "trainyard").close();
  xml.text("Permission", "FULL_CONTROL");
  return send_xml(call, std::move(xml));
}

S3Status get_notification(Call& call) {
  YARD_TRY(call.bucket());
  YARD_ASSIGN(const auto rules, call.services.notifications.rules(call.route.bucket));
  call.response.headers().set("Content-Type", "application/xml");
  (void)call.response.send(200, write_notification_rules(rules));
  return Ok{};
}

S3Status put_notification(Call& call) {
  YARD_TRY(call.bucket());
  YARD_ASSIGN(const std::string document, read_document(call));
  YARD_ASSIGN(auto rules, read_notification_rules(document));
  YARD_TRY(call.services.notifications.set_rules(call.route.bucket, std::move(rules)));
  return send_empty(call, 200);
}

}  // namespace yard::gateway
