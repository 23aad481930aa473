// What happened to objects, told to whoever a bucket's notification configuration names.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "gateway/s3_error.h"
#include "gateway/xml.h"

namespace yard::gateway {

struct ObjectEvent {
  std::string name;  // "ObjectCreated:Put", as in the records of S3
  std::string bucket;
  std::string key;
  uint64_t size_bytes = 0;  // 0 for removals
  std::string etag;         // empty for removals
  std::chrono::system_clock::time_point time;
  uint64_t sequencer = 0;  // greater for the later of two events of one key
};

// Where events go. Called on the thread of the request, after the change is durable and before it
// is answered, once for each rule that wants the event; must be thread-safe and quick.
using EventSink = std::function<void(const ObjectEvent& event, const NotificationRule& rule)>;

// Whether the rule asks for this event. Pure.
bool wants(const NotificationRule& rule, const ObjectEvent& event);

// The rules of all buckets, each in a file SETTINGS/BUCKET/notification.xml, and the way of events
// to the sink. Thread-safe. `settings_fd` is not owned and outlives it.
class Notifications {
 public:
  Notifications(int settings_fd, EventSink sink)
      : settings_fd_(settings_fd), sink_(std::move(sink)) {}

  S3Result<std::vector<NotificationRule>> rules(const std::string& bucket);
  S3Status set_rules(const std::string& bucket, std::vector<NotificationRule> rules);
  void forget(const std::string& bucket);  // it was deleted
  void tell(ObjectEvent event);

 private:
  const int settings_fd_;
  const EventSink sink_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::vector<NotificationRule>> rules_;  // those read so far
  uint64_t last_sequencer_ = 0;
};

}  // namespace yard::gateway
