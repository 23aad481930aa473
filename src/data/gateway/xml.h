// XML as S3 speaks it: a writer of documents, and readers of those that clients send.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/s3_error.h"
#include "net/checksums.h"

namespace yard::gateway {

// Builds one document. Not thread-safe.
class XmlWriter {
 public:
  enum class Namespace { kS3, kNone };
  // Opens the root element.
  explicit XmlWriter(std::string_view root, Namespace space = Namespace::kS3);

  XmlWriter& open(std::string_view name) { return open_with(name, {}); }
  // attributes: as they are to stand there.
  XmlWriter& open_with(std::string_view name, std::string_view attributes);
  XmlWriter& close();                                              // the innermost
  XmlWriter& text(std::string_view name, std::string_view value);  // <name>value</name>
  XmlWriter& number(std::string_view name, uint64_t value);
  XmlWriter& flag(std::string_view name, bool value);
  std::string take();  // closes what is open

 private:
  std::string document_;
  std::vector<std::string> open_;
};

// Text as it may stand in an element. Control characters become references, as S3 writes them,
// although XML 1.0 forbids them: clients ask for encoding-type=url where keys may have such.
std::string escape_xml(std::string_view text);

// Bodies above this are refused: 10,000 parts, or 1,000 keys of 1,024 bytes, escaped.
inline constexpr size_t kXmlBytesMax = 8 << 20;

// The readers: MalformedXML for anything else than the document named. Elements in any namespace.
struct DeleteRequest {
  struct Object {
    std::string key;
    std::string version_id;
    std::optional<std::string> etag;
  };
  std::vector<Object> objects;  // 1..1000
  bool is_quiet = false;
};
S3Result<DeleteRequest> read_delete_request(std::string_view document);

struct CompletedPart {
  uint32_t number = 0;
  std::string etag;  // without quotes
  std::optional<std::pair<ChecksumAlgorithm, std::string>> checksum;
};
// InvalidArgument for a number outside of 1..10000.
S3Result<std::vector<CompletedPart>> read_complete_request(std::string_view document);

// The region named in a CreateBucketConfiguration; empty for none, and for an empty document.
S3Result<std::string> read_location_constraint(std::string_view document);

struct NotificationRule {
  enum class TargetKind { kQueue, kTopic, kFunction };
  std::string id;
  TargetKind kind = TargetKind::kQueue;
  std::string target_arn;
  std::vector<std::string> events;  // "s3:ObjectCreated:*"
  std::string key_prefix;
  std::string key_suffix;
  bool operator==(const NotificationRule&) const = default;
};
// InvalidArgument for an event that does not exist.
S3Result<std::vector<NotificationRule>> read_notification_rules(std::string_view document);
std::string write_notification_rules(const std::vector<NotificationRule>& rules);

}  // namespace yard::gateway
