#include "api/job_document.h"

#include <gtest/gtest.h>

#include "api/testing/memory_desk.h"

namespace yard::api {
namespace {

jobs::JobView running() {
  jobs::JobView view;
  view.job = {.kind = jobs::JobKind::kTraining,
              .name = "job-1",
              .arn = "arn:aws:sagemaker:us-east-1:123456789012:training-job/job-1",
              .request = smallest_training_input("job-1"),
              .tags = {{"team", "x"}},
              .user = "ana"};
  view.status = "InProgress";
  view.secondary_status = "Training";
  view.changes = {{"Starting", 1000.5, 1001.25, "Starting the training job"},
                  {"Training", 1001.25, {}, ""}};
  view.created_t = 1000.5;
  view.modified_t = 1001.2504;
  view.training_start_t = 1001.25;
  view.training_s = 0.2;
  view.hosts = {"algo-1"};
  return view;
}

TEST(TrainingDocumentTest, SaysAllThatTheSdksReadWhileItRuns) {
  const Json document = training_document(running());
  EXPECT_EQ(document["TrainingJobName"], "job-1");
  EXPECT_EQ(document["TrainingJobStatus"], "InProgress");
  EXPECT_EQ(document["SecondaryStatus"], "Training");
  EXPECT_EQ(document["OutputDataConfig"],
            (Json{{"S3OutputPath", "s3://b/out/"}, {"KmsKeyId", ""}, {"CompressionType", "GZIP"}}));
  EXPECT_EQ(document["ModelArtifacts"]["S3ModelArtifacts"], "s3://b/out/job-1/output/model.tar.gz");
  EXPECT_EQ(document["SecondaryStatusTransitions"],
            (Json{{{"Status", "Starting"},
                   {"StartTime", 1000.5},
                   {"EndTime", 1001.25},
                   {"StatusMessage", "Starting the training job"}},
                  {{"Status", "Training"}, {"StartTime", 1001.25}, {"StatusMessage", ""}}}));
  EXPECT_EQ(document["LastModifiedTime"], 1001.25);
  EXPECT_EQ(document["TrainingTimeInSeconds"], 1);
  EXPECT_FALSE(document.contains("BillableTimeInSeconds"));
  EXPECT_FALSE(document.contains("TrainingEndTime"));
  EXPECT_FALSE(document.contains("FailureReason"));
  EXPECT_FALSE(document.contains("Tags"));
  EXPECT_FALSE(document.contains("FinalMetricDataList"));
  EXPECT_EQ(document["EnableManagedSpotTraining"], false);
  EXPECT_EQ(document["ResourceConfig"], smallest_training_input("job-1")["ResourceConfig"]);
}

TEST(TrainingDocumentTest, SaysWhatWasAskedForAsItWasAsked) {
  jobs::JobView view = running();
  view.job.request["OutputDataConfig"] = {
      {"S3OutputPath", "s3://b"}, {"CompressionType", "NONE"}, {"KmsKeyId", "alias/k"}};
  view.job.request["HyperParameters"] = {{"lr", "0.1"}};
  view.job.request["InputDataConfig"] = {{{"ChannelName", "train"}, {"CompressionType", "Gzip"}}};
  view.job.request.erase("StoppingCondition");
  const Json document = training_document(view);
  EXPECT_EQ(document["OutputDataConfig"]["KmsKeyId"], "alias/k");
  EXPECT_EQ(document["ModelArtifacts"]["S3ModelArtifacts"], "s3://b/job-1/output/model/");
  EXPECT_EQ(document["HyperParameters"], (Json{{"lr", "0.1"}}));
  EXPECT_EQ(
      document["InputDataConfig"][0],
      (Json{{"ChannelName", "train"}, {"CompressionType", "Gzip"}, {"RecordWrapperType", "None"}}));
  EXPECT_EQ(document["StoppingCondition"]["MaxRuntimeInSeconds"], 86400);
}

TEST(TrainingDocumentTest, SaysHowItEnded) {
  jobs::JobView view = running();
  view.status = view.secondary_status = "Failed";
  view.failure_reason = std::string(1023, 'x') + "äb";
  view.training_end_t = 1010;
  view.training_s = 8.75;
  view.billable_s = 7.1;
  view.model_uri = "s3://b/out/job-1/output/model.tar.gz";
  view.warm_pool_status = "Reused";
  view.warm_pool_billable_s = 2.5;
  view.reused_by = "job-2";
  const Json document = training_document(view);
  // Cut, but not inside a character.
  EXPECT_EQ(document["FailureReason"], std::string(1023, 'x'));
  EXPECT_EQ(document["TrainingTimeInSeconds"], 9);
  EXPECT_EQ(document["BillableTimeInSeconds"], 8);
  EXPECT_EQ(document["WarmPoolStatus"], (Json{{"Status", "Reused"},
                                              {"ResourceRetainedBillableTimeInSeconds", 3},
                                              {"ReusedByJob", "job-2"}}));
  EXPECT_EQ(training_summary(view)["TrainingEndTime"], 1010.0);
}

TEST(TrainingDocumentTest, SaysTheLastValueOfEachMetric) {
  const Json document =
      training_document(running(), {{"train:loss", 0.25, 1001.2504}, {"acc", 1, 2}});
  EXPECT_EQ(document["FinalMetricDataList"],
            (Json{{{"MetricName", "train:loss"}, {"Value", 0.25}, {"Timestamp", 1001.25}},
                  {{"MetricName", "acc"}, {"Value", 1.0}, {"Timestamp", 2.0}}}));
}

TEST(TrainingDocumentTest, AJobThatOnlyWaitsHasNoTrainingTime) {
  jobs::JobView view = running();
  view.training_start_t.reset();
  const Json document = training_document(view);
  EXPECT_FALSE(document.contains("TrainingStartTime"));
  EXPECT_FALSE(document.contains("TrainingTimeInSeconds"));
}

TEST(ProcessingDocumentTest, SaysAllThatTheSdksRead) {
  jobs::JobView view = running();
  view.job.kind = jobs::JobKind::kProcessing;
  view.job.request = {
      {"ProcessingJobName", "job-1"},
      {"ProcessingResources",
       {{"ClusterConfig",
         {{"InstanceCount", 2}, {"InstanceType", "ml.m5.large"}, {"VolumeSizeInGB", 30}}}}},
      {"AppSpecification", {{"ImageUri", "x"}}},
      {"ProcessingOutputConfig", {{"Outputs", Json::array()}}},
      {"RoleArn", "arn:aws:iam::123456789012:role/R"}};
  view.status = "Failed";
  view.failure_reason = "AlgorithmError: x, exit code: 3";
  view.training_end_t = 1010;
  const Json document = processing_document(view);
  EXPECT_EQ(document["ProcessingResources"]["ClusterConfig"]["InstanceCount"], 2);
  EXPECT_EQ(document["ProcessingJobStatus"], "Failed");
  EXPECT_EQ(document["ExitMessage"], "AlgorithmError: x, exit code: 3");
  EXPECT_EQ(document["ProcessingEndTime"], 1010.0);
  EXPECT_EQ(document["ProcessingOutputConfig"]["KmsKeyId"], "");
  EXPECT_EQ(processing_summary(view)["ProcessingJobName"], "job-1");
}

}  // namespace
}  // namespace yard::api
