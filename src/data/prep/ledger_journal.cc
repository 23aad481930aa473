#include "prep/ledger_journal.h"

#include <fmt/format.h>

namespace yard::prep {

std::string LedgerJournal::key_of(int64_t number) const {
  return fmt::format("{}{:08}.json", prefix_, number);
}

Result<Json> LedgerJournal::read(int64_t number) const {
  const std::string key = key_of(number);
  YARD_ASSIGN(const std::string text, storage::get_all(*store_, key));
  auto entry = parse_json(text, key);
  if (!entry) return Error{Code::kCorrupt, entry.error().message};
  return entry;
}

Result<std::vector<Json>> LedgerJournal::read_after(int64_t position) const {
  int64_t listed = position;
  if (position == 0) {
    YARD_ASSIGN(const auto objects, storage::list_all(*store_, prefix_));
    for (const storage::ObjectInfo& object : objects)
      if (object.key == key_of(listed + 1)) ++listed;
  }
  std::vector<Json> entries;
  while (true) {
    auto entry = read(position + 1);
    const bool is_end = !entry && entry.error().code == Code::kNotFound;
    if (is_end && position < listed)
      return Error{Code::kCorrupt,
                   fmt::format("{}/{}: is gone", store_->url(), key_of(position + 1))};
    if (is_end) return entries;
    if (!entry) return std::move(entry).error();
    entries.push_back(*std::move(entry));
    ++position;
  }
}

Result<bool> LedgerJournal::append(int64_t position, const Json& entry) const {
  const std::string text = entry.dump(-1, ' ', false, Json::error_handler_t::replace);
  const auto put = storage::put_text(*store_, key_of(position + 1), text, {.if_absent = true});
  if (put) return true;
  if (put.error().code != Code::kInvalidArgument) return put.error();
  YARD_ASSIGN(const Json there, read(position + 1));
  return there.value("by", Json()) == entry.value("by", Json(1));
}

}  // namespace yard::prep
