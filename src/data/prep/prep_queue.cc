#include <algorithm>
#include <span>

#include "base/crc32c.h"
#include "images/picture_size.h"
#include "prep/kept_queue_internal.h"
#include "prep/object_events.h"
#include "prep/prep_run.h"

namespace yard::prep {
namespace {

constexpr size_t kSendCount = 500;

bool is_of_share(const PrepPlaces& places, const std::string& key) {
  const uint32_t hash = crc32c(std::as_bytes(std::span(key.data(), key.size())));
  return places.share_count <= 1 || int(hash % uint32_t(places.share_count)) == places.share_index;
}

}  // namespace

std::string ledger_path(const std::string& state_dir) {
  return state_dir + "/ledger.db";
}

Result<std::unique_ptr<PrepMessages>> open_messages(const PrepSpec& spec,
                                                    const PrepPlaces& places) {
  if (spec.queue_sqs.empty()) return open_file_messages(spec, places.state_dir);
  if (!places.sqs || !places.s3)
    return Error{Code::kInvalidArgument, "queue: sqs: there is no service to ask"};
  return open_sqs_messages(spec, {*places.sqs, *places.s3, places.bucket, places.source_prefix});
}

Result<Ledger> open_ledger(const PrepPlaces& places) {
  LedgerOptions options;
  options.path = ledger_path(places.state_dir);
  options.writer = places.journal ? std::max(places.writer, 0) : places.writer;
  options.journal = places.journal;
  options.journal_prefix = places.journal_prefix + "ledger/";
  return Ledger::open_as(options);
}

Result<ScanCounts> scan_source(const PrepPlaces& places, PrepMessages& messages,
                               const std::string& prefix, const StopToken& stop) {
  YARD_ASSIGN(const std::vector<storage::ObjectInfo> objects, places.source->list_all(prefix));
  auto ledger = Ledger::open_read_only(ledger_path(places.state_dir));
  if (!ledger && ledger.error().code != Code::kNotFound) return std::move(ledger).error();
  ScanCounts counts;
  std::vector<queue::NewMessage> batch;
  const auto send = [&]() -> Status {
    if (batch.empty()) return Ok{};
    YARD_ASSIGN(const uint64_t new_count, messages.send(batch));
    counts.accepted += new_count;
    batch.clear();
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
    if (!is_of_share(places, object.key)) continue;
    const ObjectEvent event{places.bucket, object.key, object.etag, object.size_bytes};
    if (ledger) {
      const ObjectVersion version = version_of(event);
      YARD_ASSIGN(const bool is_done, ledger->is_settled(version));
      YARD_ASSIGN(const bool is_rejected, ledger->is_rejected(version));
      if (is_done || is_rejected) continue;
    }
    batch.push_back({.body = write_object_event(event), .dedupe_key = dedupe_key(event)});
    if (batch.size() == kSendCount) YARD_TRY(send());
  }
  YARD_TRY(send());
  return counts;
}

Result<PrepStatus> prep_status(const PrepSpec& spec, const PrepPlaces& places) {
  PrepStatus status;
  // A journal's file is made of it first.
  if (places.journal) YARD_TRY(open_ledger(places));
  YARD_TRY(fetch_queue(spec, places));
  auto ledger = Ledger::open_read_only(ledger_path(places.state_dir));
  if (!ledger) return std::move(ledger).error().while_("nothing was prepared yet");
  YARD_ASSIGN(status.ledger, ledger->counts());
  YARD_ASSIGN(const auto messages, open_messages(spec, places));
  YARD_ASSIGN(status.queue, messages->counts());
  YARD_ASSIGN(status.dead, messages->dead_counts());
  return status;
}

Result<std::vector<DeadLetter>> dead_letters(const PrepSpec& spec, const PrepPlaces& places) {
  YARD_TRY(fetch_queue(spec, places));
  YARD_ASSIGN(const auto opened, open_messages(spec, places));
  YARD_ASSIGN(const auto messages, opened->dead_letters());
  std::vector<DeadLetter> letters;
  for (const queue::ReceivedMessage& message : messages) {
    const auto event = parse_object_event(message.body);
    const bool has_key = event && event->has_value();
    letters.push_back({has_key ? (*event)->key : message.body, message.dead_letter_reason});
  }
  return letters;
}

Result<int64_t> redrive(const PrepSpec& spec, const PrepPlaces& places) {
  YARD_TRY(fetch_queue(spec, places));
  YARD_ASSIGN(const auto messages, open_messages(spec, places));
  YARD_ASSIGN(const int64_t count, messages->redrive());
  YARD_TRY(keep_queue(spec, places));
  return count;
}

Result<ScanCounts> scan_into_queue(const PrepSpec& spec, const PrepPlaces& places,
                                   const std::string& prefix, const StopToken& stop) {
  if (places.journal) YARD_TRY(open_ledger(places));
  YARD_TRY(fetch_queue(spec, places));
  YARD_ASSIGN(const auto messages, open_messages(spec, places));
  YARD_ASSIGN(const ScanCounts counts, scan_source(places, *messages, prefix, stop));
  YARD_TRY(keep_queue(spec, places));
  return counts;
}

}  // namespace yard::prep
