#include "api/sagemaker_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <mutex>

#include "api/job_document.h"
#include "api/job_request.h"
#include "api/job_search.h"
#include "api/job_update.h"

namespace yard::api {
namespace {

using engine::JobFilter;
using engine::JobKind;
using engine::JobPage;
using engine::JobView;

constexpr int kPageSize = 10;  // where MaxResults does not say
constexpr int kSearchPageSize = 1000;

std::string text(const Json& object, const char* name) {
  return object.value(name, std::string());
}

const char* name_field(JobKind kind) {
  return kind == JobKind::kTraining ? "TrainingJobName" : "ProcessingJobName";
}

std::string_view kind_text(JobKind kind) {
  return kind == JobKind::kTraining ? "training" : "processing";
}

// boto's waiters and the SDKs look for this code and these words.
AwsError not_found(JobKind kind, const std::string& arn) {
  return validation_error(fmt::format("Could not find {} job \"{}\". Requested resource not found.",
                                      kind_text(kind), arn));
}

std::optional<double> time_in(const Json& input, const char* name) {
  const auto found = input.find(name);
  if (found == input.end()) return std::nullopt;
  return found->get<double>();
}

JobFilter filter_of(JobKind kind, const Json& input) {
  const std::string sort = text(input, "SortBy");
  return {.kind = kind,
          .name_contains = text(input, "NameContains"),
          .status = text(input, "StatusEquals"),
          .warm_pool_status = text(input, "WarmPoolStatusEquals"),
          .created_after_t = time_in(input, "CreationTimeAfter"),
          .created_before_t = time_in(input, "CreationTimeBefore"),
          .modified_after_t = time_in(input, "LastModifiedTimeAfter"),
          .modified_before_t = time_in(input, "LastModifiedTimeBefore"),
          .sort = sort == "Name"     ? engine::JobSort::kName
                  : sort == "Status" ? engine::JobSort::kStatus
                                     : engine::JobSort::kCreated,
          .ascending = text(input, "SortOrder") == "Ascending",
          .page_token = text(input, "NextToken"),
          .limit = input.value("MaxResults", kPageSize)};
}

class SagemakerService final : public Service {
 public:
  SagemakerService(JobDesk& desk, Arns arns, FinalMetrics final_metrics)
      : desk_(desk), arns_(std::move(arns)), final_metrics_(std::move(final_metrics)) {}

  const Model& model() const override { return model_; }
  Role needed_role(std::string_view operation) const override {
    const bool forgets = operation == "DeleteTrainingJob" || operation == "DeleteProcessingJob";
    return forgets ? Role::kAdmin : role_by_name(operation);
  }

  AwsResult<Json> call(const Call& call) override {
    const auto found = kHandlers.find(call.operation);
    YARD_CHECK(found != kHandlers.end());
    return found->second(*this, call);
  }

  std::string resource_of(const Call& call) const override {
    for (const char* name : {"TrainingJobName", "ProcessingJobName", "ResourceArn"})
      if (call.input.contains(name)) return text(call.input, name);
    return "";
  }

 private:
  using Handler = std::function<AwsResult<Json>(SagemakerService&, const Call&)>;

  AwsResult<Json> create(JobKind kind, const Call& call) {
    const bool is_training = kind == JobKind::kTraining;
    YARD_ASSIGN(const jobs::JobRequest request,
                is_training ? training_request(call.input, call.caller, arns_)
                            : processing_request(call.input, call.caller, arns_));
    auto created = desk_.create(request);
    if (created) return Json{{is_training ? "TrainingJobArn" : "ProcessingJobArn", request.arn}};
    if (created.error().code == Code::kExhausted)
      return AwsError(
          "ResourceInUse",
          fmt::format("{} job names must be unique within an AWS account and region, "
                      "and a {} job with this name already exists ({})",
                      is_training ? "Training" : "Processing", kind_text(kind), request.arn));
    if (created.error().code == Code::kUnavailable)
      return AwsError("ResourceLimitExceeded", std::move(created).error().message);
    return std::move(created).error();
  }

  AwsResult<JobView> find(JobKind kind, const Json& input) {
    const std::string name = text(input, name_field(kind));
    auto view = desk_.find(kind, name);
    if (view) return *std::move(view);
    if (view.error().code == Code::kNotFound) return not_found(kind, arns_.of_job(kind, name));
    return std::move(view).error();
  }

  AwsResult<Json> describe(JobKind kind, const Call& call) {
    YARD_ASSIGN(const JobView view, find(kind, call.input));
    if (kind == JobKind::kProcessing) return processing_document(view);
    return training_document(view, final_metrics(view, is_over(view)));
  }

  static bool is_over(const JobView& view) {
    return view.status != "InProgress" && view.status != "Stopping";
  }

  // Nothing where no metrics are kept, or none are asked for.
  std::vector<FinalMetric> final_metrics(const JobView& view, bool to_the_end) const {
    const auto algorithm = view.job.request.find("AlgorithmSpecification");
    if (!final_metrics_ || algorithm == view.job.request.end()) return {};
    if (!algorithm->contains("MetricDefinitions")) return {};
    return final_metrics_(view, to_the_end);
  }

  AwsResult<Json> list(JobKind kind, const Call& call) {
    const bool is_training = kind == JobKind::kTraining;
    Json summaries = Json::array();
    const char* field = is_training ? "TrainingJobSummaries" : "ProcessingJobSummaries";
    // Of a training plan there is none here.
    if (call.input.contains("TrainingPlanArnEquals")) return Json{{field, summaries}};
    YARD_ASSIGN(const JobPage page, desk_.list(filter_of(kind, call.input)));
    for (const JobView& view : page.jobs)
      summaries.push_back(is_training ? training_summary(view) : processing_summary(view));
    Json answer = {{field, std::move(summaries)}};
    if (!page.next_token.empty()) answer["NextToken"] = page.next_token;
    return answer;
  }

  AwsResult<Json> stop(JobKind kind, const Call& call) {
    const std::string name = text(call.input, name_field(kind));
    auto stopped = desk_.stop(kind, name);
    if (stopped) return Json(nullptr);
    if (stopped.error().code == Code::kNotFound) return not_found(kind, arns_.of_job(kind, name));
    return std::move(stopped).error();
  }

  AwsResult<Json> remove(JobKind kind, const Call& call) {
    const std::string name = text(call.input, name_field(kind));
    auto removed = desk_.remove(kind, name);
    if (removed) return Json(nullptr);
    if (removed.error().code == Code::kNotFound) return not_found(kind, arns_.of_job(kind, name));
    if (removed.error().code == Code::kInvalidArgument)
      return AwsError("ResourceInUse", std::move(removed).error().message);
    return std::move(removed).error();
  }

  AwsResult<Json> update(const Call& call) {
    const std::lock_guard lock(update_mutex_);
    YARD_ASSIGN(const JobView view, find(JobKind::kTraining, call.input));
    YARD_ASSIGN(const Json changed, updated_members(view, call.input));
    // The one that the engine may refuse goes first.
    if (const auto given = call.input.find("ResourceConfig"); given != call.input.end()) {
      const auto seconds = (*given)["KeepAlivePeriodInSeconds"].get<int64_t>();
      YARD_TRY(desk_.update_keep_alive(view.job.name, seconds));
    }
    if (!changed.empty()) YARD_TRY(desk_.update_request(view.job.name, changed));
    return Json{{"TrainingJobArn", view.job.arn}};
  }

  AwsResult<std::map<std::string, std::string>> tags_at(const std::string& arn) {
    auto tags = desk_.tags(arn);
    if (tags) return *std::move(tags);
    if (tags.error().code == Code::kNotFound) return no_such_arn(arn);
    return std::move(tags).error();
  }

  static AwsError no_such_arn(const std::string& arn) {
    return validation_error(
        fmt::format("Could not find resource \"{}\". Requested resource not found.", arn));
  }

  AwsResult<Json> add_tags(const Call& call) {
    const std::string arn = text(call.input, "ResourceArn");
    YARD_ASSIGN(const auto added, tags_of(call.input["Tags"]));
    auto done = desk_.add_tags(arn, added);
    if (!done && done.error().code == Code::kNotFound) return no_such_arn(arn);
    if (!done) return std::move(done).error();
    YARD_ASSIGN(const auto tags, tags_at(arn));
    return Json{{"Tags", json_of_tags(tags)}};
  }

  AwsResult<Json> list_tags(const Call& call) {
    YARD_ASSIGN(const auto tags, tags_at(text(call.input, "ResourceArn")));
    return Json{{"Tags", json_of_tags(tags)}};
  }

  AwsResult<Json> delete_tags(const Call& call) {
    const std::string arn = text(call.input, "ResourceArn");
    auto done = desk_.remove_tags(arn, call.input["TagKeys"].get<std::vector<std::string>>());
    if (!done && done.error().code == Code::kNotFound) return no_such_arn(arn);
    if (!done) return std::move(done).error();
    return Json(Json::object());
  }

  // As Search shows it: what Describe says, and the tags.
  AwsResult<Json> search_record(const JobView& view) {
    Json document = training_document(view, final_metrics(view, false));
    YARD_ASSIGN(const auto tags, tags_at(view.job.arn));
    document["Tags"] = json_of_tags(tags);
    return document;
  }

  AwsResult<std::vector<Json>> found_jobs(const Json& expression) {
    std::vector<Json> found;
    JobFilter filter;
    filter.limit = kSearchPageSize;
    do {
      YARD_ASSIGN(const JobPage page, desk_.list(filter));
      for (const JobView& view : page.jobs) {
        auto record = search_record(view);
        // One that was removed since the page was read.
        if (!record && record.error().code == "ValidationException") continue;
        if (!record) return std::move(record).error();
        YARD_ASSIGN(const bool is_meant, matches(expression, *record));
        if (is_meant) found.push_back(*std::move(record));
      }
      filter.page_token = page.next_token;
    } while (!filter.page_token.empty());
    return found;
  }

  AwsResult<Json> search(const Call& call) {
    const std::string resource = text(call.input, "Resource");
    if (resource != "TrainingJob")
      return validation_error("Search: only training jobs can be searched for, not '" + resource +
                              "'");
    size_t begin = 0;
    const std::string token = text(call.input, "NextToken");
    const auto [end, failed] = std::from_chars(token.data(), token.data() + token.size(), begin);
    if (!token.empty() && (failed != std::errc{} || end != token.data() + token.size()))
      return validation_error("Invalid pagination token");
    YARD_ASSIGN(std::vector<Json> found,
                found_jobs(call.input.value("SearchExpression", Json::object())));
    sort(found, call.input);
    return search_page(found, std::min(begin, found.size()),
                       size_t(call.input.value("MaxResults", kPageSize)));
  }

  static void sort(std::vector<Json>& found, const Json& input) {
    const std::string key = input.value("SortBy", std::string("LastModifiedTime"));
    const bool is_ascending = text(input, "SortOrder") == "Ascending";
    std::ranges::stable_sort(found, [&](const Json& a, const Json& b) {
      const Json left = value_at(a, key);
      const Json right = value_at(b, key);
      return is_ascending ? sorts_before(left, right) : sorts_before(right, left);
    });
  }

  static Json search_page(std::vector<Json>& found, size_t begin, size_t count) {
    const size_t end = std::min(found.size(), begin + count);
    Json results = Json::array();
    for (size_t i = begin; i < end; ++i) results.push_back({{"TrainingJob", std::move(found[i])}});
    Json answer = {{"Results", std::move(results)},
                   {"TotalHits", {{"Value", found.size()}, {"Relation", "EqualTo"}}}};
    if (end < found.size()) answer["NextToken"] = std::to_string(end);
    return answer;
  }

  static const std::map<std::string, Handler, std::less<>> kHandlers;

  JobDesk& desk_;
  const Arns arns_;
  const FinalMetrics final_metrics_;
  std::mutex update_mutex_;  // what is changed is read before
  const Model& model_ = Model::built_in("sagemaker");
};

const std::map<std::string, SagemakerService::Handler, std::less<>> SagemakerService::kHandlers = {
    {"CreateTrainingJob", [](auto& s, auto& c) { return s.create(JobKind::kTraining, c); }},
    {"DescribeTrainingJob", [](auto& s, auto& c) { return s.describe(JobKind::kTraining, c); }},
    {"ListTrainingJobs", [](auto& s, auto& c) { return s.list(JobKind::kTraining, c); }},
    {"StopTrainingJob", [](auto& s, auto& c) { return s.stop(JobKind::kTraining, c); }},
    {"UpdateTrainingJob", [](auto& s, auto& c) { return s.update(c); }},
    {"DeleteTrainingJob", [](auto& s, auto& c) { return s.remove(JobKind::kTraining, c); }},
    {"CreateProcessingJob", [](auto& s, auto& c) { return s.create(JobKind::kProcessing, c); }},
    {"DescribeProcessingJob", [](auto& s, auto& c) { return s.describe(JobKind::kProcessing, c); }},
    {"ListProcessingJobs", [](auto& s, auto& c) { return s.list(JobKind::kProcessing, c); }},
    {"StopProcessingJob", [](auto& s, auto& c) { return s.stop(JobKind::kProcessing, c); }},
    {"DeleteProcessingJob", [](auto& s, auto& c) { return s.remove(JobKind::kProcessing, c); }},
    {"AddTags", [](auto& s, auto& c) { return s.add_tags(c); }},
    {"ListTags", [](auto& s, auto& c) { return s.list_tags(c); }},
    {"DeleteTags", [](auto& s, auto& c) { return s.delete_tags(c); }},
    {"Search", [](auto& s, auto& c) { return s.search(c); }},
};

}  // namespace

std::unique_ptr<Service> make_sagemaker_service(JobDesk& desk, Arns arns,
                                                FinalMetrics final_metrics) {
  return std::make_unique<SagemakerService>(desk, std::move(arns), std::move(final_metrics));
}

}  // namespace yard::api
