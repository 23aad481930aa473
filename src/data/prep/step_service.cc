#include "prep/step_service.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "net/encoding.h"
#include "prep/text_fields.h"

namespace yard::prep {
namespace {

constexpr std::chrono::milliseconds kFirstPause{200};
constexpr size_t kShownBytesMax = 200;

bool may_help(const Error& error) {
  return error.code == Code::kUnavailable || error.code == Code::kDeadlineExceeded;
}

Result<std::string> body_of(const std::vector<StepRequest>& requests,
                            const std::vector<size_t>& asked) {
  Json list = Json::array();
  for (size_t i = 0; i < asked.size(); ++i) {
    const StepRequest& request = requests[asked[i]];
    YARD_ASSIGN(const std::string picture, read_file(request.path));
    list.push_back({{"id", i},
                    {"key", request.key},
                    {"metadata", request.metadata},
                    {"picture", base64_encode(bytes_of(picture))}});
  }
  return Json{{"requests", std::move(list)}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

StepService::StepService(StepSpec spec, Clock& clock)
    : spec_(std::move(spec)),
      clock_(clock),
      http_(std::make_unique<HttpClient>(HttpClientOptions{})) {}

Result<std::string> StepService::post_once(const std::string& body, const StopToken& stop) {
  HttpRequest request;
  request.method = "POST";
  request.url = spec_.url;
  request.headers.set("content-type", "application/json");
  request.body = bytes_of(body);
  request.body_bytes_max = kAnswerBytesMax;
  request.total_timeout = spec_.timeout;
  request.stop = stop;
  YARD_ASSIGN(HttpResponse response, http_->send(std::move(request)));
  if (response.status / 100 == 2) return std::move(response.body);
  const bool is_passing = response.status >= 500 || response.status == 429;
  return Error{is_passing ? Code::kUnavailable : Code::kInvalidArgument,
               fmt::format("status {}: {}", response.status,
                           clean_text(response.body, kShownBytesMax).text)};
}

Result<std::string> StepService::post(const std::string& body, const StopToken& stop) {
  std::chrono::milliseconds pause = kFirstPause;
  for (int tries = 1;; ++tries) {
    auto answer = post_once(body, stop);
    if (answer || !may_help(answer.error()) || tries == kTriesMax) return answer;
    if (!clock_.sleep_for(pause, stop)) return Error{Code::kCancelled, "stopped"};
    pause *= 2;
  }
}

Status StepService::ask_once(const std::vector<StepRequest>& requests,
                             const std::vector<size_t>& asked, const StopToken& stop,
                             Answers& answers) {
  YARD_ASSIGN(const std::string body, body_of(requests, asked));
  YARD_ASSIGN(const std::string text, post(body, stop));
  YARD_ASSIGN(const Json json, parse_json(text, "answer"));
  YARD_ASSIGN(const Json list, json_field<Json>(json, "answers", "answer"));
  for (const Json& item : list) {
    const auto id = json_field<uint64_t>(item, "id", "answer");
    auto answer = step_answer_from(item);
    if (id && answer && *id < asked.size() && !answers[asked[*id]])
      answers[asked[*id]] = *std::move(answer);
  }
  return Ok{};
}

Result<std::vector<StepAnswer>> StepService::ask(const std::vector<StepRequest>& requests,
                                                 const StopToken& stop) {
  Answers answers(requests.size());
  std::vector<std::vector<size_t>> rounds(1);
  for (size_t i = 0; i < requests.size(); ++i) rounds[0].push_back(i);
  for (size_t round = 0; round < rounds.size(); ++round) {
    const std::vector<size_t> asked = rounds[round];
    if (asked.empty()) continue;
    const Status done = ask_once(requests, asked, stop, answers);
    if (stop.stopped()) return Error{Code::kCancelled, "stopped"};
    const auto is_missing = [&](size_t i) { return !answers[i]; };
    const auto missing = std::ranges::count_if(asked, is_missing);
    const std::string why = done ? "there is no answer for it" : done.error().message;
    if (missing < std::ssize(asked)) failures_in_a_row_ = 0;
    if (missing > 0)
      log_warning("step {}: {} of {} unanswered: {}", spec_.name, missing, asked.size(), why);
    if (missing == std::ssize(asked) && ++failures_in_a_row_ >= kFailuresMax)
      return Error{Code::kUnavailable,
                   fmt::format("step {}: {} times in a row without an answer: {}", spec_.name,
                               kFailuresMax, why)};
    for (const size_t i : asked) {
      if (answers[i]) continue;
      if (asked.size() > 1)
        rounds.push_back({i});
      else
        answers[i] = StepAnswer{.error = why};
    }
  }
  std::vector<StepAnswer> all;
  for (auto& answer : answers) all.push_back(*std::move(answer));
  return all;
}

}  // namespace yard::prep
