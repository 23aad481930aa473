#include "api/sagemaker_service.h"

#include <gtest/gtest.h>

#include "api/testing/memory_desk.h"
#include "api/validate.h"

namespace yard::api {
namespace {

constexpr const char* kArn = "arn:aws:sagemaker:us-east-1:123456789012:training-job/";

class SagemakerServiceTest : public testing::Test {
 protected:
  AwsResult<Json> call(const std::string& operation, const Json& input) {
    const auto checked = checked_input(*service_->model().find(operation)->input, input);
    if (!checked) return checked.error();
    Call call;
    call.operation = operation;
    call.input = *checked;
    call.caller = {"ana", "AK", Role::kSubmit};
    return service_->call(call);
  }
  AwsResult<Json> create(const Json& input) { return call("CreateTrainingJob", input); }
  void create_jobs(int count) {
    for (int i = 0; i < count; ++i) {
      Json input = smallest_training_input("job-" + std::to_string(i));
      input["HyperParameters"] = {{"lr", "0." + std::to_string(i)}, {"a.b", "dotted"}};
      input["Tags"] = {{{"Key", "team"}, {"Value", i % 2 == 0 ? "even" : "odd"}}};
      ASSERT_TRUE(create(input));
    }
  }
  std::vector<std::string> search(const Json& expression, Json input = Json::object()) {
    input["Resource"] = "TrainingJob";
    input["SearchExpression"] = expression;
    input["SortBy"] = "TrainingJobName";
    input["SortOrder"] = "Ascending";
    const auto found = call("Search", input);
    EXPECT_TRUE(found) << found.error().message;
    std::vector<std::string> names;
    for (const Json& each : (*found)["Results"])
      names.push_back(each["TrainingJob"]["TrainingJobName"]);
    return names;
  }
  Json described(const std::string& name) {
    const auto told = call("DescribeTrainingJob", {{"TrainingJobName", name}});
    EXPECT_TRUE(told) << told.error().message;
    return *told;
  }
  AwsResult<Json> update(Json changes) {
    changes["TrainingJobName"] = "job-0";
    return call("UpdateTrainingJob", changes);
  }
  void set_status(const std::string& status, const std::string& secondary) {
    ASSERT_TRUE(desk_.change(engine::JobKind::kTraining, "job-0", [&](engine::JobView& view) {
      view.status = status;
      view.secondary_status = secondary;
      return Status(Ok{});
    }));
  }
  static Json rule(const std::string& name) {
    return {{"RuleConfigurationName", name}, {"RuleEvaluatorImage", "rules:latest"}};
  }
  static Json filter(const char* name, const char* operation, const char* value) {
    return {{"Filters", {{{"Name", name}, {"Operator", operation}, {"Value", value}}}}};
  }

  MemoryDesk desk_;
  bool was_to_the_end_ = false;
  std::unique_ptr<Service> service_ =
      make_sagemaker_service(desk_, {}, [this](const engine::JobView& view, bool to_the_end) {
        was_to_the_end_ = to_the_end;
        const double lr = std::stod(view.job.request["HyperParameters"]["lr"].get<std::string>());
        return std::vector<FinalMetric>{{"train:loss", lr, 1005}};
      });
};

using Names = std::vector<std::string>;

TEST_F(SagemakerServiceTest, EveryOperationOfTheModelIsServed) {
  for (const auto operation : service_->model().operations()) {
    Call call;
    call.operation = operation;
    call.input = {{"Resource", "TrainingJob"}, {"Tags", Json::array()}, {"TagKeys", Json::array()}};
    (void)service_->call(call);  // aborts for one that is not
  }
}

TEST_F(SagemakerServiceTest, ANameIsTakenOnce) {
  Json input = smallest_training_input("job-1");
  EXPECT_EQ((*create(input))["TrainingJobArn"], std::string(kArn) + "job-1");
  EXPECT_EQ(create(input).error().code, "ResourceInUse");
}

TEST_F(SagemakerServiceTest, WhatTheEngineRefusesIsToldByItsKind) {
  desk_.refuse_with = Error{Code::kInvalidArgument, "no host has 8 GPUs"};
  EXPECT_EQ(create(smallest_training_input("a")).error().code, "ValidationException");
  EXPECT_EQ(create(smallest_training_input("a")).error().message, "no host has 8 GPUs");
  desk_.refuse_with = Error{Code::kUnavailable, "10000 jobs wait"};
  EXPECT_EQ(create(smallest_training_input("a")).error().code, "ResourceLimitExceeded");
  desk_.refuse_with = Error{Code::kInternal, "/secret/path broke"};
  const auto failed = create(smallest_training_input("a"));
  EXPECT_EQ(failed.error().code, "InternalFailure");
  EXPECT_EQ(failed.error().http_status, 500);
  EXPECT_EQ(failed.error().message.find("/secret"), std::string::npos);
  EXPECT_EQ(failed.error().log_message, "/secret/path broke");
}

TEST_F(SagemakerServiceTest, WhatDoesNotGoTogetherIsRefusedBeforeAnyHostIsAsked) {
  const std::vector<std::pair<std::string, Json>> cases = {
      {"/AlgorithmSpecification/TrainingImage", ""},
      {"/AlgorithmSpecification/AlgorithmName", "xgboost"},
      {"/ResourceConfig/InstanceCount", 0},
      {"/ResourceConfig/InstanceGroups",
       Json::array({{{"InstanceGroupName", "a"}, {"InstanceType", "ml.x"}, {"InstanceCount", 1}}})},
      {"/EnableManagedSpotTraining", true},
      {"/StoppingCondition/MaxWaitTimeInSeconds", 7200},
      {"/OutputDataConfig/S3OutputPath", "https://b/x"},
      {"/CheckpointConfig", {{"S3Uri", "s3:///x"}}},
      {"/ProfilerConfig", {{"ProfilingIntervalInMilliseconds", 300}}},
      {"/AlgorithmSpecification/MetricDefinitions", {{{"Name", "loss"}, {"Regex", "loss=(["}}}},
      {"/Tags", {{{"Key", "a"}, {"Value", "1"}}, {{"Key", "a"}, {"Value", "2"}}}},
      {"/Tags", {{{"Key", "aws:x"}, {"Value", "1"}}}},
      {"/InputDataConfig", {{{"ChannelName", "train"}, {"DataSource", Json::object()}}}}};
  for (const auto& [path, value] : cases) {
    Json input = smallest_training_input("job-1");
    input[Json::json_pointer(path)] = value;
    const auto made = create(input);
    ASSERT_FALSE(made) << path << value;
    EXPECT_EQ(made.error().code, "ValidationException") << path;
  }
  Json input = smallest_training_input("job-1");
  const Json channel = {
      {"ChannelName", "train"},
      {"DataSource", {{"S3DataSource", {{"S3DataType", "S3Prefix"}, {"S3Uri", "s3://b/x"}}}}}};
  input["InputDataConfig"] = {channel, channel};
  EXPECT_EQ(create(input).error().message, "channel 'train' is given twice");
  input["InputDataConfig"] = Json::array({channel});
  input["EnableManagedSpotTraining"] = true;
  input["StoppingCondition"]["MaxWaitTimeInSeconds"] = 3600;
  EXPECT_TRUE(create(input));
}

TEST_F(SagemakerServiceTest, WhatIsNotThereHasTheTextThatWaitersKnow) {
  for (const char* operation :
       {"DescribeTrainingJob", "StopTrainingJob", "UpdateTrainingJob", "DeleteTrainingJob"}) {
    const auto told = call(operation, {{"TrainingJobName", "gone"}});
    ASSERT_FALSE(told) << operation;
    EXPECT_EQ(told.error().code, "ValidationException");
    EXPECT_NE(told.error().message.find("Could not find"), std::string::npos);
    EXPECT_NE(told.error().message.find("Requested resource not found."), std::string::npos);
  }
}

TEST_F(SagemakerServiceTest, AJobIsStoppedUpdatedAndDeleted) {
  create_jobs(1);
  EXPECT_EQ((*call("UpdateTrainingJob",
                   {{"TrainingJobName", "job-0"},
                    {"ResourceConfig", {{"KeepAlivePeriodInSeconds", 60}}}}))["TrainingJobArn"],
            std::string(kArn) + "job-0");
  EXPECT_EQ(desk_.keep_alive_s, 60);
  EXPECT_EQ(described("job-0")["ResourceConfig"]["KeepAlivePeriodInSeconds"], 60);
  EXPECT_EQ(call("DeleteTrainingJob", {{"TrainingJobName", "job-0"}}).error().code,
            "ResourceInUse");
  EXPECT_TRUE(call("StopTrainingJob", {{"TrainingJobName", "job-0"}}));
  EXPECT_EQ((*call("DescribeTrainingJob", {{"TrainingJobName", "job-0"}}))["TrainingJobStatus"],
            "Stopping");
  EXPECT_TRUE(call("DeleteTrainingJob", {{"TrainingJobName", "job-0"}}));
  EXPECT_FALSE(call("DescribeTrainingJob", {{"TrainingJobName", "job-0"}}));
}

TEST_F(SagemakerServiceTest, ProfilingIsTurnedOnChangedAndOffWhileTheJobRuns) {
  create_jobs(1);
  EXPECT_EQ(described("job-0")["ProfilingStatus"], "Disabled");
  EXPECT_FALSE(update({{"ProfilerConfig", {{"DisableProfiler", false}}}}));  // where to?
  EXPECT_FALSE(update({{"ProfilerRuleConfigurations", {rule("a")}}}));       // it is off
  ASSERT_TRUE(update({{"ProfilerConfig", {{"S3OutputPath", "s3://b/p"}}}}));
  ASSERT_TRUE(update({{"ProfilerConfig", {{"ProfilingIntervalInMilliseconds", 1000}}},
                      {"ProfilerRuleConfigurations", {rule("a")}}}));
  EXPECT_EQ(described("job-0")["ProfilingStatus"], "Enabled");
  EXPECT_EQ(described("job-0")["ProfilerConfig"],
            (Json{{"S3OutputPath", "s3://b/p"},
                  {"DisableProfiler", false},
                  {"ProfilingIntervalInMilliseconds", 1000}}));
  // Rules are added; a place that is in use stays.
  ASSERT_TRUE(update({{"ProfilerRuleConfigurations", {rule("b")}}}));
  EXPECT_EQ(described("job-0")["ProfilerRuleConfigurations"], (Json{rule("a"), rule("b")}));
  for (const Json& wrong :
       std::vector<Json>{{{"ProfilerRuleConfigurations", {rule("a")}}},
                         {{"ProfilerConfig", {{"S3OutputPath", "s3://other"}}}},
                         {{"ProfilerConfig", {{"ProfilingIntervalInMilliseconds", 300}}}}}) {
    const auto refused = update(wrong);
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.error().code, "ValidationException") << wrong;
  }
  Json many = Json::array();
  for (int i = 0; i < 19; ++i) many.push_back(rule("many-" + std::to_string(i)));
  EXPECT_EQ(update({{"ProfilerRuleConfigurations", many}}).error().code, "ResourceLimitExceeded");
  ASSERT_TRUE(update({{"ProfilerConfig", {{"DisableProfiler", true}}}}));
  EXPECT_EQ(described("job-0")["ProfilingStatus"], "Disabled");
  EXPECT_EQ(described("job-0")["ProfilerConfig"]["S3OutputPath"], "s3://b/p");
}

TEST_F(SagemakerServiceTest, AJobChangesOnlyInTheStatesThatAllowIt) {
  create_jobs(1);
  const Json debug = {{"RemoteDebugConfig", {{"EnableRemoteDebug", true}}}};
  const Json profile = {{"ProfilerConfig", {{"S3OutputPath", "s3://b/p"}}}};
  EXPECT_FALSE(update(debug));  // it is Starting
  for (const char* secondary : {"Downloading", "Training"}) {
    set_status("InProgress", secondary);
    EXPECT_TRUE(update(debug)) << secondary;
  }
  EXPECT_EQ(described("job-0")["RemoteDebugConfig"]["EnableRemoteDebug"], true);
  set_status("Stopping", "Stopping");
  EXPECT_FALSE(update(profile));
  EXPECT_FALSE(update(debug));
  set_status("Completed", "Completed");
  EXPECT_FALSE(update(profile));
  // Refused as a whole: the warm pool is as it was.
  Json both = profile;
  both["ResourceConfig"] = {{"KeepAlivePeriodInSeconds", 5}};
  EXPECT_FALSE(update(both));
  EXPECT_EQ(desk_.keep_alive_s, -1);
}

TEST_F(SagemakerServiceTest, FinalMetricsAreToldOfJobsThatDefineThemAndSearchedFor) {
  create_jobs(1);
  EXPECT_FALSE(described("job-0").contains("FinalMetricDataList"));
  Json input = smallest_training_input("measured");
  input["HyperParameters"] = {{"lr", "0.5"}};
  input["AlgorithmSpecification"]["MetricDefinitions"] = {
      {{"Name", "train:loss"}, {"Regex", "loss=(.*)"}}};
  ASSERT_TRUE(create(input));
  EXPECT_EQ(described("measured")["FinalMetricDataList"],
            (Json{{{"MetricName", "train:loss"}, {"Value", 0.5}, {"Timestamp", 1005.0}}}));
  EXPECT_FALSE(was_to_the_end_);
  EXPECT_EQ(search(filter("Metrics.train:loss", "LessThan", "0.75")), Names{"measured"});
  EXPECT_EQ(search(filter("Metrics.train:loss", "LessThan", "0.25")), Names{});
  ASSERT_TRUE(desk_.change(engine::JobKind::kTraining, "measured", [](engine::JobView& view) {
    view.status = view.secondary_status = "Completed";
    return Status(Ok{});
  }));
  (void)described("measured");
  EXPECT_TRUE(was_to_the_end_);
}

TEST_F(SagemakerServiceTest, ListsHavePagesAndPassTheFiltersOn) {
  create_jobs(5);
  const auto first = call("ListTrainingJobs", {{"MaxResults", 2},
                                               {"SortBy", "CreationTime"},
                                               {"SortOrder", "Ascending"},
                                               {"CreationTimeAfter", 5.5},
                                               {"WarmPoolStatusEquals", "Available"},
                                               {"NameContains", "job"}});
  ASSERT_TRUE(first);
  EXPECT_EQ((*first)["TrainingJobSummaries"].size(), 2u);
  EXPECT_EQ((*first)["TrainingJobSummaries"][0]["TrainingJobName"], "job-0");
  EXPECT_EQ(desk_.last_filter.created_after_t, 5.5);
  EXPECT_EQ(desk_.last_filter.warm_pool_status, "Available");
  const auto last =
      call("ListTrainingJobs", {{"MaxResults", 4}, {"SortOrder", "Ascending"}, {"NextToken", "2"}});
  EXPECT_EQ((*last)["TrainingJobSummaries"].size(), 3u);
  EXPECT_FALSE(last->contains("NextToken"));
  EXPECT_TRUE((*call("ListProcessingJobs", Json::object()))["ProcessingJobSummaries"].empty());
}

TEST_F(SagemakerServiceTest, TagsAreAddedListedAndDeleted) {
  create_jobs(1);
  const std::string arn = std::string(kArn) + "job-0";
  const auto added =
      call("AddTags", {{"ResourceArn", arn}, {"Tags", {{{"Key", "more"}, {"Value", "1"}}}}});
  ASSERT_TRUE(added);
  EXPECT_EQ((*added)["Tags"].size(), 2u);
  EXPECT_TRUE(call("DeleteTags", {{"ResourceArn", arn}, {"TagKeys", {"team"}}}));
  EXPECT_EQ((*call("ListTags", {{"ResourceArn", arn}}))["Tags"],
            (Json{{{"Key", "more"}, {"Value", "1"}}}));
  const std::string gone = std::string(kArn) + "gone";
  EXPECT_NE(call("ListTags", {{"ResourceArn", gone}}).error().message.find("Could not find"),
            std::string::npos);
  EXPECT_FALSE(call("AddTags", {{"ResourceArn", gone}, {"Tags", Json::array()}}));
  EXPECT_FALSE(call("DeleteTags", {{"ResourceArn", gone}, {"TagKeys", {"a"}}}));
}

TEST_F(SagemakerServiceTest, SearchFindsByFieldsParametersAndTags) {
  create_jobs(4);
  EXPECT_EQ(search(Json::object()), (Names{"job-0", "job-1", "job-2", "job-3"}));
  EXPECT_EQ(search(filter("TrainingJobName", "Contains", "-2")), Names{"job-2"});
  EXPECT_EQ(search(filter("HyperParameters.lr", "GreaterThan", "0.15")), (Names{"job-2", "job-3"}));
  EXPECT_EQ(search(filter("hyperparameters.lr", "LessThanOrEqualTo", "0.10")),
            (Names{"job-0", "job-1"}));
  EXPECT_EQ(search(filter("HyperParameters.a.b", "Equals", "dotted")).size(), 4u);
  EXPECT_EQ(search(filter("Tags.team", "Equals", "odd")), (Names{"job-1", "job-3"}));
  EXPECT_EQ(search(filter("TrainingJobName", "In", "job-1, job-3")), (Names{"job-1", "job-3"}));
  EXPECT_EQ(search(filter("CreationTime", "GreaterThan", "1970-01-01T00:16:42Z")), Names{"job-3"});
  EXPECT_EQ(search(filter("ResourceConfig.InstanceCount", "Equals", "1")).size(), 4u);
  EXPECT_EQ(search({{"Filters", {{{"Name", "Tags.none"}, {"Operator", "Exists"}}}}}), Names{});
  EXPECT_EQ(search({{"Filters", {{{"Name", "FailureReason"}, {"Operator", "NotExists"}}}}}).size(),
            4u);
  EXPECT_EQ(search(filter("FailureReason", "NotEquals", "x")).size(), 4u);
}

TEST_F(SagemakerServiceTest, SearchJoinsWithAndAndOrAndInside) {
  create_jobs(4);
  Json both = {{"Filters",
                {{{"Name", "Tags.team"}, {"Value", "even"}},
                 {{"Name", "TrainingJobName"}, {"Value", "job-2"}}}}};
  EXPECT_EQ(search(both), Names{"job-2"});
  both["Operator"] = "Or";
  EXPECT_EQ(search(both), (Names{"job-0", "job-2"}));
  EXPECT_EQ(search({{"SubExpressions", {both, filter("TrainingJobName", "Equals", "job-0")}}}),
            Names{"job-0"});
  EXPECT_EQ(
      search({{"NestedFilters",
               {{{"NestedPropertyName", "SecondaryStatusTransitions"},
                 {"Filters",
                  {{{"Name", "SecondaryStatusTransitions.Status"}, {"Value", "Starting"}}}}}}}})
          .size(),
      4u);
}

TEST_F(SagemakerServiceTest, SearchHasPagesAndOnlyKnowsTrainingJobs) {
  create_jobs(3);
  const auto first = call("Search", {{"Resource", "TrainingJob"}, {"MaxResults", 2}});
  ASSERT_TRUE(first);
  EXPECT_EQ((*first)["Results"][0]["TrainingJob"]["TrainingJobName"], "job-2");  // the latest
  EXPECT_EQ((*first)["Results"][0]["TrainingJob"]["Tags"][0]["Key"], "team");
  EXPECT_EQ((*first)["NextToken"], "2");
  const auto rest = call("Search", {{"Resource", "TrainingJob"}, {"NextToken", "2"}});
  EXPECT_EQ((*rest)["Results"].size(), 1u);
  EXPECT_FALSE(rest->contains("NextToken"));
  EXPECT_FALSE(call("Search", {{"Resource", "TrainingJob"}, {"NextToken", "x"}}));
  EXPECT_FALSE(call("Search", {{"Resource", "Endpoint"}}));
  EXPECT_FALSE(call("Search", {{"Resource", "TrainingJob"},
                               {"SearchExpression", {{"Filters", {{{"Name", "a"}}}}}}}));
}

}  // namespace
}  // namespace yard::api
