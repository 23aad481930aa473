#include "events_to_queues.h"

#include <fmt/format.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

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

// Each event is in its queue, and survives a power cut, when send() returns; those of uploads that
// end at the same time share a commit. Thread-safe.
class EventWriter {
 public:
  explicit EventWriter(queue::MessageQueues queues) : queues_(std::move(queues)) {}

  void send(const std::string& queue, std::string text) {
    std::unique_lock lock(mutex_);
    waiting_[queue].push_back({.body = std::move(text)});
    const uint64_t own = ++taken_count_;
    while (done_count_ < own) {
      if (is_writing_)
        changed_.wait(lock);
      else
        write(lock);
    }
  }

 private:
  // All that wait, while others may come.
  void write(std::unique_lock<std::mutex>& lock) {
    is_writing_ = true;
    const auto batch = std::exchange(waiting_, {});
    const uint64_t count = taken_count_;
    lock.unlock();
    for (const auto& [queue, messages] : batch)
      if (const auto sent = queues_.send(queue, messages); !sent)
        log_warning("{} events did not reach the queue {}: {}", messages.size(), queue,
                    sent.error().message);
    lock.lock();
    done_count_ = count;
    is_writing_ = false;
    changed_.notify_all();
  }

  queue::MessageQueues queues_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<queue::NewMessage>> waiting_;  // by queue
  uint64_t taken_count_ = 0;
  uint64_t done_count_ = 0;
  bool is_writing_ = false;
};

}  // namespace

Result<gateway::EventSink> events_into_queues(const std::string& path) {
  YARD_ASSIGN(queue::MessageQueues opened, queue::MessageQueues::open({.path = path}));
  const auto writer = std::make_shared<EventWriter>(std::move(opened));
  return gateway::EventSink(
      [writer](const gateway::ObjectEvent& event, const gateway::NotificationRule& rule) {
        if (rule.kind != gateway::NotificationRule::TargetKind::kQueue) return;
        const std::string name = rule.target_arn.substr(rule.target_arn.rfind(':') + 1);
        writer->send(name, event_text(event, rule));
      });
}

}  // namespace yard::app
