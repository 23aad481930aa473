#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "api/sqs_attributes_internal.h"
#include "net/checksums.h"
#include "net/encoding.h"

namespace yard::api::internal {
namespace {

using queue::QueueAttributes;

constexpr size_t kMessageAttributesMax = 10;
constexpr size_t kAttributeNameBytesMax = 256;

struct NumberAttribute {
  std::string_view name;
  int64_t QueueAttributes::*field;
  int64_t min;
  int64_t max;
};
constexpr std::array<NumberAttribute, 5> kNumbers{{
    {"VisibilityTimeout", &QueueAttributes::visibility_timeout_s, 0, 43'200},
    {"DelaySeconds", &QueueAttributes::delay_s, 0, 900},
    {"MessageRetentionPeriod", &QueueAttributes::retention_s, 60, 1'209'600},
    {"MaximumMessageSize", &QueueAttributes::message_bytes_max, 1024, 1'048'576},
    {"ReceiveMessageWaitTimeSeconds", &QueueAttributes::receive_wait_s, 0, 20},
}};

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

AwsError invalid_value(std::string_view name) {
  return {"InvalidAttributeValue", fmt::format("Invalid value for the parameter {}.", name)};
}

AwsStatus read_number(const NumberAttribute& attribute, std::string_view text,
                      QueueAttributes& out) {
  const auto value = number(text);
  if (!value || *value < attribute.min || *value > attribute.max)
    return invalid_value(attribute.name);
  out.*attribute.field = *value;
  return Ok{};
}

// {"deadLetterTargetArn": "arn:...:NAME", "maxReceiveCount": "5"}; an empty text takes it away.
AwsStatus read_redrive_policy(const std::string& text, QueueAttributes& out) {
  out.dead_letter_queue.clear();
  out.receive_count_max = 0;
  if (text.empty()) return Ok{};
  const Json policy = Json::parse(text, nullptr, false);
  if (!policy.is_object() || !policy.contains("deadLetterTargetArn") ||
      !policy["deadLetterTargetArn"].is_string() || !policy.contains("maxReceiveCount"))
    return invalid_value("RedrivePolicy");
  const std::string arn = policy["deadLetterTargetArn"].get<std::string>();
  const Json& count = policy["maxReceiveCount"];
  const auto value = count.is_string()           ? number(count.get<std::string>())
                     : count.is_number_integer() ? std::optional(count.get<int64_t>())
                                                 : std::nullopt;
  if (!arn.starts_with("arn:aws:sqs:") || !value || *value < 1 || *value > 1000)
    return invalid_value("RedrivePolicy");
  out.dead_letter_queue = arn.substr(arn.rfind(':') + 1);
  out.receive_count_max = *value;
  return Ok{};
}

// What may be said without changing anything, and what may not be said here.
AwsStatus check_other(std::string_view name, const std::string& value) {
  const bool is_off = value.empty() || value == "false" || value == "False";
  if (name == "SqsManagedSseEnabled") return Ok{};
  if (name == "RedriveAllowPolicy") return Ok{};
  constexpr std::array<std::string_view, 7> kAbsent = {"FifoQueue",
                                                       "ContentBasedDeduplication",
                                                       "DeduplicationScope",
                                                       "FifoThroughputLimit",
                                                       "Policy",
                                                       "KmsMasterKeyId",
                                                       "KmsDataKeyReusePeriodSeconds"};
  if (std::find(kAbsent.begin(), kAbsent.end(), name) == kAbsent.end())
    return AwsError("InvalidAttributeName", fmt::format("Unknown Attribute {}.", name));
  if (is_off) return Ok{};
  return AwsError("UnsupportedOperation",
                  fmt::format("Queues here are standard ones without {}: leave it out.", name));
}

bool is_wanted(std::string_view name, const Json& wanted) {
  for (const Json& each : wanted) {
    const std::string text = each.is_string() ? each.get<std::string>() : "";
    if (text == "All" || text == ".*" || text == name) return true;
    if (text.ends_with(".*") && name.starts_with(text.substr(0, text.size() - 1))) return true;
  }
  return false;
}

void append_sized(std::string& out, std::string_view bytes) {
  for (int shift = 24; shift >= 0; shift -= 8)
    out.push_back(static_cast<char>((bytes.size() >> shift) & 0xff));
  out.append(bytes);
}

Json redrive_policy(const QueueAttributes& attributes, const Arns& arns) {
  return Json{{"deadLetterTargetArn", queue_arn(arns, attributes.dead_letter_queue)},
              {"maxReceiveCount", attributes.receive_count_max}}
      .dump();
}

}  // namespace

std::string queue_arn(const Arns& arns, std::string_view name) {
  return fmt::format("arn:aws:sqs:{}:{}:{}", arns.region, arns.account_id, name);
}

std::string md5_hex(std::string_view bytes) {
  Checksum md5(ChecksumAlgorithm::kMd5);
  md5.update(bytes_of(bytes));
  return md5.hex();
}

AwsResult<QueueAttributes> read_queue_attributes(const Json& attributes, QueueAttributes out) {
  for (const auto& [name, value] : attributes.items()) {
    const std::string text = value.get<std::string>();
    const auto known =
        std::find_if(kNumbers.begin(), kNumbers.end(),
                     [&, &name = name](const auto& each) { return each.name == name; });
    if (known != kNumbers.end())
      YARD_TRY(read_number(*known, text, out));
    else if (name == "RedrivePolicy")
      YARD_TRY(read_redrive_policy(text, out));
    else
      YARD_TRY(check_other(name, text));
  }
  return out;
}

AwsResult<Json> queue_attributes_document(const queue::QueueInfo& info, const Json& names,
                                          const Arns& arns) {
  Json all = {{"QueueArn", queue_arn(arns, info.name)},
              {"CreatedTimestamp", std::to_string(info.created_ms / 1000)},
              {"LastModifiedTimestamp", std::to_string(info.modified_ms / 1000)},
              {"ApproximateNumberOfMessages", std::to_string(info.counts.visible)},
              {"ApproximateNumberOfMessagesNotVisible", std::to_string(info.counts.in_flight)},
              {"ApproximateNumberOfMessagesDelayed", std::to_string(info.counts.delayed)},
              {"SqsManagedSseEnabled", "false"}};
  for (const auto& attribute : kNumbers)
    all[std::string(attribute.name)] = std::to_string(info.attributes.*attribute.field);
  if (!info.attributes.dead_letter_queue.empty())
    all["RedrivePolicy"] = redrive_policy(info.attributes, arns);
  Json wanted = Json::object();
  for (const auto& [name, value] : all.items())
    if (is_wanted(name, names)) wanted[name] = value;
  return wanted;
}

AwsStatus check_message_attributes(const Json& attributes) {
  const auto invalid = [](std::string_view name, std::string_view why) {
    return AwsError("InvalidParameterValue",
                    fmt::format("The message attribute '{}' {}.", name, why));
  };
  if (attributes.size() > kMessageAttributesMax)
    return AwsError(
        "InvalidParameterValue",
        fmt::format("Number of message attributes [{}] exceeds the allowed maximum [{}].",
                    attributes.size(), kMessageAttributesMax));
  for (const auto& [name, value] : attributes.items()) {
    if (name.empty() || name.size() > kAttributeNameBytesMax)
      return invalid(name, "has a name that is not 1 to 256 bytes long");
    const std::string type = value.value("DataType", "");
    const bool is_binary = type == "Binary" || type.starts_with("Binary.");
    const bool is_text = type == "String" || type.starts_with("String.") || type == "Number" ||
                         type.starts_with("Number.");
    if (!is_binary && !is_text)
      return invalid(name, "has an invalid type: String, Binary and Number are known");
    const std::string field = is_binary ? "BinaryValue" : "StringValue";
    if (value.value(field, "").empty()) return invalid(name, "must contain a non-empty value");
    if (is_binary && !base64_decode(value.value(field, "")))
      return invalid(name, "has a value that is not base64");
  }
  return Ok{};
}

// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/: names in order, each
// name, type and value behind its length, between type and value one byte for its kind.
std::string message_attributes_md5(const Json& attributes) {
  if (attributes.empty()) return "";
  std::string bytes;
  for (const auto& [name, value] : attributes.items()) {
    const std::string type = value.value("DataType", "");
    const bool is_binary = type.starts_with("Binary");
    append_sized(bytes, name);
    append_sized(bytes, type);
    bytes.push_back(is_binary ? 2 : 1);
    append_sized(bytes, is_binary ? base64_decode(value.value("BinaryValue", "")).value_or("")
                                  : value.value("StringValue", ""));
  }
  return md5_hex(bytes);
}

Json wanted_message_attributes(const Json& attributes, const Json& wanted) {
  Json found = Json::object();
  for (const auto& [name, value] : attributes.items())
    if (is_wanted(name, wanted)) found[name] = value;
  return found;
}

Json system_attributes(const queue::ReceivedMessage& message, const Json& wanted,
                       const Arns& arns) {
  Json all = {{"SenderId", arns.account_id},
              {"SentTimestamp", std::to_string(message.sent_ms)},
              {"ApproximateReceiveCount", std::to_string(message.receive_count)},
              {"ApproximateFirstReceiveTimestamp", std::to_string(message.first_received_ms)}};
  if (!message.dead_letter_source.empty())
    all["DeadLetterQueueSourceArn"] = queue_arn(arns, message.dead_letter_source);
  Json found = Json::object();
  for (const auto& [name, value] : all.items())
    if (is_wanted(name, wanted)) found[name] = value;
  return found;
}

}  // namespace yard::api::internal
