#include <fmt/format.h>

#include "checkpoint/agreement_internal.h"

namespace yard::checkpoint {
namespace {

Json to_json(const Error& error) {
  return {{"code", static_cast<int>(error.code)}, {"message", error.message}};
}

// What a peer says went wrong.
Error error_from_json(const Json& json, std::string_view what) {
  const auto code = json_field<int>(json, "code", what);
  const auto message = json_field<std::string>(json, "message", what);
  const bool is_known = code && *code >= 0 && *code <= static_cast<int>(Code::kInternal);
  return {is_known ? static_cast<Code>(*code) : Code::kInternal,
          message ? *message : std::string("failed")};
}

}  // namespace

Result<std::vector<Json>> tell_all(Exchange& exchange, const Status& own, Json message) {
  if (!own) message["error"] = to_json(own.error());
  // Messages of errors name what was given, which need not be UTF-8.
  const std::string text = message.dump(-1, ' ', false, Json::error_handler_t::replace);
  YARD_ASSIGN(const auto texts, exchange.all_gather(text));
  std::vector<Json> messages;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const std::string what = fmt::format("message of rank {}", rank);
    YARD_ASSIGN(messages.emplace_back(), parse_json(texts[rank], what));
    if (!messages.back().contains("error")) continue;
    Error error = error_from_json(messages.back()["error"], what);
    if (texts.size() == 1) return error;
    return std::move(error).while_(fmt::format("rank {}", rank));
  }
  return messages;
}

}  // namespace yard::checkpoint
