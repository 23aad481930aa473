// The smaller rules of platform jobs: what a request needs, whose turn it is, which slices, warm
// pools, relaunches, seconds.
#include <gtest/gtest.h>

#include "jobs/job_account.h"
#include "jobs/job_needs.h"
#include "jobs/platform_retry.h"
#include "jobs/queue_order.h"
#include "jobs/slices.h"
#include "jobs/warm_pool.h"

namespace yard::jobs {
namespace {

JobRequest training(Json resources) {
  JobRequest request{.kind = JobKind::kTraining, .name = "a", .user = "ann"};
  request.request = {{"RoleArn", "r"}, {"ResourceConfig", std::move(resources)}};
  return request;
}

TEST(JobNeeds, AreReadOutOfARequest) {
  JobRequest request = training({{"InstanceType", "ml.p4d.24xlarge"},
                                 {"InstanceCount", 2},
                                 {"VolumeSizeInGB", 30},
                                 {"KeepAlivePeriodInSeconds", 60}});
  request.request["StoppingCondition"] = {{"MaxRuntimeInSeconds", 100},
                                          {"MaxWaitTimeInSeconds", 200}};
  request.request["RetryStrategy"] = {{"MaximumRetryAttempts", 7}};
  request.request["EnableManagedSpotTraining"] = true;
  request.tags = {{"trainyard:priority", "-5"}, {"trainyard:user", "bob"}};
  const auto needs = job_needs(request);
  ASSERT_TRUE(needs) << needs.error().message;
  EXPECT_EQ(needs->groups,
            (std::vector<HostGroupNeed>{{"homogeneousCluster", "ml.p4d.24xlarge", 2}}));
  EXPECT_EQ(needs->volume_bytes, uint64_t{30} << 30);
  EXPECT_EQ(needs->keep_alive_s, 60);
  EXPECT_EQ(needs->max_runtime_s, 100);
  EXPECT_EQ(needs->max_wait_s, 200);
  EXPECT_FALSE(needs->max_pending_s);
  EXPECT_TRUE(needs->is_spot);
  EXPECT_EQ(needs->maximum_retry_attempts, 7);
  EXPECT_EQ(needs->priority, -5);
  EXPECT_EQ(needs->share, "bob");
}

TEST(JobNeeds, GroupsOfHostsAreNumberedInTheirOrder) {
  const auto needs = job_needs(
      training({{"InstanceGroups",
                 {{{"InstanceGroupName", "x"}, {"InstanceType", "t1"}, {"InstanceCount", 1}},
                  {{"InstanceGroupName", "y"}, {"InstanceType", "t2"}, {"InstanceCount", 2}}}}}));
  ASSERT_TRUE(needs);
  const auto hosts = named_hosts(*needs);
  ASSERT_EQ(hosts.size(), 3U);
  EXPECT_EQ(hosts[0].name, "algo-1");
  EXPECT_EQ(hosts[2].name, "algo-3");
  EXPECT_EQ(hosts[2].group.instance_type, "t2");
}

TEST(JobNeeds, OfAProcessingJobLieElsewhere) {
  JobRequest request{.kind = JobKind::kProcessing, .name = "p", .user = "ann"};
  request.request = {
      {"ProcessingResources", {{"ClusterConfig", {{"InstanceCount", 3}, {"InstanceType", "t"}}}}}};
  const auto needs = job_needs(request);
  ASSERT_TRUE(needs);
  EXPECT_EQ(needs->host_count(), 3);
  EXPECT_EQ(needs->share, "ann");
  EXPECT_EQ(needs->max_runtime_s, 86'400);
}

TEST(JobNeeds, WrongOnesAreRefused) {
  EXPECT_FALSE(job_needs(training({{"InstanceCount", 0}})));
  EXPECT_FALSE(job_needs(training({{"InstanceCount", "two"}})));
  EXPECT_FALSE(job_needs(training({{"InstanceCount", 2000}})));
  JobRequest request = training(Json::object());
  for (const char* text : {"high", "101", "-101", "1x", ""}) {
    request.tags = {{"trainyard:priority", text}};
    EXPECT_FALSE(job_needs(request)) << text;
  }
}

TEST(QueueOrder, IsFirstComeFirstServedForOneShare) {
  EXPECT_EQ(queue_order({{.id = 3, .share = "a", .queued_t = 3},
                         {.id = 1, .share = "a", .queued_t = 1},
                         {.id = 2, .share = "a", .queued_t = 2}},
                        {}),
            (std::vector<int64_t>{1, 2, 3}));
}

TEST(QueueOrder, APriorityGoesBeforeAge) {
  EXPECT_EQ(queue_order({{.id = 1, .priority = 0, .share = "a", .queued_t = 1},
                         {.id = 2, .priority = 9, .share = "a", .queued_t = 2},
                         {.id = 3, .priority = -1, .share = "b", .queued_t = 0}},
                        {}),
            (std::vector<int64_t>{2, 1, 3}));
}

TEST(QueueOrder, SharesTakeTurnsByTheHostsTheyHave) {
  // ann has 4 hosts already and sent three jobs first; bob's two come before her, then both by
  // turns.
  EXPECT_EQ(queue_order({{.id = 1, .share = "ann", .queued_t = 1, .host_count = 1},
                         {.id = 2, .share = "ann", .queued_t = 2, .host_count = 1},
                         {.id = 3, .share = "ann", .queued_t = 3, .host_count = 1},
                         {.id = 4, .share = "bob", .queued_t = 4, .host_count = 2},
                         {.id = 5, .share = "bob", .queued_t = 5, .host_count = 3},
                         {.id = 6, .share = "bob", .queued_t = 6, .host_count = 1}},
                        {{"ann", 4}}),
            (std::vector<int64_t>{4, 5, 1, 2, 6, 3}));
}

SliceConfig machine() {
  SliceConfig config;
  config.machine_cores = {0, 1, 2, 3, 4, 5, 6, 7};
  config.machine_gpus = {0, 1};
  config.machine_memory_bytes = 100;
  config.slice_count_max = 4;
  config.shapes = {
      {.type = "big", .core_count = 4, .gpu_count = 1, .is_shared = false},
      {.type = "one", .core_count = 1, .gpu_count = 0, .is_shared = false, .slice_count_max = 1},
      {.type = "fat", .core_count = 1, .gpu_count = 0, .memory_bytes = 60, .is_shared = false},
      {.type = "huge", .core_count = 9, .gpu_count = 0, .is_shared = false}};
  return config;
}

TEST(Slices, AnUnknownTypeSharesTheWholeMachine) {
  const auto placed = place_slices(machine(), {}, {"ml.x", "ml.x"}, {});
  ASSERT_TRUE(placed) << placed.error().message;
  EXPECT_EQ((*placed)[0].number, 1);
  EXPECT_EQ((*placed)[1].number, 2);
  EXPECT_EQ((*placed)[1].cores.size(), 8U);
  EXPECT_EQ((*placed)[1].gpus, (std::vector{0, 1}));
}

TEST(Slices, ExclusiveOnesDoNotMeet) {
  const auto placed = place_slices(machine(), {}, {"big", "big"}, {});
  ASSERT_TRUE(placed);
  EXPECT_EQ((*placed)[0].cores, (std::vector{0, 1, 2, 3}));
  EXPECT_EQ((*placed)[1].cores, (std::vector{4, 5, 6, 7}));
  EXPECT_EQ((*placed)[1].gpus, (std::vector{1}));
  EXPECT_EQ(place_slices(machine(), *placed, {"big"}, {}).error().code, Code::kExhausted);
  EXPECT_EQ(place_slices(machine(), *placed, {"ml.x"}, {}).error().code, Code::kExhausted);
}

TEST(Slices, LimitsAreKept) {
  const auto one = place_slices(machine(), {}, {"one"}, {});
  EXPECT_EQ(place_slices(machine(), *one, {"one"}, {}).error().code, Code::kExhausted);
  EXPECT_EQ(place_slices(machine(), {}, {"one", "one"}, {}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(place_slices(machine(), {}, {"huge"}, {}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(place_slices(machine(), {}, {"fat", "fat"}, {}).error().code, Code::kInvalidArgument);
  const std::vector<std::string> five(5, "ml.x");
  EXPECT_EQ(place_slices(machine(), {}, five, {}).error().code, Code::kInvalidArgument);
}

TEST(Slices, AvoidedNumbersAreNotUsed) {
  EXPECT_EQ((*place_slices(machine(), {}, {"ml.x"}, {1, 2}))[0].number, 3);
  const auto none = place_slices(machine(), {}, {"ml.x"}, {1, 2, 3, 4});
  EXPECT_EQ(none.error().code, Code::kInvalidArgument);
  EXPECT_NE(none.error().message.find("faulty"), std::string::npos);
}

TEST(WarmPool, OnlyTheTransitionsOfTheTableAreThere) {
  using S = WarmState;
  using E = WarmEvent;
  const std::map<std::pair<S, E>, S> table = {
      {{S::kNone, E::kTakenOver}, S::kInUse},        {{S::kNone, E::kKept}, S::kAvailable},
      {{S::kNone, E::kNotKept}, S::kNone},           {{S::kInUse, E::kKept}, S::kAvailable},
      {{S::kInUse, E::kNotKept}, S::kTerminated},    {{S::kAvailable, E::kMatched}, S::kReused},
      {{S::kAvailable, E::kExpired}, S::kTerminated}};
  for (int s = 0; s < kWarmStateCount; ++s)
    for (int e = 0; e < kWarmEventCount; ++e) {
      const auto pair = std::pair(static_cast<S>(s), static_cast<E>(e));
      const auto got = advance_warm(pair.first, pair.second);
      const auto it = table.find(pair);
      ASSERT_EQ(got.has_value(), it != table.end()) << s << " " << e;
      EXPECT_EQ(got ? std::optional(*got) : std::nullopt,
                it == table.end() ? std::nullopt : std::optional(it->second));
    }
}

TEST(WarmPool, JobsMatchByTheFieldsThatTheContractNames) {
  const Json resources = {{"InstanceType", "t"}, {"InstanceCount", 2}, {"VolumeSizeInGB", 5}};
  const JobRequest one = training(resources);
  JobRequest other = training(resources);
  other.name = "b";
  other.request["ResourceConfig"]["KeepAlivePeriodInSeconds"] = 5;
  other.request["HyperParameters"] = {{"lr", "1"}};
  EXPECT_EQ(warm_pool_key(one), warm_pool_key(other));
  const std::vector<std::pair<std::string, Json>> changes = {
      {"RoleArn", "s"},
      {"VpcConfig", {{"Subnets", {"subnet-1"}}}},
      {"EnableNetworkIsolation", true},
      {"EnableInterContainerTrafficEncryption", true},
      {"ResourceConfig", {{"InstanceType", "t"}, {"InstanceCount", 3}, {"VolumeSizeInGB", 5}}},
      {"ResourceConfig", {{"InstanceType", "u"}, {"InstanceCount", 2}, {"VolumeSizeInGB", 5}}},
      {"ResourceConfig", {{"InstanceType", "t"}, {"InstanceCount", 2}, {"VolumeSizeInGB", 6}}}};
  for (const auto& [key, value] : changes) {
    JobRequest changed = one;
    changed.request[key] = value;
    EXPECT_NE(warm_pool_key(one), warm_pool_key(changed)) << key << value.dump();
  }
}

TEST(WarmPool, IsKeptAfterASuccessAStopAndAnErrorOfTheScriptOnly) {
  EXPECT_TRUE(keeps_warm_pool(JobStage::kCompleted, false));
  EXPECT_TRUE(keeps_warm_pool(JobStage::kStopped, false));
  EXPECT_TRUE(keeps_warm_pool(JobStage::kFailed, false));
  EXPECT_FALSE(keeps_warm_pool(JobStage::kFailed, true));
  EXPECT_FALSE(keeps_warm_pool(JobStage::kTraining, false));
  const JobRequest request = training(Json::object());
  JobNeeds needs = *job_needs(request);
  EXPECT_FALSE(may_have_warm_pool(request, needs));
  needs.keep_alive_s = 1;
  EXPECT_TRUE(may_have_warm_pool(request, needs));
  needs.is_spot = true;
  EXPECT_FALSE(may_have_warm_pool(request, needs));
}

TEST(PlatformRetry, EveryCauseHasItsOwnBudget) {
  FaultCounts budgets;
  budgets.of(FaultCause::kHostFault) = 2;
  FaultCounts used;
  used.of(FaultCause::kUserError) = 9;
  EXPECT_TRUE(decide_relaunch(FaultCause::kHostFault, budgets, used).relaunch);
  used.of(FaultCause::kHostFault) = 2;
  const auto spent = decide_relaunch(FaultCause::kHostFault, budgets, used);
  EXPECT_FALSE(spent.relaunch);
  EXPECT_EQ(spent.why_not, "its 2 relaunches after a host fault are used up");
  EXPECT_FALSE(decide_relaunch(FaultCause::kUserError, default_fault_budgets(), {}).relaunch);
}

TEST(PlatformRetry, ARequestLimitsWhatIsNotItsScriptsFault) {
  const auto budgets = budgets_for_job(default_fault_budgets(), 1, false);
  EXPECT_EQ(budgets.of(FaultCause::kHostFault), 1);
  EXPECT_EQ(budgets.of(FaultCause::kUserError), 0);
  EXPECT_EQ(budgets.of(FaultCause::kPreemption), 10);
  EXPECT_EQ(budgets_for_job(default_fault_budgets(), 5, true), FaultCounts{});
}

TEST(JobAccount, EverySecondHasItsPlace) {
  const std::vector<StatusChange> changes = {
      {"Starting", 0, 1, "Starting the training job"},
      {"Pending", 1, 11, ""},
      {"Starting", 11, 13, "Preparing the instances for training"},
      {"Downloading", 13, 16, ""},
      {"Training", 16, 36, ""},
      {"Restarting", 36, 37, ""},
      {"Starting", 37, 38, "Starting the training job again"},
      {"Starting", 38, 40, "Preparing the instances for training"},
      {"Downloading", 40, 41, ""},
      {"Training", 41, std::nullopt, ""}};
  const auto account = account_of(changes, {{.start_t = 11, .end_t = 36}}, 141);
  EXPECT_EQ(account.queued_s, 1 + 10 + 1);
  EXPECT_EQ(account.provisioning_s, 2 + 2);
  EXPECT_EQ(account.download_s, 1);
  EXPECT_EQ(account.training_s, 100);
  EXPECT_EQ(account.restarting_s, 1);
  EXPECT_EQ(account.lost_s, 23);
  EXPECT_EQ(account.billable_s(), 101);
  EXPECT_EQ(account.active_s(), 124);
  EXPECT_EQ(account.total_s(), 141);
}

TEST(JobAccount, AJobThatNeverHadHostsCostsNothing) {
  const auto account =
      account_of({{"Starting", 0, 5, "Starting the training job"}, {"Stopped", 5, {}, ""}}, {}, 90);
  EXPECT_EQ(account.billable_s(), 0);
  EXPECT_EQ(account.total_s(), 5);
}

}  // namespace
}  // namespace yard::jobs
