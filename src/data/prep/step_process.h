// StepProcess: a program of the user's that looks at pictures and adds to what is known of them: a
// captioner, a safety model. It lives as long as the run and speaks JSON lines, docs/prep.md.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/stop_token.h"
#include "prep/spec.h"

namespace yard::prep {

struct StepRequest {
  std::string key;
  std::string path;  // of the picture, which stays until the answer
  Json metadata;
};

struct StepAnswer {
  Json fields = Json::object();
  std::string drop;   // not empty: the sample is to be left out, and why
  std::string error;  // not empty: there is no answer, and why
};

// "fields", "drop" and "error" of an answer, texts made clean. kInvalidArgument: one is of a wrong
// type. Pure.
Result<StepAnswer> step_answer_from(const Json& answer);

// Whoever answers for a step. For one thread.
class StepAsker {
 public:
  virtual ~StepAsker() = default;
  // One answer for each request, in their order.
  virtual Result<std::vector<StepAnswer>> ask(const std::vector<StepRequest>& requests,
                                              const StopToken& stop) = 0;
};

struct StepCounts {
  uint64_t answers = 0;
  uint64_t restarts = 0;
  uint64_t garbage_lines = 0;  // of its output that were no answer
};

// For one thread, which must outlive the process: it is killed with its thread.
class StepProcess final : public StepAsker {
 public:
  // Ten batches or single samples in a row without any answer are the program's fault.
  static constexpr int kFailuresMax = 10;
  static constexpr size_t kLineBytesMax = size_t{1} << 20;

  StepProcess(StepSpec spec, std::map<std::string, std::string> env);
  ~StepProcess() override;

  // One answer for each request, in their order. A program that ends, or that has not answered all
  // of a batch in time, is killed and started again, and those it left unanswered are asked again
  // one by one. kNotFound, kInvalidArgument: it cannot be started; kUnavailable: kFailuresMax;
  // kCancelled.
  Result<std::vector<StepAnswer>> ask(const std::vector<StepRequest>& requests,
                                      const StopToken& stop) override;
  const StepCounts& counts() const { return counts_; }

 private:
  struct Running;
  struct Batch;
  Status start();
  Status ask_once(Batch& batch, const StopToken& stop);
  void take_line(std::string_view line, Batch& batch);
  void take_output(Batch& batch);
  void fail(Batch& batch, std::string why);

  const StepSpec spec_;
  const std::map<std::string, std::string> env_;
  std::unique_ptr<Running> running_;
  uint64_t next_id_ = 1;
  int failures_in_a_row_ = 0;
  bool was_started_ = false;
  StepCounts counts_;
};

}  // namespace yard::prep
