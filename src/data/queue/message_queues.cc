#include "queue/message_queues.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <utility>

#include "base/ids.h"
#include "queue/schema_internal.h"

namespace yard::queue {

using sqlite::Connection;
using sqlite::Statement;
using sqlite::Transaction;

namespace {

constexpr size_t kNameBytesMax = 80;
constexpr int64_t kReceiveCountMax = 1000;
constexpr size_t kReceiptCharacters = 24;
constexpr int64_t kExpiredPerReceiveMax = 100;
// Another process may have sent something: we look so often while we wait.
constexpr std::chrono::milliseconds kLookInterval{50};

constexpr std::string_view kAttributeColumns =
    "visibility_timeout_s, delay_s, retention_s, message_bytes_max, receive_wait_s, "
    "dead_letter_queue, receive_count_max";

Error invalid(std::string message) {
  return {Code::kInvalidArgument, std::move(message)};
}

Status check_range(std::string_view name, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return Ok{};
  return invalid(fmt::format("{} is {}, must be {} to {}", name, value, min, max));
}

QueueAttributes read_attributes(Statement& row) {
  QueueAttributes out;
  out.visibility_timeout_s = row.integer();
  out.delay_s = row.integer();
  out.retention_s = row.integer();
  out.message_bytes_max = row.integer();
  out.receive_wait_s = row.integer();
  out.dead_letter_queue = row.text();
  out.receive_count_max = row.integer();
  return out;
}

Statement& bind_attributes(Statement& statement, const QueueAttributes& attributes) {
  return statement.bind(attributes.visibility_timeout_s)
      .bind(attributes.delay_s)
      .bind(attributes.retention_s)
      .bind(attributes.message_bytes_max)
      .bind(attributes.receive_wait_s)
      .bind(attributes.dead_letter_queue)
      .bind(attributes.receive_count_max);
}

Status check_message(const NewMessage& message, const QueueAttributes& queue) {
  if (message.body.empty()) return invalid("a message has an empty body");
  const auto size = static_cast<int64_t>(message.body.size() + message.attributes.size());
  if (size > queue.message_bytes_max)
    return invalid(
        fmt::format("a message has {} bytes, the queue takes {}", size, queue.message_bytes_max));
  return check_range("delay", message.delay_s.value_or(0), 0, 900);
}

}  // namespace

Status check_queue_name(std::string_view name) {
  const bool known = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_';
  });
  if (!known || name.empty() || name.size() > kNameBytesMax)
    return invalid(fmt::format("queue name '{}': 1 to 80 letters, digits, '-' and '_'", name));
  return Ok{};
}

Status check_attributes(const QueueAttributes& attributes) {
  YARD_TRY(check_range("visibility timeout", attributes.visibility_timeout_s, 0, 43'200));
  YARD_TRY(check_range("delay", attributes.delay_s, 0, 900));
  YARD_TRY(check_range("retention", attributes.retention_s, 60, 1'209'600));
  YARD_TRY(check_range("largest message", attributes.message_bytes_max, 1024, 1'048'576));
  YARD_TRY(check_range("receive wait", attributes.receive_wait_s, 0, 20));
  if (attributes.dead_letter_queue.empty()) return Ok{};
  return check_range("receive count", attributes.receive_count_max, 1, kReceiveCountMax);
}

struct MessageQueues::Impl {
  struct Queue {
    int64_t id = 0;
    QueueAttributes attributes;
  };

  Impl(Connection connection, Clock& used) : db(std::move(connection)), clock(used) {}

  int64_t now_ms() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               clock.wall_now().time_since_epoch())
        .count();
  }

  Result<std::optional<Queue>> look_up(std::string_view name) {
    YARD_ASSIGN(const auto row, db.cached(fmt::format("SELECT id, {} FROM queues WHERE name = ?",
                                                      kAttributeColumns)));
    row->bind(name);
    YARD_ASSIGN(const bool found, row->step());
    if (!found) return std::optional<Queue>();
    Queue queue;
    queue.id = row->integer();
    queue.attributes = read_attributes(*row);
    return std::optional(std::move(queue));
  }

  Result<Queue> find(const std::string& name) {
    YARD_ASSIGN(auto queue, look_up(name));
    if (queue) return *std::move(queue);
    return Error{Code::kNotFound, fmt::format("no queue '{}'", name)};
  }

  Status check_dead_letter_queue(const std::string& name, const QueueAttributes& attributes) {
    YARD_TRY(check_attributes(attributes));
    if (attributes.dead_letter_queue.empty()) return Ok{};
    if (attributes.dead_letter_queue == name)
      return invalid(fmt::format("queue '{}' cannot hold its own dead letters", name));
    YARD_ASSIGN(const auto target, look_up(attributes.dead_letter_queue));
    if (target) return Ok{};
    return invalid(
        fmt::format("dead letter queue '{}' does not exist", attributes.dead_letter_queue));
  }

  Result<SentMessage> send_one(const Queue& queue, const NewMessage& message) {
    YARD_TRY(check_message(message, queue.attributes));
    SentMessage sent{.id = random_uuid(), .is_new = true};
    if (!message.dedupe_key.empty()) {
      YARD_ASSIGN(const auto accept, db.cached("INSERT OR IGNORE INTO accepted VALUES (?, ?, ?)"));
      YARD_TRY(accept->bind(queue.id).bind(message.dedupe_key).bind(sent.id).run());
      if (db.changes() == 0) return known(queue, message.dedupe_key);
    }
    const int64_t now = now_ms();
    const int64_t delay_s = message.delay_s.value_or(queue.attributes.delay_s);
    YARD_ASSIGN(const auto insert,
                db.cached("INSERT INTO messages (queue_id, uuid, body, attributes, sent_ms, "
                          "visible_ms) VALUES (?, ?, ?, ?, ?, ?)"));
    insert->bind(queue.id).bind(sent.id).bind(message.body).bind(message.attributes);
    YARD_TRY(insert->bind(now).bind(now + 1000 * delay_s).run());
    return sent;
  }

  Result<SentMessage> known(const Queue& queue, const std::string& key) {
    YARD_ASSIGN(const auto row,
                db.cached("SELECT uuid FROM accepted WHERE queue_id = ? AND dedupe_key = ?"));
    row->bind(queue.id).bind(key);
    YARD_TRY(row->step());
    return SentMessage{.id = row->text(), .is_new = false};
  }

  // Messages that nobody took in the queue's time.
  Status drop_expired(const Queue& queue, int64_t now) {
    YARD_ASSIGN(const auto drop,
                db.cached("DELETE FROM messages WHERE id IN (SELECT id FROM messages WHERE "
                          "queue_id = ? AND sent_ms < ? LIMIT ?)"));
    return drop->bind(queue.id)
        .bind(now - 1000 * queue.attributes.retention_s)
        .bind(kExpiredPerReceiveMax)
        .run();
  }

  Result<std::vector<ReceivedMessage>> receive_now(const std::string& name,
                                                   const ReceiveOptions& options) {
    YARD_ASSIGN(Transaction transaction, Transaction::begin(db));
    YARD_ASSIGN(const Queue queue, find(name));
    YARD_ASSIGN(const auto grave, look_up(queue.attributes.dead_letter_queue));
    const int64_t now = now_ms();
    YARD_TRY(drop_expired(queue, now));
    const int64_t hidden_s =
        options.visibility_timeout_s.value_or(queue.attributes.visibility_timeout_s);
    std::vector<ReceivedMessage> received;
    bool buried = true;
    while (buried && std::ssize(received) < options.count_max) {
      buried = false;
      YARD_ASSIGN(auto rows, next_messages(queue, options.count_max, now));
      for (auto& [row_id, message] : rows) {
        if (grave && message.receive_count >= queue.attributes.receive_count_max) {
          // Its deliveries are used up. Others may stand behind it.
          const std::string reason = fmt::format("received {} times", message.receive_count);
          YARD_TRY(bury(row_id, name, grave->id, reason, now));
          buried = true;
        } else if (std::ssize(received) < options.count_max && !contains(received, message.id)) {
          YARD_TRY(take(row_id, message, now, hidden_s));
          received.push_back(std::move(message));
        }
      }
    }
    YARD_TRY(transaction.commit());
    return received;
  }

  static bool contains(const std::vector<ReceivedMessage>& messages, const std::string& id) {
    return std::any_of(messages.begin(), messages.end(),
                       [&](const ReceivedMessage& each) { return each.id == id; });
  }

  Status bury(int64_t row_id, const std::string& source, int64_t grave_id,
              const std::string& reason, int64_t now) {
    YARD_ASSIGN(const auto move,
                db.cached("UPDATE messages SET queue_id = ?, source = ?, reason = ?, receipt = '', "
                          "receive_count = 0, first_received_ms = 0, visible_ms = ? WHERE id = ?"));
    return move->bind(grave_id).bind(source).bind(reason).bind(now).bind(row_id).run();
  }

  Result<std::vector<std::pair<int64_t, ReceivedMessage>>> next_messages(const Queue& queue,
                                                                         int64_t count,
                                                                         int64_t now) {
    YARD_ASSIGN(const auto rows,
                db.cached("SELECT id, uuid, body, attributes, receive_count, sent_ms, "
                          "first_received_ms, source, reason FROM messages WHERE queue_id = ? AND "
                          "visible_ms <= ? ORDER BY visible_ms, id LIMIT ?"));
    rows->bind(queue.id).bind(now).bind(count);
    std::vector<std::pair<int64_t, ReceivedMessage>> messages;
    while (true) {
      YARD_ASSIGN(const bool there, rows->step());
      if (!there) return messages;
      const int64_t row_id = rows->integer();
      ReceivedMessage message;
      message.id = rows->text();
      message.body = rows->text();
      message.attributes = rows->text();
      message.receive_count = rows->integer();
      message.sent_ms = rows->integer();
      message.first_received_ms = rows->integer();
      message.dead_letter_source = rows->text();
      message.dead_letter_reason = rows->text();
      messages.emplace_back(row_id, std::move(message));
    }
  }

  Status take(int64_t row_id, ReceivedMessage& message, int64_t now, int64_t hidden_s) {
    ++message.receive_count;
    if (message.first_received_ms == 0) message.first_received_ms = now;
    message.receipt = fmt::format("{}-{}", row_id, random_name(kReceiptCharacters));
    YARD_ASSIGN(const auto update,
                db.cached("UPDATE messages SET receipt = ?, visible_ms = ?, receive_count = ?, "
                          "first_received_ms = ? WHERE id = ?"));
    return update->bind(message.receipt)
        .bind(now + 1000 * hidden_s)
        .bind(message.receive_count)
        .bind(message.first_received_ms)
        .bind(row_id)
        .run();
  }

  // The message's row, if the receipt is of its last delivery.
  Result<std::optional<int64_t>> row_of(const Queue& queue, const std::string& receipt) {
    if (receipt.empty()) return std::optional<int64_t>();
    YARD_ASSIGN(const auto row,
                db.cached("SELECT id FROM messages WHERE id = CAST(? AS INTEGER) AND queue_id = ? "
                          "AND receipt = ?"));
    row->bind(receipt.substr(0, receipt.find('-'))).bind(queue.id).bind(receipt);
    YARD_ASSIGN(const bool found, row->step());
    return found ? std::optional(row->integer()) : std::nullopt;
  }

  // Of a message that is in flight by this receipt. False: it is not.
  Result<bool> hide(const Queue& queue, const std::string& receipt, int64_t seconds) {
    YARD_ASSIGN(const auto row, row_of(queue, receipt));
    if (!row) return false;
    const int64_t now = now_ms();
    YARD_ASSIGN(const auto update, db.cached("UPDATE messages SET visible_ms = ? WHERE id = ? AND "
                                             "visible_ms > ?"));
    YARD_TRY(update->bind(now + 1000 * seconds).bind(*row).bind(now).run());
    return db.changes() > 0;
  }

  std::mutex mutex;
  std::condition_variable sent;
  Connection db;
  Clock& clock;
};

MessageQueues::MessageQueues(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MessageQueues::MessageQueues(MessageQueues&&) noexcept = default;
MessageQueues& MessageQueues::operator=(MessageQueues&&) noexcept = default;
MessageQueues::~MessageQueues() = default;

Result<MessageQueues> MessageQueues::open(const MessageQueuesOptions& options) {
  YARD_ASSIGN(Connection db, sqlite::open_database(options.path,
                                                   {.steps = internal::kSteps,
                                                    .application_id = internal::kApplicationId},
                                                   {.power_safe = options.power_safe}));
  return MessageQueues(std::make_unique<Impl>(std::move(db), *options.clock));
}

Result<bool> MessageQueues::create(const std::string& name, const QueueAttributes& attributes) {
  std::lock_guard lock(impl_->mutex);
  YARD_TRY(check_queue_name(name));
  YARD_ASSIGN(Transaction transaction, Transaction::begin(impl_->db));
  YARD_ASSIGN(const auto known, impl_->look_up(name));
  if (known && known->attributes == attributes) return false;
  if (known) return invalid(fmt::format("queue '{}' exists with other attributes", name));
  YARD_TRY(impl_->check_dead_letter_queue(name, attributes));
  YARD_ASSIGN(const auto insert,
              impl_->db.cached(fmt::format("INSERT INTO queues (name, {}, created_ms, modified_ms) "
                                           "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                                           kAttributeColumns)));
  const int64_t now = impl_->now_ms();
  YARD_TRY(bind_attributes(insert->bind(name), attributes).bind(now).bind(now).run());
  YARD_TRY(transaction.commit());
  return true;
}

Status MessageQueues::set_attributes(const std::string& name, const QueueAttributes& attributes) {
  std::lock_guard lock(impl_->mutex);
  YARD_ASSIGN(Transaction transaction, Transaction::begin(impl_->db));
  YARD_ASSIGN(const auto queue, impl_->find(name));
  YARD_TRY(impl_->check_dead_letter_queue(name, attributes));
  YARD_ASSIGN(const auto update,
              impl_->db.cached(fmt::format("UPDATE queues SET ({}, modified_ms) = "
                                           "(?, ?, ?, ?, ?, ?, ?, ?) WHERE id = ?",
                                           kAttributeColumns)));
  YARD_TRY(bind_attributes(*update, attributes).bind(impl_->now_ms()).bind(queue.id).run());
  return transaction.commit();
}

Result<QueueInfo> MessageQueues::info(const std::string& name) {
  std::lock_guard lock(impl_->mutex);
  YARD_ASSIGN(const auto queue, impl_->find(name));
  QueueInfo info{.name = name, .attributes = queue.attributes, .counts = {}};
  YARD_ASSIGN(const auto times,
              impl_->db.cached("SELECT created_ms, modified_ms FROM queues WHERE id = ?"));
  YARD_TRY(times->bind(queue.id).step());
  info.created_ms = times->integer();
  info.modified_ms = times->integer();
  YARD_ASSIGN(const auto counts,
              impl_->db.cached("SELECT count(*) FILTER (WHERE visible_ms <= ?2), "
                               "count(*) FILTER (WHERE visible_ms > ?2 AND receive_count > 0), "
                               "count(*) FILTER (WHERE visible_ms > ?2 AND receive_count = 0) "
                               "FROM messages WHERE queue_id = ?1"));
  YARD_TRY(counts->bind(queue.id).bind(impl_->now_ms()).step());
  info.counts.visible = counts->integer();
  info.counts.in_flight = counts->integer();
  info.counts.delayed = counts->integer();
  return info;
}

Result<std::vector<std::string>> MessageQueues::names(std::string_view prefix) {
  std::lock_guard lock(impl_->mutex);
  YARD_ASSIGN(const auto rows, impl_->db.cached("SELECT name FROM queues ORDER BY name"));
  std::vector<std::string> names;
  while (true) {
    YARD_ASSIGN(const bool there, rows->step());
    if (!there) return names;
    std::string name = rows->text();
    if (name.starts_with(prefix)) names.push_back(std::move(name));
  }
}

Status MessageQueues::remove_queue(const std::string& name) {
  std::lock_guard lock(impl_->mutex);
  YARD_ASSIGN(const auto queue, impl_->find(name));
  YARD_ASSIGN(const auto remove, impl_->db.cached("DELETE FROM queues WHERE id = ?"));
  return remove->bind(queue.id).run();
}

Status MessageQueues::purge(const std::string& name) {
  std::lock_guard lock(impl_->mutex);
  YARD_ASSIGN(Transaction transaction, Transaction::begin(impl_->db));
  YARD_ASSIGN(const auto queue, impl_->find(name));
  for (const char* sql :
       {"DELETE FROM messages WHERE queue_id = ?", "DELETE FROM accepted WHERE queue_id = ?"}) {
    YARD_ASSIGN(const auto remove, impl_->db.cached(sql));
    YARD_TRY(remove->bind(queue.id).run());
  }
  return transaction.commit();
}

Result<std::vector<SentMessage>> MessageQueues::send(const std::string& name,
                                                     const std::vector<NewMessage>& messages) {
  std::lock_guard lock(impl_->mutex);
  YARD_ASSIGN(Transaction transaction, Transaction::begin(impl_->db));
  YARD_ASSIGN(const auto queue, impl_->find(name));
  std::vector<SentMessage> sent;
  for (const NewMessage& message : messages) {
    YARD_ASSIGN(SentMessage each, impl_->send_one(queue, message));
    sent.push_back(std::move(each));
  }
  YARD_TRY(transaction.commit());
  impl_->sent.notify_all();
  return sent;
}

Result<std::vector<ReceivedMessage>> MessageQueues::receive(const std::string& name,
                                                            const ReceiveOptions& options,
                                                            const StopToken& stop) {
  YARD_TRY(check_range("count", options.count_max, 1, 1000));
  YARD_TRY(check_range("visibility timeout", options.visibility_timeout_s.value_or(0), 0, 43'200));
  const auto deadline = impl_->clock.now() + options.wait;
  std::unique_lock lock(impl_->mutex);
  while (true) {
    YARD_ASSIGN(auto messages, impl_->receive_now(name, options));
    if (!messages.empty() || stop.stopped() || impl_->clock.now() >= deadline) return messages;
    impl_->sent.wait_for(lock, kLookInterval);
  }
}

Result<std::vector<bool>> MessageQueues::remove(const std::string& name,
                                                const std::vector<std::string>& receipts) {
  std::lock_guard lock(impl_->mutex);
  YARD_ASSIGN(Transaction transaction, Transaction::begin(impl_->db));
  YARD_ASSIGN(const auto queue, impl_->find(name));
  std::vector<bool> removed;
  for (const std::string& receipt : receipts) {
    YARD_ASSIGN(const auto row, impl_->row_of(queue, receipt));
    removed.push_back(row.has_value());
    if (!row) continue;
    YARD_ASSIGN(const auto remove, impl_->db.cached("DELETE FROM messages WHERE id = ?"));
    YARD_TRY(remove->bind(*row).run());
  }
  YARD_TRY(transaction.commit());
  return removed;
}

Result<bool> MessageQueues::change_visibility(const std::string& name, const std::string& receipt,
                                              int64_t visibility_timeout_s) {
  YARD_TRY(check_range("visibility timeout", visibility_timeout_s, 0, 43'200));
  std::lock_guard lock(impl_->mutex);
  YARD_ASSIGN(Transaction transaction, Transaction::begin(impl_->db));
  YARD_ASSIGN(const auto queue, impl_->find(name));
  YARD_ASSIGN(const bool changed, impl_->hide(queue, receipt, visibility_timeout_s));
  YARD_TRY(transaction.commit());
  impl_->sent.notify_all();
  return changed;
}

Status MessageQueues::hide_all(const std::string& name, const std::vector<std::string>& receipts,
                               int64_t visibility_timeout_s) {
  YARD_TRY(check_range("visibility timeout", visibility_timeout_s, 0, 43'200));
  std::lock_guard lock(impl_->mutex);
  YARD_ASSIGN(Transaction transaction, Transaction::begin(impl_->db));
  YARD_ASSIGN(const auto queue, impl_->find(name));
  for (const std::string& receipt : receipts)
    YARD_TRY(impl_->hide(queue, receipt, visibility_timeout_s));
  YARD_TRY(transaction.commit());
  impl_->sent.notify_all();
  return Ok{};
}

Result<bool> MessageQueues::reject(const std::string& name, const std::string& receipt,
                                   const std::string& reason) {
  std::lock_guard lock(impl_->mutex);
  YARD_ASSIGN(Transaction transaction, Transaction::begin(impl_->db));
  YARD_ASSIGN(const auto queue, impl_->find(name));
  if (queue.attributes.dead_letter_queue.empty())
    return invalid(fmt::format("queue '{}' has no dead letter queue", name));
  YARD_ASSIGN(const auto grave, impl_->find(queue.attributes.dead_letter_queue));
  YARD_ASSIGN(const auto row, impl_->row_of(queue, receipt));
  if (!row) return false;
  YARD_TRY(impl_->bury(*row, name, grave.id, reason, impl_->now_ms()));
  YARD_TRY(transaction.commit());
  return true;
}

Result<int64_t> MessageQueues::redrive(const std::string& dead_letter_queue) {
  std::lock_guard lock(impl_->mutex);
  YARD_ASSIGN(Transaction transaction, Transaction::begin(impl_->db));
  YARD_ASSIGN(const auto queue, impl_->find(dead_letter_queue));
  const int64_t now = impl_->now_ms();
  YARD_ASSIGN(const auto move,
              impl_->db.cached("UPDATE messages SET queue_id = (SELECT id FROM queues WHERE "
                               "name = source), source = '', reason = '', receipt = '', "
                               "receive_count = 0, first_received_ms = 0, sent_ms = ?, "
                               "visible_ms = ? WHERE queue_id = ? AND visible_ms <= ? AND "
                               "source IN (SELECT name FROM queues)"));
  YARD_TRY(move->bind(now).bind(now).bind(queue.id).bind(now).run());
  const int64_t count = impl_->db.changes();
  YARD_TRY(transaction.commit());
  impl_->sent.notify_all();
  return count;
}

}  // namespace yard::queue
