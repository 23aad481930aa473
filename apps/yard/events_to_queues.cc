#include "events_to_queues.h"

#include <fmt/format.h>

#include <memory>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "net/uri.h"
#include "queue/message_queues.h"

namespace yard::app {
namespace {

// Event message structure 2.1 of S3.
std::string event_text(const gateway::ObjectEvent& event, const gateway::NotificationRule& rule) {
  Json object = {{"key", percent_encode_path(event.key)},
                 {"sequencer", fmt::format("{:016X}", event.sequencer)}};
  if (!event.etag.empty()) {
    object["size"] = event.size_bytes;
    object["eTag"] = event.etag;
  }
  const Json bucket = {{"name", event.bucket}, {"arn", "arn:aws:s3:::" + event.bucket}};
  const Json record = {{"eventVersion", "2.1"},
                       {"eventSource", "aws:s3"},
                       {"eventTime", to_rfc3339(event.time)},
                       {"eventName", event.name},
                       {"s3",
                        {{"s3SchemaVersion", "1.0"},
                         {"configurationId", rule.id},
                         {"bucket", bucket},
                         {"object", object}}}};
  return Json{{"Records", Json::array({record})}}.dump();
}

}  // namespace

Result<gateway::EventSink> events_into_queues(const std::string& path) {
  YARD_ASSIGN(queue::MessageQueues opened, queue::MessageQueues::open({.path = path}));
  const auto queues = std::make_shared<queue::MessageQueues>(std::move(opened));
  return gateway::EventSink(
      [queues](const gateway::ObjectEvent& event, const gateway::NotificationRule& rule) {
        if (rule.kind != gateway::NotificationRule::TargetKind::kQueue) return;
        const std::string name = rule.target_arn.substr(rule.target_arn.rfind(':') + 1);
        const auto sent = queues->send(name, {{.body = event_text(event, rule)}});
        if (!sent)
          log_warning("{} of {}/{} did not reach the queue {}: {}", event.name, event.bucket,
                      event.key, name, sent.error().message);
      });
}

}  // namespace yard::app
