// The tables of a queue file.
#pragma once

#include "sqlite/sqlite.h"

namespace yard::queue::internal {

// "yrdq" in ASCII.
inline constexpr int kApplicationId = 0x79726471;

inline constexpr const char* kSteps[] = {R"sql(
CREATE TABLE queues (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  visibility_timeout_s INTEGER NOT NULL,
  delay_s INTEGER NOT NULL,
  retention_s INTEGER NOT NULL,
  message_bytes_max INTEGER NOT NULL,
  receive_wait_s INTEGER NOT NULL,
  dead_letter_queue TEXT NOT NULL,
  receive_count_max INTEGER NOT NULL,
  created_ms INTEGER NOT NULL,
  modified_ms INTEGER NOT NULL
);
CREATE TABLE messages (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  queue_id INTEGER NOT NULL REFERENCES queues(id) ON DELETE CASCADE,
  uuid TEXT NOT NULL,
  body TEXT NOT NULL,
  attributes TEXT NOT NULL,
  sent_ms INTEGER NOT NULL,
  visible_ms INTEGER NOT NULL,
  receive_count INTEGER NOT NULL DEFAULT 0,
  first_received_ms INTEGER NOT NULL DEFAULT 0,
  receipt TEXT NOT NULL DEFAULT '',
  source TEXT NOT NULL DEFAULT '',
  reason TEXT NOT NULL DEFAULT ''
);
CREATE INDEX messages_in_turn ON messages (queue_id, visible_ms, id);
CREATE INDEX messages_by_age ON messages (queue_id, sent_ms);
CREATE TABLE accepted (
  queue_id INTEGER NOT NULL REFERENCES queues(id) ON DELETE CASCADE,
  dedupe_key TEXT NOT NULL,
  uuid TEXT NOT NULL,
  PRIMARY KEY (queue_id, dedupe_key)
) WITHOUT ROWID;
)sql"};

}  // namespace yard::queue::internal
