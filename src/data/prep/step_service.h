// StepService: a step that is a service of the user's, asked by HTTP; docs/prep.md has the form.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "net/http_client.h"
#include "prep/step_process.h"

namespace yard::prep {

// For one thread.
class StepService final : public StepAsker {
 public:
  static constexpr int kTriesMax = 4;      // of one request, while trying again may help
  static constexpr int kFailuresMax = 10;  // requests in a row without any answer
  static constexpr size_t kAnswerBytesMax = size_t{16} << 20;

  // `clock` outlives it. Nothing is connected to.
  explicit StepService(StepSpec spec, Clock& clock = Clock::real());

  // A batch goes in one request. What it left unanswered (nobody there, another status than 2xx, no
  // JSON, too slow) is asked again one by one; a picture that fails alone has an answer that says
  // why. kUnavailable: kFailuresMax; kCancelled.
  Result<std::vector<StepAnswer>> ask(const std::vector<StepRequest>& requests,
                                      const StopToken& stop) override;

 private:
  using Answers = std::vector<std::optional<StepAnswer>>;
  // Fills the answers of `asked` (positions in `requests`); the error says why not all are there.
  Status ask_once(const std::vector<StepRequest>& requests, const std::vector<size_t>& asked,
                  const StopToken& stop, Answers& answers);
  Result<std::string> post(const std::string& body, const StopToken& stop);
  Result<std::string> post_once(const std::string& body, const StopToken& stop);

  const StepSpec spec_;
  Clock& clock_;
  const std::unique_ptr<HttpClient> http_;
  int failures_in_a_row_ = 0;
};

}  // namespace yard::prep
