#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/json.h"
#include "net/encoding.h"
#include "prep/prep_messages.h"

namespace yard::prep {
namespace {

constexpr size_t kBatchCountMax = 10;  // SQS's
constexpr int64_t kRetentionSeconds = 1'209'600;
constexpr int64_t kDeadLettersMax = 1000;
constexpr const char* kReason = "reason";  // a message attribute of ours, of dead letters

int64_t number_in(const Json& attributes, const char* name) {
  const auto found = attributes.find(name);
  if (found == attributes.end() || !found->is_string()) return 0;
  const auto& text = found->get_ref<const std::string&>();
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

Result<queue::ReceivedMessage> message_from(const Json& json) {
  queue::ReceivedMessage message;
  YARD_ASSIGN(message.id, json_field<std::string>(json, "MessageId", "message"));
  YARD_ASSIGN(message.receipt, json_field<std::string>(json, "ReceiptHandle", "message"));
  YARD_ASSIGN(message.body, json_field<std::string>(json, "Body", "message"));
  const Json system = json.value("Attributes", Json::object());
  message.sent_ms = number_in(system, "SentTimestamp");
  message.receive_count = number_in(system, "ApproximateReceiveCount");
  const Json own = json.value("MessageAttributes", Json::object());
  if (own.contains(kReason)) message.dead_letter_reason = own[kReason].value("StringValue", "");
  return message;
}

class SqsMessages final : public PrepMessages {
 public:
  SqsMessages(const aws::AwsClient& sqs, std::string name) : sqs_(sqs), name_(std::move(name)) {}

  Status make(const PrepSpec& spec) {
    YARD_ASSIGN(dead_url_, make_queue(name_ + "-dead", Json::object()));
    YARD_ASSIGN(const std::string dead_arn, arn_of(dead_url_));
    const Json redrive = {{"deadLetterTargetArn", dead_arn},
                          {"maxReceiveCount", spec.receive_count_max}};
    YARD_ASSIGN(url_, make_queue(name_, {{"VisibilityTimeout", text(spec.visibility.count())},
                                         {"RedrivePolicy", redrive.dump()}}));
    return Ok{};
  }
  Result<std::string> arn() { return arn_of(url_); }

  Result<std::vector<queue::ReceivedMessage>> receive(const queue::ReceiveOptions& options,
                                                      const StopToken& stop) override {
    return receive_from(url_, options, stop);
  }
  Result<queue::QueueCounts> counts() override { return counts_of(url_); }
  Result<queue::QueueCounts> dead_counts() override { return counts_of(dead_url_); }

  Result<uint64_t> send(const std::vector<queue::NewMessage>& messages) override {
    for (size_t begin = 0; begin < messages.size(); begin += kBatchCountMax) {
      Json entries = Json::array();
      for (size_t i = begin; i < std::min(messages.size(), begin + kBatchCountMax); ++i)
        entries.push_back({{"Id", text(int64_t(i))}, {"MessageBody", messages[i].body}});
      YARD_TRY(batch("SendMessageBatch", url_, std::move(entries)));
    }
    return uint64_t(messages.size());
  }

  Status remove(const std::vector<std::string>& receipts) override {
    return for_each_batch("DeleteMessageBatch", receipts, Json::object());
  }
  Status hide(const std::vector<std::string>& receipts, int64_t seconds) override {
    return for_each_batch("ChangeMessageVisibilityBatch", receipts,
                          {{"VisibilityTimeout", seconds}});
  }

  // First there, then gone here: a death in between makes two of it, and the ledger tells.
  Result<bool> reject(const std::string& receipt, const std::string& body,
                      const std::string& reason) override {
    const Json attribute = {{"DataType", "String"}, {"StringValue", reason}};
    YARD_TRY(sqs_.call(aws::kSqs, "SendMessage",
                       {{"QueueUrl", dead_url_},
                        {"MessageBody", body},
                        {"MessageAttributes", {{kReason, attribute}}}}));
    YARD_TRY(remove({receipt}));
    return true;
  }

  Result<std::vector<queue::ReceivedMessage>> dead_letters() override {
    YARD_ASSIGN(auto letters, take_dead_letters());
    std::vector<std::string> receipts;
    for (const auto& letter : letters) receipts.push_back(letter.receipt);
    YARD_TRY(for_each_batch("ChangeMessageVisibilityBatch", receipts, {{"VisibilityTimeout", 0}},
                            dead_url_));
    return letters;
  }

  Result<int64_t> redrive() override {
    int64_t count = 0;
    while (true) {
      YARD_ASSIGN(const auto letters, take_dead_letters());
      if (letters.empty()) return count;
      std::vector<queue::NewMessage> messages;
      std::vector<std::string> receipts;
      for (const auto& letter : letters) {
        messages.push_back({.body = letter.body});
        receipts.push_back(letter.receipt);
      }
      YARD_TRY(send(messages));
      YARD_TRY(for_each_batch("DeleteMessageBatch", receipts, Json::object(), dead_url_));
      count += std::ssize(letters);
    }
  }

  std::string name() const override { return name_; }
  bool is_shared() const override { return true; }

 private:
  static std::string text(int64_t value) { return std::to_string(value); }

  Result<std::string> make_queue(const std::string& name, Json attributes) {
    attributes["MessageRetentionPeriod"] = text(kRetentionSeconds);
    // One that is there already stays as its owner made it.
    auto known = sqs_.call(aws::kSqs, "GetQueueUrl", {{"QueueName", name}});
    if (!known && known.error().code != Code::kNotFound) return std::move(known).error();
    if (!known)
      known =
          sqs_.call(aws::kSqs, "CreateQueue", {{"QueueName", name}, {"Attributes", attributes}});
    if (!known) return std::move(known).error();
    return json_field<std::string>(*known, "QueueUrl", "queue");
  }

  Result<Json> attributes_of(const std::string& url) {
    YARD_ASSIGN(const Json answer, sqs_.call(aws::kSqs, "GetQueueAttributes",
                                             {{"QueueUrl", url}, {"AttributeNames", {"All"}}}));
    return json_field<Json>(answer, "Attributes", "queue");
  }
  Result<std::string> arn_of(const std::string& url) {
    YARD_ASSIGN(const Json attributes, attributes_of(url));
    return json_field<std::string>(attributes, "QueueArn", "queue");
  }
  Result<queue::QueueCounts> counts_of(const std::string& url) {
    YARD_ASSIGN(const Json attributes, attributes_of(url));
    return queue::QueueCounts{number_in(attributes, "ApproximateNumberOfMessages"),
                              number_in(attributes, "ApproximateNumberOfMessagesNotVisible"),
                              number_in(attributes, "ApproximateNumberOfMessagesDelayed")};
  }

  Result<std::vector<queue::ReceivedMessage>> receive_from(const std::string& url,
                                                           const queue::ReceiveOptions& options,
                                                           const StopToken& stop) {
    const auto wait_s = std::chrono::ceil<std::chrono::seconds>(options.wait).count();
    Json input = {{"QueueUrl", url},
                  {"MaxNumberOfMessages", std::min<int64_t>(options.count_max, kBatchCountMax)},
                  {"WaitTimeSeconds", wait_s},
                  {"MessageSystemAttributeNames", {"All"}},
                  {"MessageAttributeNames", {"All"}}};
    if (options.visibility_timeout_s) input["VisibilityTimeout"] = *options.visibility_timeout_s;
    auto answer = sqs_.call(aws::kSqs, "ReceiveMessage", input, stop);
    std::vector<queue::ReceivedMessage> messages;
    if (!answer && answer.error().code == Code::kCancelled) return messages;
    if (!answer) return std::move(answer).error();
    const Json list = answer->value("Messages", Json::array());
    for (const Json& each : list) {
      YARD_ASSIGN(auto message, message_from(each));
      messages.push_back(std::move(message));
    }
    return messages;
  }

  // Hidden for a while, so that none comes twice.
  Result<std::vector<queue::ReceivedMessage>> take_dead_letters() {
    std::vector<queue::ReceivedMessage> letters;
    queue::ReceiveOptions wanted;
    wanted.count_max = kBatchCountMax;
    wanted.visibility_timeout_s = 60;
    while (std::ssize(letters) < kDeadLettersMax) {
      YARD_ASSIGN(auto more, receive_from(dead_url_, wanted, {}));
      if (more.empty()) break;
      std::ranges::move(more, std::back_inserter(letters));
    }
    return letters;
  }

  Status batch(const char* operation, const std::string& url, Json entries) {
    YARD_TRY(sqs_.call(aws::kSqs, operation, {{"QueueUrl", url}, {"Entries", std::move(entries)}}));
    return Ok{};
  }
  Status for_each_batch(const char* operation, const std::vector<std::string>& receipts,
                        const Json& more, const std::string& url = {}) {
    for (size_t begin = 0; begin < receipts.size(); begin += kBatchCountMax) {
      Json entries = Json::array();
      for (size_t i = begin; i < std::min(receipts.size(), begin + kBatchCountMax); ++i) {
        Json entry = {{"Id", text(int64_t(i))}, {"ReceiptHandle", receipts[i]}};
        entry.update(more);
        entries.push_back(std::move(entry));
      }
      YARD_TRY(batch(operation, url.empty() ? url_ : url, std::move(entries)));
    }
    return Ok{};
  }

  const aws::AwsClient& sqs_;
  const std::string name_;
  std::string url_;
  std::string dead_url_;
};

Status notify(const SqsPlace& place, const std::string& queue_arn) {
  const std::string path = "/" + place.bucket;
  YARD_ASSIGN(const std::string before, place.s3.s3("GET", path, "notification=", ""));
  YARD_ASSIGN(const std::string after, with_queue_notification(before, queue_arn, place.prefix));
  if (after == before) return Ok{};
  YARD_TRY(place.s3.s3("PUT", path, "notification=", after));
  return Ok{};
}

std::string xml_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

// S3 tells capitals from small letters here. What is called otherwise is found by a listing.
constexpr const char* kPictureSuffixes[] = {".jpg", ".JPG", ".jpeg", ".JPEG",
                                            ".png", ".PNG", ".webp", ".WEBP"};

std::string rule_for(const std::string& queue_arn, const std::string& prefix, const char* suffix) {
  const auto filter = [](const char* name, const std::string& value) {
    return fmt::format("<FilterRule><Name>{}</Name><Value>{}</Value></FilterRule>", name,
                       xml_text(value));
  };
  return fmt::format(
      "<QueueConfiguration><Queue>{}</Queue><Event>s3:ObjectCreated:*</Event><Filter><S3Key>{}{}"
      "</S3Key></Filter></QueueConfiguration>",
      xml_text(queue_arn), prefix.empty() ? "" : filter("prefix", prefix),
      filter("suffix", suffix));
}

}  // namespace

Result<std::string> with_queue_notification(const std::string& configuration,
                                            const std::string& queue_arn,
                                            const std::string& prefix) {
  constexpr std::string_view kRoot = "NotificationConfiguration";
  if (configuration.find("<Queue>" + queue_arn + "</Queue>") != configuration.npos)
    return configuration;
  std::string rules;
  for (const char* suffix : kPictureSuffixes) rules += rule_for(queue_arn, prefix, suffix);
  const size_t end = configuration.rfind(fmt::format("</{}>", kRoot));
  if (end != configuration.npos) return std::string(configuration).insert(end, rules);
  // "<NotificationConfiguration xmlns=.../>", or nothing at all.
  const bool is_empty = configuration.empty() || configuration.find(kRoot) != configuration.npos;
  if (!is_empty)
    return Error{Code::kInvalidArgument, "the bucket's answer is no notification configuration"};
  return fmt::format("<{0}>{1}</{0}>", kRoot, rules);
}

Result<std::unique_ptr<PrepMessages>> open_sqs_messages(const PrepSpec& spec, SqsPlace place) {
  auto messages = std::make_unique<SqsMessages>(place.sqs, spec.queue_sqs);
  YARD_TRY(messages->make(spec));
  if (spec.queue_notifications) {
    YARD_ASSIGN(const std::string arn, messages->arn());
    YARD_TRY(notify(place, arn));
  }
  return std::unique_ptr<PrepMessages>(std::move(messages));
}

}  // namespace yard::prep
