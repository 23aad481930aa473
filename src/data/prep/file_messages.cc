#include "prep/prep_messages.h"

namespace yard::prep {
namespace {

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

class FileMessages final : public PrepMessages {
 public:
  FileMessages(queue::MessageQueues queues, std::string name, bool is_shared)
      : queues_(std::move(queues)),
        name_(std::move(name)),
        dead_name_(name_ + "-dead"),
        is_shared_(is_shared) {}

  Status make(const PrepSpec& spec) {
    queue::QueueAttributes dead;
    dead.retention_s = kRetentionSeconds;
    YARD_TRY(make_queue(queues_, dead_name_, dead));
    queue::QueueAttributes attributes;
    attributes.visibility_timeout_s = int64_t(spec.visibility.count());
    attributes.retention_s = kRetentionSeconds;
    attributes.dead_letter_queue = dead_name_;
    attributes.receive_count_max = spec.receive_count_max;
    return make_queue(queues_, name_, attributes);
  }

  Result<std::vector<queue::ReceivedMessage>> receive(const queue::ReceiveOptions& options,
                                                      const StopToken& stop) override {
    return queues_.receive(name_, options, stop);
  }
  Result<queue::QueueCounts> counts() override { return counts_of(name_); }
  Result<queue::QueueCounts> dead_counts() override { return counts_of(dead_name_); }

  Result<uint64_t> send(const std::vector<queue::NewMessage>& messages) override {
    YARD_ASSIGN(const auto sent, queues_.send(name_, messages));
    uint64_t new_count = 0;
    for (const queue::SentMessage& message : sent) new_count += message.is_new ? 1 : 0;
    return new_count;
  }
  Status remove(const std::vector<std::string>& receipts) override {
    YARD_TRY(queues_.remove(name_, receipts));
    return Ok{};
  }
  Status hide(const std::vector<std::string>& receipts, int64_t seconds) override {
    return queues_.hide_all(name_, receipts, seconds);
  }
  Result<bool> reject(const std::string& receipt, const std::string&,
                      const std::string& reason) override {
    return queues_.reject(name_, receipt, reason);
  }
  Result<std::vector<queue::ReceivedMessage>> dead_letters() override {
    queue::ReceiveOptions wanted;
    wanted.count_max = 1000;
    wanted.visibility_timeout_s = 0;  // they stay as they are
    return queues_.receive(dead_name_, wanted);
  }
  Result<int64_t> redrive() override { return queues_.redrive(dead_name_); }

  std::string name() const override { return name_; }
  bool is_shared() const override { return is_shared_; }

 private:
  Result<queue::QueueCounts> counts_of(const std::string& name) {
    YARD_ASSIGN(const queue::QueueInfo info, queues_.info(name));
    return info.counts;
  }

  queue::MessageQueues queues_;
  const std::string name_;
  const std::string dead_name_;
  const bool is_shared_;
};

}  // namespace

Result<std::unique_ptr<PrepMessages>> open_file_messages(const PrepSpec& spec,
                                                         const std::string& state_dir) {
  queue::MessageQueuesOptions options;
  options.path = spec.queue_path.empty() ? state_dir + "/queue.db" : spec.queue_path;
  // After a power cut the ledger knows what is done, and a listing what is not.
  options.power_safe = false;
  YARD_ASSIGN(queue::MessageQueues queues, queue::MessageQueues::open(options));
  const std::string name = spec.queue_name.empty() ? spec.name : spec.queue_name;
  auto messages = std::make_unique<FileMessages>(std::move(queues), name, !spec.queue_path.empty());
  YARD_TRY(messages->make(spec));
  return std::unique_ptr<PrepMessages>(std::move(messages));
}

}  // namespace yard::prep
