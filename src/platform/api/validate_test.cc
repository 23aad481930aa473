#include "api/validate.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "api/testing/memory_desk.h"

namespace yard::api {
namespace {

const Shape& input_of(const char* model, const char* operation) {
  return *Model::built_in(model).find(operation)->input;
}

AwsResult<Json> check_training(const Json& input) {
  return checked_input(input_of("sagemaker", "CreateTrainingJob"), input);
}

TEST(ValidateTest, WhatTheSdksSendPassesUnchanged) {
  Json input = smallest_training_input("job-1");
  input["HyperParameters"] = {{"lr", "0.1"}, {"text", std::string(2500, 'x')}};
  input["InputDataConfig"] = {
      {{"ChannelName", "train"},
       {"DataSource",
        {{"S3DataSource", {{"S3DataType", "S3Prefix"}, {"S3Uri", "s3://b/data/"}}}}}}};
  const auto kept = check_training(input);
  ASSERT_TRUE(kept) << kept.error().message;
  EXPECT_EQ(*kept, input);
}

TEST(ValidateTest, EveryMissingMemberIsNamedInOneError) {
  const auto kept = check_training(Json::object());
  ASSERT_FALSE(kept);
  EXPECT_EQ(kept.error().code, "ValidationException");
  EXPECT_EQ(kept.error().message,
            "3 validation errors detected: Value null at 'outputDataConfig' failed to satisfy "
            "constraint: Member must not be null; Value null at 'roleArn' failed to satisfy "
            "constraint: Member must not be null; Value null at 'trainingJobName' failed to "
            "satisfy constraint: Member must not be null");
}

// Each required member and each limit of CreateTrainingJob that somebody may meet.
TEST(ValidateTest, EachLimitHasItsPlaceAndItsWords) {
  const std::vector<std::tuple<std::string, Json, std::string>> cases = {
      {"/TrainingJobName", "-job",
       "at 'trainingJobName' failed to satisfy constraint: Member must "
       "satisfy regular expression pattern"},
      {"/TrainingJobName", std::string(64, 'a'),
       "Member must have length less than or equal to 63"},
      {"/RoleArn", "SageMakerRole", "Member must have length greater than or equal to 20"},
      {"/RoleArn", "arn:aws:iam::1234:role/SageMakerRole", "regular expression"},
      {"/ResourceConfig/InstanceCount", -1,
       "Value '-1' at 'resourceConfig.instanceCount' failed to satisfy constraint: Member must "
       "have "
       "value greater than or equal to 0"},
      {"/ResourceConfig/KeepAlivePeriodInSeconds", 21601, "value less than or equal to 21600"},
      {"/AlgorithmSpecification/TrainingInputMode", "Tape",
       "at 'algorithmSpecification.trainingInputMode' failed to satisfy constraint: Member must "
       "satisfy enum value set: [Pipe, File, FastFile]"},
      {"/AlgorithmSpecification/ContainerArguments", Json::array({std::string(257, 'x')}),
       "Member must satisfy constraint: [Member must have length less than or equal to 256"},
      {"/HyperParameters",
       {{"big", std::string(2501, 'x')}},
       "at 'hyperParameters' failed to satisfy constraint: Map value must satisfy constraint: "
       "[Member must have length less than or equal to 2500"},
      {"/HyperParameters", {{std::string(257, 'k'), "x"}}, "Map keys must satisfy constraint"},
      {"/Environment", {{"9X", "x"}}, "Map keys must satisfy constraint"},
      {"/InputDataConfig", Json::array(), "Member must have length greater than or equal to 1"},
      {"/InputDataConfig", Json::array({Json{{"ChannelName", "a b"}}}),
       "Value null at 'inputDataConfig.1.member.dataSource'"},
      {"/Tags", Json::array({Json{{"Key", "a"}}}), "'tags.1.member.value'"},
      {"/StoppingCondition/MaxPendingTimeInSeconds", 60, "greater than or equal to 1800"},
      {"/RetryStrategy/MaximumRetryAttempts", 31, "less than or equal to 30"},
  };
  for (const auto& [path, value, words] : cases) {
    Json input = smallest_training_input("job-1");
    input[Json::json_pointer(path)] = value;
    const auto kept = check_training(input);
    ASSERT_FALSE(kept) << path;
    EXPECT_EQ(kept.error().code, "ValidationException") << path;
    EXPECT_NE(kept.error().message.find(words), std::string::npos) << kept.error().message;
  }
}

TEST(ValidateTest, ManyProblemsAreCountedAndTheFirstNamed) {
  Json input = smallest_training_input("job-1");
  for (int i = 0; i < 60; ++i) input["Tags"].push_back({{"Key", "k"}});
  const auto kept = check_training(input);
  ASSERT_FALSE(kept);
  EXPECT_TRUE(kept.error().message.starts_with("61 validation errors detected: "));
  EXPECT_LT(kept.error().message.size(), 10'000u);
}

TEST(ValidateTest, InstanceTypesThatNobodyKnowsYetPass) {
  Json input = smallest_training_input("job-1");
  input["ResourceConfig"]["InstanceType"] = "ml.p9xyz.metal-96xl";
  EXPECT_TRUE(check_training(input));
  input["ResourceConfig"]["InstanceType"] = "ml p9";
  EXPECT_FALSE(check_training(input));
}

TEST(ValidateTest, UnknownAndNullMembersAreLeftOut) {
  Json input = smallest_training_input("job-1");
  input["SomethingNew"] = {{"a", {1, 2}}};
  input["Environment"] = nullptr;
  EXPECT_EQ(*check_training(input), smallest_training_input("job-1"));
}

TEST(ValidateTest, AnotherTypeIsASerializationException) {
  const std::vector<std::pair<std::string, Json>> cases = {{"/TrainingJobName", 5},
                                                           {"/ResourceConfig/InstanceCount", "1"},
                                                           {"/ResourceConfig/InstanceCount", 1.5},
                                                           {"/ResourceConfig/InstanceCount", 1e300},
                                                           {"/EnableManagedSpotTraining", "true"},
                                                           {"/HyperParameters", {{"lr", 0.1}}},
                                                           {"/InputDataConfig", {{"a", 1}}},
                                                           {"/OutputDataConfig", "s3://b/"}};
  for (const auto& [path, value] : cases) {
    Json input = smallest_training_input("job-1");
    input[Json::json_pointer(path)] = value;
    const auto kept = check_training(input);
    ASSERT_FALSE(kept) << path;
    EXPECT_EQ(kept.error().code, "SerializationException") << path;
  }
  Json input = smallest_training_input("job-1");
  input["ResourceConfig"]["InstanceCount"] = 2.0;
  EXPECT_EQ((*check_training(input))["ResourceConfig"]["InstanceCount"].type(),
            Json::value_t::number_integer);
}

TEST(ValidateTest, TimesAreNumbersWhateverTheirForm) {
  const Shape& shape = input_of("sagemaker", "ListTrainingJobs");
  EXPECT_EQ((*checked_input(
                shape, {{"CreationTimeAfter", "2026-11-30T05:16:27.5Z"}}))["CreationTimeAfter"],
            1796015787.5);
  EXPECT_EQ(checked_input(shape, {{"CreationTimeAfter", "yesterday"}}).error().code,
            "SerializationException");
}

TEST(ValidateTest, LettersOfOtherScriptsMayBeInTags) {
  Json input = smallest_training_input("job-1");
  input["Tags"] = {{{"Key", "Größe/日本"}, {"Value", "ein Wert"}}};
  EXPECT_TRUE(check_training(input));
  input["Tags"][0]["Key"] = "a{b}";
  EXPECT_FALSE(check_training(input));
}

TEST(ValidateTest, EveryPatternOfEveryInputCanBeRead) {
  for (const char* name : {"sagemaker", "logs", "sts", "iam"}) {
    const Model& model = Model::built_in(name);
    std::vector<const Shape*> waiting;
    for (const auto operation : model.operations())
      if (const Shape* input = model.find(operation)->input) waiting.push_back(input);
    std::set<const Shape*> seen;
    while (!waiting.empty()) {
      const Shape* shape = waiting.back();
      waiting.pop_back();
      if (shape == nullptr || !seen.insert(shape).second) continue;
      if (shape->pattern) {
        const Status checked = shape->pattern->check();
        EXPECT_TRUE(checked) << checked.error().message;
      }
      for (const auto& member : shape->members) waiting.push_back(member.shape);
      for (const Shape* inner : {shape->element, shape->key, shape->value})
        waiting.push_back(inner);
    }
    EXPECT_FALSE(seen.empty());
  }
}

TEST(ValidateTest, ABodyThatIsNoObjectIsASerializationException) {
  for (const char* text : {"[]", "5", "{\"a\":", "{\"a\": \"\xff\"}", "null"})
    EXPECT_EQ(parse_request_json(text).error().code, "SerializationException") << text;
  EXPECT_EQ(*parse_request_json(""), Json::object());
}

TEST(ValidateTest, NestingIsBoundedBeforeItIsParsed) {
  const std::string deep =
      "{\"a\":" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}";
  EXPECT_EQ(parse_request_json(deep).error().code, "SerializationException");
  const std::string brackets_in_a_text = "{\"a\":\"\\\"" + std::string(1000, '[') + "\"}";
  EXPECT_TRUE(parse_request_json(brackets_in_a_text));
}

}  // namespace
}  // namespace yard::api
