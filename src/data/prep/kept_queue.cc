#include <fmt/format.h>

#include <filesystem>

#include "base/file.h"
#include "prep/kept_queue_internal.h"
#include "sqlite/sqlite.h"

namespace yard::prep {
namespace {

constexpr uint64_t kQueueBytesMax = uint64_t{1} << 32;

bool is_kept(const PrepSpec& spec, const PrepPlaces& places) {
  return places.journal != nullptr && spec.queue_sqs.empty() && spec.queue_path.empty();
}

std::string key_of(const PrepPlaces& places) {
  return fmt::format("{}queue-{}.db", places.journal_prefix, std::max(places.writer, 0));
}

}  // namespace

Status fetch_queue(const PrepSpec& spec, const PrepPlaces& places) {
  const std::string path = places.state_dir + "/queue.db";
  std::error_code error;
  if (!is_kept(spec, places) || std::filesystem::exists(path, error)) return Ok{};
  auto content = storage::get_all(*places.journal, key_of(places), kQueueBytesMax);
  if (!content && content.error().code == Code::kNotFound) return Ok{};
  if (!content) return std::move(content).error();
  return write_file_atomic(path, *content);
}

Status keep_queue(const PrepSpec& spec, const PrepPlaces& places) {
  if (!is_kept(spec, places)) return Ok{};
  const std::string copy = places.state_dir + "/queue.copy";
  std::error_code ignored;
  std::filesystem::remove(copy, ignored);
  {
    YARD_ASSIGN(auto connection, sqlite::Connection::open(places.state_dir + "/queue.db"));
    YARD_ASSIGN(auto statement, connection.prepare("VACUUM INTO ?"));
    YARD_TRY(statement.bind(std::string_view(copy)).run());
  }
  YARD_ASSIGN(const std::string content, read_file(copy, kQueueBytesMax));
  YARD_TRY(storage::put_text(*places.journal, key_of(places), content));
  std::filesystem::remove(copy, ignored);
  return Ok{};
}

}  // namespace yard::prep
