#include "api/sqs_service.h"

#include <fmt/format.h>

#include <array>
#include <set>

#include "api/sqs_attributes_internal.h"

namespace yard::api {
namespace {

using internal::message_attributes_md5;
using queue::MessageQueues;

constexpr int64_t kBatchMax = 10;
constexpr int64_t kMessagesPerReceiveMax = 10;
constexpr int64_t kWaitMax_s = 20;
constexpr int64_t kQueuesPage = 1000;
constexpr size_t kBatchBytesMax = 1'048'576;

// SQS spoke Query before it spoke JSON, and clients know its errors by the names of then.
AwsError with_query_name(AwsError error) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kNames{{
      {"QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"},
      {"QueueNameExists", "QueueAlreadyExists"},
      {"EmptyBatchRequest", "AWS.SimpleQueueService.EmptyBatchRequest"},
      {"TooManyEntriesInBatchRequest", "AWS.SimpleQueueService.TooManyEntriesInBatchRequest"},
      {"BatchEntryIdsNotDistinct", "AWS.SimpleQueueService.BatchEntryIdsNotDistinct"},
      {"BatchRequestTooLong", "AWS.SimpleQueueService.BatchRequestTooLong"},
      {"MessageNotInflight", "AWS.SimpleQueueService.MessageNotInflight"},
      {"UnsupportedOperation", "AWS.SimpleQueueService.UnsupportedOperation"},
  }};
  for (const auto& [code, query_code] : kNames)
    if (error.code == code) error.query_code = query_code;
  return error;
}

AwsError no_queue() {
  return AwsError("QueueDoesNotExist", "The specified queue does not exist.");
}

AwsError invalid_parameter(std::string message) {
  return AwsError("InvalidParameterValue", std::move(message));
}

// Of what MessageQueues says about a queue that was named.
AwsError from_queues(Error error) {
  if (error.code == Code::kNotFound) return no_queue();
  if (error.code == Code::kInvalidArgument) return invalid_parameter(std::move(error.message));
  return AwsError(std::move(error));
}

template <typename T>
AwsResult<T> answer(Result<T> result) {
  if (!result) return from_queues(std::move(result).error());
  return *std::move(result);
}

AwsResult<int64_t> in_range(const Json& input, const char* name, int64_t otherwise, int64_t min,
                            int64_t max) {
  const int64_t value = input.value(name, otherwise);
  if (value >= min && value <= max) return value;
  return invalid_parameter(fmt::format(
      "Value {} for parameter {} is invalid. Reason: Must be between {} and {}, if provided.",
      value, name, min, max));
}

// Out of date or not, a receipt of a delivery: its number and a random name.
AwsStatus check_receipt(const std::string& receipt) {
  const size_t dash = receipt.find_first_not_of("0123456789");
  if (dash != 0 && dash != receipt.npos && receipt[dash] == '-') return Ok{};
  return AwsError("ReceiptHandleIsInvalid",
                  fmt::format("The input receipt handle \"{}\" is not a valid receipt handle.",
                              receipt.substr(0, 100)));
}

// "http://127.0.0.1:8080/123456789012/NAME"
std::string name_in(const Json& input) {
  const std::string url = input.value("QueueUrl", "");
  return url.substr(url.rfind('/') + 1);
}

class SqsService final : public Service {
 public:
  SqsService(MessageQueues& queues, Arns arns) : queues_(queues), arns_(std::move(arns)) {}

  const Model& model() const override { return model_; }

  Role needed_role(std::string_view operation) const override {
    if (operation == "DeleteQueue" || operation == "PurgeQueue") return Role::kAdmin;
    return role_by_name(operation);
  }

  std::string resource_of(const Call& call) const override {
    return call.input.value("QueueName", name_in(call.input));
  }

  AwsResult<Json> call(const Call& call) override {
    for (const Operation& each : kOperations) {
      if (each.name != call.operation) continue;
      auto done = (this->*each.run)(call);
      if (!done) return with_query_name(std::move(done).error());
      return done;
    }
    YARD_UNREACHABLE();
  }

 private:
  struct Operation {
    std::string_view name;
    AwsResult<Json> (SqsService::*run)(const Call&);
  };
  static const std::array<Operation, 14> kOperations;

  std::string url_of(const Call& call, std::string_view name) const {
    return fmt::format("{}/{}/{}", call.endpoint, arns_.account_id, name);
  }

  AwsResult<Json> create_queue(const Call& call) {
    const std::string name = call.input.value("QueueName", "");
    if (name.ends_with(".fifo"))
      return AwsError("UnsupportedOperation", "Queues here are standard ones: no FIFO queues.");
    if (!queue::check_queue_name(name))
      return invalid_parameter(
          "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length");
    YARD_ASSIGN(const auto attributes,
                internal::read_queue_attributes(call.input.value("Attributes", Json::object()),
                                                queue::QueueAttributes{}));
    const auto created = queues_.create(name, attributes);
    if (!created && created.error().code == Code::kInvalidArgument && queues_.info(name))
      return AwsError("QueueNameExists",
                      "A queue already exists with the same name and a different value for "
                      "an attribute.");
    YARD_TRY(answer(created));
    return Json{{"QueueUrl", url_of(call, name)}};
  }

  AwsResult<Json> get_queue_url(const Call& call) {
    const std::string name = call.input.value("QueueName", "");
    YARD_TRY(answer(queues_.info(name)));
    return Json{{"QueueUrl", url_of(call, name)}};
  }

  AwsResult<Json> list_queues(const Call& call) {
    YARD_ASSIGN(const int64_t count,
                in_range(call.input, "MaxResults", kQueuesPage, 1, kQueuesPage));
    YARD_ASSIGN(const auto names,
                answer(queues_.names(call.input.value("QueueNamePrefix", std::string()))));
    const std::string after = call.input.value("NextToken", std::string());
    Json urls = Json::array();
    for (const std::string& name : names) {
      if (name <= after && !after.empty()) continue;
      if (std::ssize(urls) == count) {
        const std::string last = urls.back().get<std::string>();
        return Json{{"QueueUrls", urls}, {"NextToken", last.substr(last.rfind('/') + 1)}};
      }
      urls.push_back(url_of(call, name));
    }
    return urls.empty() ? Json::object() : Json{{"QueueUrls", urls}};
  }

  AwsResult<Json> get_queue_attributes(const Call& call) {
    YARD_ASSIGN(const auto info, answer(queues_.info(name_in(call.input))));
    YARD_ASSIGN(Json attributes,
                internal::queue_attributes_document(
                    info, call.input.value("AttributeNames", Json::array()), arns_));
    return attributes.empty() ? Json::object() : Json{{"Attributes", std::move(attributes)}};
  }

  AwsResult<Json> set_queue_attributes(const Call& call) {
    const std::string name = name_in(call.input);
    YARD_ASSIGN(const auto info, answer(queues_.info(name)));
    YARD_ASSIGN(const auto attributes,
                internal::read_queue_attributes(call.input.at("Attributes"), info.attributes));
    YARD_TRY(answer(queues_.set_attributes(name, attributes)));
    return Json::object();
  }

  AwsResult<Json> delete_queue(const Call& call) {
    YARD_TRY(answer(queues_.remove_queue(name_in(call.input))));
    return Json::object();
  }

  AwsResult<Json> purge_queue(const Call& call) {
    YARD_TRY(answer(queues_.purge(name_in(call.input))));
    return Json::object();
  }

  static AwsResult<queue::NewMessage> new_message(const Json& input) {
    queue::NewMessage message;
    message.body = input.value("MessageBody", "");
    if (message.body.empty())
      return AwsError("InvalidParameterValue",
                      "The request must contain the parameter MessageBody.");
    const Json attributes = input.value("MessageAttributes", Json::object());
    YARD_TRY(internal::check_message_attributes(attributes));
    if (!attributes.empty()) message.attributes = attributes.dump();
    if (input.contains("MessageGroupId") || input.contains("MessageDeduplicationId"))
      return invalid_parameter(
          "The request includes a parameter that is not valid for this queue type.");
    if (input.contains("DelaySeconds")) {
      YARD_ASSIGN(message.delay_s, in_range(input, "DelaySeconds", 0, 0, 900));
    }
    return message;
  }

  static Json sent_document(const Json& input, const queue::SentMessage& sent) {
    Json document = {{"MessageId", sent.id},
                     {"MD5OfMessageBody", internal::md5_hex(input.value("MessageBody", ""))}};
    const std::string md5 =
        message_attributes_md5(input.value("MessageAttributes", Json::object()));
    if (!md5.empty()) document["MD5OfMessageAttributes"] = md5;
    return document;
  }

  AwsResult<Json> send_message(const Call& call) {
    YARD_ASSIGN(const auto message, new_message(call.input));
    YARD_ASSIGN(const auto sent, answer(queues_.send(name_in(call.input), {message})));
    return sent_document(call.input, sent.front());
  }

  // The entries of a batch, each of which succeeds or fails for itself.
  static AwsResult<Json> entries_of(const Call& call) {
    const Json entries = call.input.value("Entries", Json::array());
    if (entries.empty())
      return AwsError("EmptyBatchRequest", "There should be at least one entry in the request.");
    if (std::ssize(entries) > kBatchMax)
      return AwsError("TooManyEntriesInBatchRequest",
                      fmt::format("Maximum number of entries per request are {}. You have sent {}.",
                                  kBatchMax, entries.size()));
    std::set<std::string> ids;
    for (const Json& entry : entries)
      if (!ids.insert(entry.value("Id", "")).second)
        return AwsError("BatchEntryIdsNotDistinct",
                        fmt::format("Id {} repeated.", entry.value("Id", "")));
    return entries;
  }

  static Json failed_entry(const Json& entry, const AwsError& error) {
    return {{"Id", entry.value("Id", "")},
            {"SenderFault", error.http_status < 500},
            {"Code", error.code},
            {"Message", error.message}};
  }

  AwsResult<Json> send_message_batch(const Call& call) {
    YARD_ASSIGN(const Json entries, entries_of(call));
    size_t bytes = 0;
    for (const Json& entry : entries) bytes += entry.value("MessageBody", "").size();
    if (bytes > kBatchBytesMax)
      return AwsError("BatchRequestTooLong",
                      fmt::format("Batch requests cannot be longer than {} bytes. You have sent {} "
                                  "bytes.",
                                  kBatchBytesMax, bytes));
    Json failed = Json::array();
    std::vector<Json> accepted;
    std::vector<queue::NewMessage> messages;
    for (const Json& entry : entries) {
      auto message = new_message(entry);
      if (!message) {
        failed.push_back(failed_entry(entry, message.error()));
        continue;
      }
      accepted.push_back(entry);
      messages.push_back(*std::move(message));
    }
    YARD_ASSIGN(const auto sent, answer(queues_.send(name_in(call.input), messages)));
    Json successful = Json::array();
    for (size_t i = 0; i < sent.size(); ++i) {
      successful.push_back(sent_document(accepted[i], sent[i]));
      successful.back()["Id"] = accepted[i].value("Id", "");
    }
    return Json{{"Successful", std::move(successful)}, {"Failed", std::move(failed)}};
  }

  AwsResult<Json> receive_message(const Call& call) {
    const Json& input = call.input;
    const std::string name = name_in(input);
    YARD_ASSIGN(const auto info, answer(queues_.info(name)));
    queue::ReceiveOptions options;
    YARD_ASSIGN(options.count_max,
                in_range(input, "MaxNumberOfMessages", 1, 1, kMessagesPerReceiveMax));
    if (input.contains("VisibilityTimeout")) {
      YARD_ASSIGN(options.visibility_timeout_s, in_range(input, "VisibilityTimeout", 0, 0, 43'200));
    }
    YARD_ASSIGN(const int64_t wait_s,
                in_range(input, "WaitTimeSeconds", info.attributes.receive_wait_s, 0, kWaitMax_s));
    options.wait = std::chrono::seconds(wait_s);
    YARD_ASSIGN(const auto messages, answer(queues_.receive(name, options, call.stop)));
    Json documents = Json::array();
    for (const auto& message : messages) documents.push_back(message_document(message, input));
    return documents.empty() ? Json::object() : Json{{"Messages", std::move(documents)}};
  }

  Json message_document(const queue::ReceivedMessage& message, const Json& input) const {
    Json document = {{"MessageId", message.id},
                     {"ReceiptHandle", message.receipt},
                     {"Body", message.body},
                     {"MD5OfBody", internal::md5_hex(message.body)}};
    Json wanted = input.value("AttributeNames", Json::array());
    for (const Json& each : input.value("MessageSystemAttributeNames", Json::array()))
      wanted.push_back(each);
    Json system = internal::system_attributes(message, wanted, arns_);
    if (!system.empty()) document["Attributes"] = std::move(system);
    const Json all = message.attributes.empty() ? Json::object()
                                                : Json::parse(message.attributes, nullptr, false);
    if (!all.is_object()) return document;  // of somebody who does not speak SQS
    Json attributes = internal::wanted_message_attributes(
        all, input.value("MessageAttributeNames", Json::array()));
    if (attributes.empty()) return document;
    document["MD5OfMessageAttributes"] = message_attributes_md5(attributes);
    document["MessageAttributes"] = std::move(attributes);
    return document;
  }

  // SQS answers a receipt that is out of date as if it had been the last one.
  AwsResult<Json> delete_message(const Call& call) {
    const std::string receipt = call.input.value("ReceiptHandle", std::string());
    YARD_TRY(answer(queues_.info(name_in(call.input))));
    YARD_TRY(check_receipt(receipt));
    YARD_TRY(answer(queues_.remove(name_in(call.input), {receipt})));
    return Json::object();
  }

  AwsResult<Json> delete_message_batch(const Call& call) {
    YARD_ASSIGN(const Json entries, entries_of(call));
    std::vector<std::string> receipts;
    Json successful = Json::array();
    Json failed = Json::array();
    for (const Json& entry : entries) {
      receipts.push_back(entry.value("ReceiptHandle", ""));
      if (const auto known = check_receipt(receipts.back()); !known) {
        failed.push_back(failed_entry(entry, known.error()));
        receipts.pop_back();
        continue;
      }
      successful.push_back({{"Id", entry.value("Id", "")}});
    }
    YARD_TRY(answer(queues_.remove(name_in(call.input), receipts)));
    return Json{{"Successful", std::move(successful)}, {"Failed", std::move(failed)}};
  }

  AwsStatus change_one(const std::string& name, const Json& entry) {
    YARD_ASSIGN(const int64_t timeout_s, in_range(entry, "VisibilityTimeout", 0, 0, 43'200));
    YARD_TRY(check_receipt(entry.value("ReceiptHandle", "")));
    YARD_ASSIGN(const bool changed, answer(queues_.change_visibility(
                                        name, entry.value("ReceiptHandle", ""), timeout_s)));
    if (changed) return Ok{};
    return AwsError("MessageNotInflight",
                    "The message referred to is not in flight, or its receipt is out of date.");
  }

  AwsResult<Json> change_message_visibility(const Call& call) {
    YARD_TRY(answer(queues_.info(name_in(call.input))));
    YARD_TRY(change_one(name_in(call.input), call.input));
    return Json::object();
  }

  AwsResult<Json> change_message_visibility_batch(const Call& call) {
    YARD_ASSIGN(const Json entries, entries_of(call));
    YARD_TRY(answer(queues_.info(name_in(call.input))));
    Json successful = Json::array();
    Json failed = Json::array();
    for (const Json& entry : entries) {
      const auto changed = change_one(name_in(call.input), entry);
      if (changed)
        successful.push_back({{"Id", entry.value("Id", "")}});
      else
        failed.push_back(failed_entry(entry, changed.error()));
    }
    return Json{{"Successful", std::move(successful)}, {"Failed", std::move(failed)}};
  }

  const Model& model_ = Model::built_in("sqs");
  MessageQueues& queues_;
  Arns arns_;
};

const std::array<SqsService::Operation, 14> SqsService::kOperations{{
    {"CreateQueue", &SqsService::create_queue},
    {"GetQueueUrl", &SqsService::get_queue_url},
    {"ListQueues", &SqsService::list_queues},
    {"GetQueueAttributes", &SqsService::get_queue_attributes},
    {"SetQueueAttributes", &SqsService::set_queue_attributes},
    {"DeleteQueue", &SqsService::delete_queue},
    {"PurgeQueue", &SqsService::purge_queue},
    {"SendMessage", &SqsService::send_message},
    {"SendMessageBatch", &SqsService::send_message_batch},
    {"ReceiveMessage", &SqsService::receive_message},
    {"DeleteMessage", &SqsService::delete_message},
    {"DeleteMessageBatch", &SqsService::delete_message_batch},
    {"ChangeMessageVisibility", &SqsService::change_message_visibility},
    {"ChangeMessageVisibilityBatch", &SqsService::change_message_visibility_batch},
}};

}  // namespace

std::unique_ptr<Service> make_sqs_service(queue::MessageQueues& queues, Arns arns) {
  return std::make_unique<SqsService>(queues, std::move(arns));
}

}  // namespace yard::api
