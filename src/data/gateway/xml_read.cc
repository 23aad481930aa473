// The seam to pugixml, whose DOM does not resolve entities or DTDs: no document grows by itself.
#include <algorithm>
#include <charconv>
#include <pugixml.hpp>

#include "gateway/xml.h"

namespace yard::gateway {
namespace {

std::string_view local_name(const pugi::xml_node& node) {
  const std::string_view name = node.name();
  const size_t colon = name.find(':');
  return colon == name.npos ? name : name.substr(colon + 1);
}

// The element of that name, whatever its namespace; a null node when there is none.
pugi::xml_node child(const pugi::xml_node& parent, std::string_view name) {
  return parent.find_child([&](const pugi::xml_node& node) {
    return node.type() == pugi::node_element && local_name(node) == name;
  });
}

std::string text_of(const pugi::xml_node& parent, std::string_view name) {
  return child(parent, name).child_value();
}

std::string without_quotes(std::string text) {
  std::erase(text, '"');
  return text;
}

S3Result<pugi::xml_node> parse(pugi::xml_document& document, std::string_view text,
                               std::string_view root_name) {
  // Spaces in an element's text are part of a key.
  constexpr unsigned kOptions = pugi::parse_default | pugi::parse_ws_pcdata_single;
  if (!document.load_buffer(text.data(), text.size(), kOptions, pugi::encoding_utf8))
    return s3::kMalformedXml;
  const pugi::xml_node root = document.document_element();
  if (local_name(root) != root_name) return s3::kMalformedXml;
  return root;
}

template <typename Visit>
S3Status for_each_child(const pugi::xml_node& parent, std::string_view name, Visit visit) {
  for (const pugi::xml_node& node : parent.children())
    if (node.type() == pugi::node_element && local_name(node) == name) YARD_TRY(visit(node));
  return Ok{};
}

constexpr uint32_t kPartNumberMax = 10'000;

S3Result<CompletedPart> read_part(const pugi::xml_node& node) {
  CompletedPart part;
  const std::string number = text_of(node, "PartNumber");
  const auto [end, failed] =
      std::from_chars(number.data(), number.data() + number.size(), part.number);
  if (failed != std::errc{} || end != number.data() + number.size()) return s3::kMalformedXml;
  if (part.number < 1 || part.number > kPartNumberMax)
    return S3Error(s3::kInvalidArgument,
                   "Part number must be an integer between 1 and 10000, inclusive");
  part.etag = without_quotes(text_of(node, "ETag"));
  if (part.etag.empty()) return s3::kMalformedXml;
  for (const pugi::xml_node& inner : node.children()) {
    const std::string_view name = local_name(inner);
    constexpr std::string_view kPrefix = "Checksum";
    if (!name.starts_with(kPrefix)) continue;
    if (const auto algorithm = parse_checksum_algorithm(name.substr(kPrefix.size())))
      part.checksum.emplace(*algorithm, inner.child_value());
  }
  return part;
}

struct RuleKind {
  NotificationRule::TargetKind kind;
  std::string_view element;
  std::string_view target;
};
constexpr RuleKind kRuleKinds[] = {
    {NotificationRule::TargetKind::kQueue, "QueueConfiguration", "Queue"},
    {NotificationRule::TargetKind::kTopic, "TopicConfiguration", "Topic"},
    {NotificationRule::TargetKind::kFunction, "CloudFunctionConfiguration", "CloudFunction"}};

// Those that happen here.
constexpr std::string_view kEvents[] = {"s3:ObjectCreated:*",
                                        "s3:ObjectCreated:Put",
                                        "s3:ObjectCreated:Post",
                                        "s3:ObjectCreated:Copy",
                                        "s3:ObjectCreated:CompleteMultipartUpload",
                                        "s3:ObjectRemoved:*",
                                        "s3:ObjectRemoved:Delete",
                                        "s3:ObjectRemoved:DeleteMarkerCreated"};

S3Status read_filter(const pugi::xml_node& node, NotificationRule& rule) {
  const pugi::xml_node key = child(child(node, "Filter"), "S3Key");
  return for_each_child(key, "FilterRule", [&](const pugi::xml_node& filter) -> S3Status {
    std::string name = text_of(filter, "Name");
    std::ranges::transform(name, name.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
    if (name != "prefix" && name != "suffix")
      return S3Error(s3::kInvalidArgument, "filter rule name must be either prefix or suffix");
    (name == "prefix" ? rule.key_prefix : rule.key_suffix) = text_of(filter, "Value");
    return Ok{};
  });
}

S3Result<NotificationRule> read_rule(const pugi::xml_node& node, const RuleKind& kind) {
  NotificationRule rule{
      .id = text_of(node, "Id"), .kind = kind.kind, .target_arn = text_of(node, kind.target)};
  YARD_TRY(for_each_child(node, "Event", [&](const pugi::xml_node& event) -> S3Status {
    rule.events.emplace_back(event.child_value());
    if (std::ranges::find(kEvents, rule.events.back()) == std::end(kEvents))
      return S3Error(s3::kInvalidArgument,
                     "The event '" + rule.events.back() + "' is not supported for notifications");
    return Ok{};
  }));
  if (rule.target_arn.empty() || rule.events.empty()) return s3::kMalformedXml;
  YARD_TRY(read_filter(node, rule));
  return rule;
}

}  // namespace

S3Result<DeleteRequest> read_delete_request(std::string_view text) {
  constexpr size_t kObjectsMax = 1000;
  pugi::xml_document document;
  YARD_ASSIGN(const pugi::xml_node root, parse(document, text, "Delete"));
  DeleteRequest request;
  request.is_quiet = text_of(root, "Quiet") == "true";
  YARD_TRY(for_each_child(root, "Object", [&](const pugi::xml_node& node) -> S3Status {
    DeleteRequest::Object object{text_of(node, "Key"), text_of(node, "VersionId"), {}};
    if (const auto etag = child(node, "ETag")) object.etag = without_quotes(etag.child_value());
    if (object.key.empty()) return s3::kMalformedXml;
    request.objects.push_back(std::move(object));
    return Ok{};
  }));
  if (request.objects.empty() || request.objects.size() > kObjectsMax) return s3::kMalformedXml;
  return request;
}

S3Result<std::vector<CompletedPart>> read_complete_request(std::string_view text) {
  pugi::xml_document document;
  YARD_ASSIGN(const pugi::xml_node root, parse(document, text, "CompleteMultipartUpload"));
  std::vector<CompletedPart> parts;
  YARD_TRY(for_each_child(root, "Part", [&](const pugi::xml_node& node) -> S3Status {
    YARD_ASSIGN(CompletedPart part, read_part(node));
    parts.push_back(std::move(part));
    return Ok{};
  }));
  if (parts.empty()) return s3::kMalformedXml;
  return parts;
}

S3Result<std::string> read_location_constraint(std::string_view text) {
  if (text.empty()) return std::string();
  pugi::xml_document document;
  YARD_ASSIGN(const pugi::xml_node root, parse(document, text, "CreateBucketConfiguration"));
  return text_of(root, "LocationConstraint");
}

S3Result<std::vector<NotificationRule>> read_notification_rules(std::string_view text) {
  pugi::xml_document document;
  YARD_ASSIGN(const pugi::xml_node root, parse(document, text, "NotificationConfiguration"));
  std::vector<NotificationRule> rules;
  for (const RuleKind& kind : kRuleKinds) {
    YARD_TRY(for_each_child(root, kind.element, [&](const pugi::xml_node& node) -> S3Status {
      YARD_ASSIGN(NotificationRule rule, read_rule(node, kind));
      if (rule.id.empty()) rule.id = "rule-" + std::to_string(rules.size() + 1);
      rules.push_back(std::move(rule));
      return Ok{};
    }));
  }
  return rules;
}

std::string write_notification_rules(const std::vector<NotificationRule>& rules) {
  XmlWriter xml("NotificationConfiguration");
  for (const NotificationRule& rule : rules) {
    const RuleKind& kind = kRuleKinds[static_cast<size_t>(rule.kind)];
    xml.open(kind.element).text("Id", rule.id).text(kind.target, rule.target_arn);
    for (const std::string& event : rule.events) xml.text("Event", event);
    if (!rule.key_prefix.empty() || !rule.key_suffix.empty()) {
      xml.open("Filter").open("S3Key");
      const auto filter = [&](std::string_view name, const std::string& value) {
        if (!value.empty()) xml.open("FilterRule").text("Name", name).text("Value", value).close();
      };
      filter("prefix", rule.key_prefix);
      filter("suffix", rule.key_suffix);
      xml.close().close();
    }
    xml.close();
  }
  return xml.take();
}

}  // namespace yard::gateway
