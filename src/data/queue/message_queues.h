// MessageQueues: message queues in one SQLite file, with the rules of SQS: a received message is
// invisible for a while, comes back unless it is removed, and goes to the dead letters after too
// many receipts. Every message is delivered at least once; by a dedupe key it is accepted once.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/stop_token.h"

namespace yard::queue {

// The limits are SQS's.
struct QueueAttributes {
  int64_t visibility_timeout_s = 30;      // 0 to 43200
  int64_t delay_s = 0;                    // 0 to 900
  int64_t retention_s = 345'600;          // 60 to 1209600; older messages are dropped
  int64_t message_bytes_max = 1'048'576;  // 1024 to 1048576
  int64_t receive_wait_s = 0;             // 0 to 20
  std::string dead_letter_queue;          // a queue that exists, or none
  int64_t receive_count_max = 0;          // 1 to 1000 with a dead letter queue
  bool operator==(const QueueAttributes&) const = default;
};
Status check_attributes(const QueueAttributes& attributes);
// Letters, digits, '-' and '_', 1 to 80.
Status check_queue_name(std::string_view name);

struct NewMessage {
  std::string body;        // UTF-8, not empty
  std::string attributes;  // kept as they are, given back as they are
  std::optional<int64_t> delay_s;
  std::string dedupe_key;  // not empty: refused silently when this queue has accepted it before
};

struct SentMessage {
  std::string id;
  bool is_new = true;  // false: its dedupe key was known; `id` is that of the message then
};

struct ReceivedMessage {
  std::string id;
  std::string receipt;  // of this delivery: names the message until it is visible again
  std::string body;
  std::string attributes;
  int64_t receive_count = 0;  // this one included
  int64_t sent_ms = 0;        // Unix time
  int64_t first_received_ms = 0;
  std::string dead_letter_source;  // the queue it was in before; empty unless it is a dead letter
  std::string dead_letter_reason;
};

struct ReceiveOptions {
  int64_t count_max = 1;  // 1 to 1000
  std::optional<int64_t> visibility_timeout_s;
  std::chrono::milliseconds wait{0};  // for the first message
};

struct QueueCounts {
  int64_t visible = 0;
  int64_t in_flight = 0;
  int64_t delayed = 0;
};

struct QueueInfo {
  std::string name;
  QueueAttributes attributes;
  int64_t created_ms = 0;
  int64_t modified_ms = 0;
  QueueCounts counts;
};

struct MessageQueuesOptions {
  std::string path;
  // Each commit survives a power cut. Without it a power cut may take the last commits, the death
  // of a process never does.
  bool power_safe = true;
  Clock* clock = &Clock::real();  // must outlive it
};

// Thread-safe; several processes may have the same file open. All codes: kNotFound (no such queue),
// kInvalidArgument, kExhausted (disk full: nothing was changed), kUnavailable, kCorrupt.
class MessageQueues {
 public:
  static Result<MessageQueues> open(const MessageQueuesOptions& options);
  MessageQueues(MessageQueues&&) noexcept;
  MessageQueues& operator=(MessageQueues&&) noexcept;
  ~MessageQueues();

  // True: it is new. kInvalidArgument when it exists with other attributes.
  Result<bool> create(const std::string& name, const QueueAttributes& attributes);
  Status set_attributes(const std::string& name, const QueueAttributes& attributes);
  Result<QueueInfo> info(const std::string& name);
  Result<std::vector<std::string>> names(std::string_view prefix = "");  // in their order
  Status remove_queue(const std::string& name);
  // Forgets all messages; their dedupe keys too.
  Status purge(const std::string& name);

  // All or none, in one commit.
  Result<std::vector<SentMessage>> send(const std::string& name,
                                        const std::vector<NewMessage>& messages);
  // Longest visible first. Empty: none came within the wait, or stop was asked.
  Result<std::vector<ReceivedMessage>> receive(const std::string& name,
                                               const ReceiveOptions& options,
                                               const StopToken& stop = {});
  // For each receipt: the message is gone now. False: the receipt is out of date (the message was
  // received again, or removed before); nothing happens to it then.
  Result<std::vector<bool>> remove(const std::string& name,
                                   const std::vector<std::string>& receipts);
  // False: out of date, or the message is visible again.
  Result<bool> change_visibility(const std::string& name, const std::string& receipt,
                                 int64_t visibility_timeout_s);
  // change_visibility() of many, in one commit; receipts that are out of date are passed over.
  Status hide_all(const std::string& name, const std::vector<std::string>& receipts,
                  int64_t visibility_timeout_s);
  // At once to the dead letters, with a reason. kInvalidArgument: the queue has none.
  Result<bool> reject(const std::string& name, const std::string& receipt,
                      const std::string& reason);
  // Dead letters go back to the queue they came from, fresh. Returns how many.
  Result<int64_t> redrive(const std::string& dead_letter_queue);

 private:
  struct Impl;
  explicit MessageQueues(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace yard::queue
