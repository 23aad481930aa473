#include "images/picture_size.h"
#include "prep/object_events.h"
#include "prep/prep_run.h"

namespace yard::prep {
namespace {

constexpr size_t kSendCount = 500;
constexpr int64_t kRetentionSeconds = 1'209'600;  // as long as a queue can keep messages

// The queue of a spec that was changed keeps its messages.
Status make_queue(queue::MessageQueues& queues, const std::string& name,
                  const queue::QueueAttributes& attributes) {
  auto created = queues.create(name, attributes);
  if (created) return Ok{};
  if (created.error().code != Code::kInvalidArgument) return created.error();
  YARD_ASSIGN(queue::QueueInfo info, queues.info(name));
  info.attributes.visibility_timeout_s = attributes.visibility_timeout_s;
  info.attributes.dead_letter_queue = attributes.dead_letter_queue;
  info.attributes.receive_count_max = attributes.receive_count_max;
  return queues.set_attributes(name, info.attributes);
}

}  // namespace

Result<PrepQueue> open_prep_queue(const PrepSpec& spec, const std::string& state_dir) {
  queue::MessageQueuesOptions options;
  options.path = spec.queue_path.empty() ? state_dir + "/queue.db" : spec.queue_path;
  // After a power cut the ledger knows what is done, and a listing what is not.
  options.power_safe = false;
  YARD_ASSIGN(queue::MessageQueues queues, queue::MessageQueues::open(options));
  const std::string name = spec.queue_name.empty() ? spec.name : spec.queue_name;
  PrepQueue made{std::move(queues), name, name + "-dead"};
  queue::QueueAttributes dead;
  dead.retention_s = kRetentionSeconds;
  YARD_TRY(make_queue(made.queues, made.dead_name, dead));
  queue::QueueAttributes attributes;
  attributes.visibility_timeout_s = int64_t(spec.visibility.count());
  attributes.retention_s = kRetentionSeconds;
  attributes.dead_letter_queue = made.dead_name;
  attributes.receive_count_max = spec.receive_count_max;
  YARD_TRY(make_queue(made.queues, made.name, attributes));
  return made;
}

Result<ScanCounts> scan_source(PrepQueue& queue, storage::ObjectStore& store,
                               const std::string& prefix, const std::string& bucket,
                               const StopToken& stop) {
  YARD_ASSIGN(const std::vector<storage::ObjectInfo> objects, store.list_all(prefix));
  ScanCounts counts;
  std::vector<queue::NewMessage> messages;
  const auto send = [&]() -> Status {
    if (messages.empty()) return Ok{};
    YARD_ASSIGN(const auto sent, queue.queues.send(queue.name, messages));
    for (const queue::SentMessage& message : sent) counts.accepted += message.is_new ? 1 : 0;
    messages.clear();
    return Ok{};
  };
  for (const storage::ObjectInfo& object : objects) {
    if (stop.stopped()) return Error{Code::kCancelled, "stopped"};
    const auto name = picture_name(object.key);
    if (!name || !images::is_picture_extension(name->extension)) {
      ++counts.others;
      continue;
    }
    ++counts.pictures;
    const ObjectEvent event{bucket, object.key, object.etag, object.size_bytes};
    messages.push_back({.body = write_object_event(event), .dedupe_key = dedupe_key(event)});
    if (messages.size() == kSendCount) YARD_TRY(send());
  }
  YARD_TRY(send());
  return counts;
}

std::string ledger_path(const std::string& state_dir) {
  return state_dir + "/ledger.db";
}

Result<PrepStatus> prep_status(const PrepSpec& spec, const std::string& state_dir) {
  PrepStatus status;
  auto ledger = Ledger::open_read_only(ledger_path(state_dir));
  if (!ledger) return std::move(ledger).error().while_("nothing was prepared yet");
  YARD_ASSIGN(status.ledger, ledger->counts());
  YARD_ASSIGN(PrepQueue queue, open_prep_queue(spec, state_dir));
  YARD_ASSIGN(const queue::QueueInfo info, queue.queues.info(queue.name));
  YARD_ASSIGN(const queue::QueueInfo dead, queue.queues.info(queue.dead_name));
  status.queue = info.counts;
  status.dead = dead.counts;
  return status;
}

Result<std::vector<DeadLetter>> dead_letters(const PrepSpec& spec, const std::string& state_dir) {
  YARD_ASSIGN(PrepQueue queue, open_prep_queue(spec, state_dir));
  queue::ReceiveOptions wanted;
  wanted.count_max = 1000;
  wanted.visibility_timeout_s = 0;  // they stay as they are
  YARD_ASSIGN(const auto messages, queue.queues.receive(queue.dead_name, wanted));
  std::vector<DeadLetter> letters;
  for (const queue::ReceivedMessage& message : messages) {
    const auto event = parse_object_event(message.body);
    const bool has_key = event && event->has_value();
    letters.push_back({has_key ? (*event)->key : message.body, message.dead_letter_reason});
  }
  return letters;
}

}  // namespace yard::prep
