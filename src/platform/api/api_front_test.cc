#include "api/api_front.h"

#include <gtest/gtest.h>

#include "api/identity_services.h"
#include "api/sagemaker_service.h"
#include "api/testing/memory_desk.h"
#include "api/testing/signed_client.h"
#include "base/file.h"

namespace yard::api {
namespace {

constexpr const char* kForm = "application/x-www-form-urlencoded; charset=utf-8";

class ApiFrontTest : public testing::Test {
 protected:
  ApiFrontTest() {
    users_ = *Users::open(folder_ / "users.json");
    audit_ = *AuditLog::open({.path = folder_ / "audit.log"}, Clock::real());
    std::filesystem::create_directories(folder_ / "s3/bucket");
    admin_ = users_->by_name(kFirstUser)->credentials;
    store_ = *gateway::Gateway::open(
        {.root = folder_ / "s3",
         .credentials = admin_,
         .lookup = [this](std::string_view key) -> std::optional<Credentials> {
           auto user = users_->by_key(key);
           if (!user) return std::nullopt;
           return user->credentials;
         },
         .authorize =
             [this](const gateway::StoreAccess& access) {
               return authorize_store(*users_, audit_.get(), access);
             }});
    start({});
  }

  void start(ApiOptions options) {
    options.users = users_.get();
    options.audit = audit_.get();
    options.store = store_.get();
    options.services = {make_sagemaker_service(desk_, {}), make_sts_service({}),
                        make_iam_service({})};
    front_ = std::make_unique<ApiFront>(options);
  }

  ClientAnswer call(const Credentials& credentials, const std::string& operation, const Json& input,
                    Headers headers = {}, const std::string& scope = "sagemaker") {
    headers.set("x-amz-target", "SageMaker." + operation);
    if (!headers.contains("content-type"))
      headers.set("content-type", "application/x-amz-json-1.1");
    return exchange_text(*front_,
                         signed_text(credentials, scope, "POST", "/", input.dump(), headers));
  }
  ClientAnswer query(const std::string& service, const std::string& body) {
    return exchange_text(
        *front_, signed_text(admin_, service, "POST", "/", body, {{"content-type", kForm}}));
  }
  std::string audit_text() { return *read_file(folder_ / "audit.log"); }

  TempFolder folder_;
  MemoryDesk desk_;
  std::unique_ptr<Users> users_;
  std::unique_ptr<AuditLog> audit_;
  Credentials admin_;
  std::unique_ptr<gateway::Gateway> store_;
  std::unique_ptr<ApiFront> front_;
};

TEST_F(ApiFrontTest, AJobIsCreatedAndDescribed) {
  const ClientAnswer made = call(admin_, "CreateTrainingJob", smallest_training_input("job-1"));
  EXPECT_EQ(made.status, 200) << made.body;
  EXPECT_EQ(made.json()["TrainingJobArn"],
            "arn:aws:sagemaker:us-east-1:123456789012:training-job/job-1");
  EXPECT_NE(made.head.find("application/x-amz-json-1.1"), made.head.npos);
  EXPECT_NE(made.head.find("x-amzn-RequestId: "), made.head.npos);
  const ClientAnswer told = call(admin_, "DescribeTrainingJob", {{"TrainingJobName", "job-1"}});
  EXPECT_EQ(told.json()["TrainingJobStatus"], "InProgress");
  EXPECT_EQ(desk_.find(jobs::JobKind::kTraining, "job-1")->job.user, "admin");
}

TEST_F(ApiFrontTest, ErrorsHaveTheNamesThatClientsReadInHeaderAndBody) {
  const ClientAnswer none = call(admin_, "DescribeTrainingJob", {{"TrainingJobName", "gone"}});
  EXPECT_EQ(none.status, 400);
  EXPECT_NE(none.head.find("x-amzn-ErrorType: ValidationException"), none.head.npos);
  EXPECT_EQ(none.json()["__type"], "ValidationException");
  EXPECT_EQ(none.json()["message"],
            "Could not find training job \"arn:aws:sagemaker:us-east-1:123456789012:training-job/"
            "gone\". Requested resource not found.");
}

TEST_F(ApiFrontTest, AnUnknownOperationIsA400AndNever5xx) {
  const ClientAnswer unknown = call(admin_, "CreateSpaceship", {});
  EXPECT_EQ(unknown.status, 400);
  EXPECT_EQ(unknown.json()["__type"], "UnknownOperationException");
  const ClientAnswer query_form = query("sts", "Action=AssumeSpaceship&Version=2011-06-15");
  EXPECT_EQ(query_form.status, 400);
  EXPECT_NE(query_form.body.find("<Code>InvalidAction</Code>"), query_form.body.npos);
  const ClientAnswer no_service = query("rekognition", "Action=Look");
  EXPECT_EQ(no_service.status, 400);
  const ClientAnswer rest = exchange_text(
      *front_, signed_text(admin_, "sagemaker", "POST", "/endpoints/e/invocations", "x", {}));
  EXPECT_EQ(rest.status, 400);
}

TEST_F(ApiFrontTest, ClientsThatOnceSpokeQueryAreToldInItsHeader) {
  const ClientAnswer told =
      call(admin_, "DescribeTrainingJob", {{"TrainingJobName", "gone"}},
           {{"x-amzn-query-mode", "true"}, {"content-type", "application/x-amz-json-1.0"}});
  EXPECT_NE(told.head.find("x-amzn-query-error: ValidationException;Sender"), told.head.npos);
  EXPECT_NE(told.head.find("application/x-amz-json-1.0"), told.head.npos);
}

TEST_F(ApiFrontTest, NothingIsDoneWithoutARightSignature) {
  const Json input = smallest_training_input("job-1");
  Credentials wrong = admin_;
  wrong.secret_key = "guessed";
  EXPECT_EQ(call(wrong, "CreateTrainingJob", input).json()["__type"], "InvalidSignatureException");
  wrong.access_key = "AKIANOBODY";
  EXPECT_EQ(call(wrong, "CreateTrainingJob", input).json()["__type"],
            "UnrecognizedClientException");
  // Right, but for another service than the one that is called.
  const ClientAnswer scope = call(admin_, "CreateTrainingJob", input, {}, "sts");
  EXPECT_EQ(scope.json()["__type"], "InvalidSignatureException");
  const ClientAnswer unsigned_call =
      exchange_text(*front_,
                    "POST / HTTP/1.1\r\nhost: h\r\nx-amz-target: SageMaker.ListTrainingJobs\r\n"
                    "content-length: 2\r\nconnection: close\r\n\r\n{}");
  EXPECT_EQ(unsigned_call.status, 403);
  EXPECT_EQ(unsigned_call.json()["__type"], "MissingAuthenticationTokenException");
  const ClientAnswer unsigned_form = exchange_text(
      *front_, std::string("POST / HTTP/1.1\r\nhost: h\r\ncontent-type: ") + kForm +
                   "\r\ncontent-length: 24\r\nconnection: close\r\n\r\nAction=GetCallerIdentity");
  EXPECT_EQ(unsigned_form.status, 403);
  EXPECT_NE(unsigned_form.body.find("MissingAuthenticationToken"), std::string::npos);
  EXPECT_FALSE(desk_.find(jobs::JobKind::kTraining, "job-1"));
}

TEST_F(ApiFrontTest, ABodyThatWasChangedOnTheWayIsRefused) {
  std::string text =
      signed_text(admin_, "sagemaker", "POST", "/", smallest_training_input("job-1").dump(),
                  {{"x-amz-target", "SageMaker.CreateTrainingJob"}});
  text.replace(text.rfind("job-1"), 5, "job-2");
  EXPECT_EQ(exchange_text(*front_, text).json()["__type"], "InvalidSignatureException");
  // Some clients sign a header that names the body's hash.
  const std::string body = smallest_training_input("job-1").dump();
  text = signed_text(admin_, "sagemaker", "POST", "/", body,
                     {{"x-amz-target", "SageMaker.CreateTrainingJob"},
                      {"x-amz-content-sha256", sha256_hex(body)}});
  text.replace(text.rfind("job-1"), 5, "job-2");
  EXPECT_EQ(exchange_text(*front_, text).json()["__type"], "InvalidSignatureException");
  EXPECT_FALSE(desk_.find(jobs::JobKind::kTraining, "job-2"));
}

TEST_F(ApiFrontTest, ABodyBeyondTheLimitIsRefused) {
  ApiOptions options;
  options.body_bytes_max = 1000;
  start(options);
  Json input = smallest_training_input("job-1");
  input["Unknown"] = std::string(2000, 'x');
  EXPECT_EQ(call(admin_, "CreateTrainingJob", input).status, 413);
  EXPECT_EQ(call(admin_, "CreateTrainingJob", smallest_training_input("job-1")).status, 200);
}

TEST_F(ApiFrontTest, AKeyThatAsksTooOftenIsThrottled) {
  ApiOptions options;
  options.requests_per_second = 1;
  start(options);
  EXPECT_EQ(call(admin_, "ListTrainingJobs", Json::object()).status, 200);
  EXPECT_EQ(call(admin_, "ListTrainingJobs", Json::object()).status, 200);
  const ClientAnswer third = call(admin_, "ListTrainingJobs", Json::object());
  EXPECT_EQ(third.status, 400);
  EXPECT_EQ(third.json()["__type"], "ThrottlingException");
}

TEST_F(ApiFrontTest, ARoleBoundsWhatItsUserMayDo) {
  const Credentials reader = users_->add("reader", Role::kRead)->credentials;
  const ClientAnswer refused = call(reader, "CreateTrainingJob", smallest_training_input("job-1"));
  EXPECT_EQ(refused.json()["__type"], "AccessDeniedException");
  EXPECT_NE(refused.body.find("user/reader is not authorized to perform: sagemaker:CreateTraining"),
            refused.body.npos);
  EXPECT_EQ(call(reader, "ListTrainingJobs", Json::object()).status, 200);
  EXPECT_EQ(call(users_->by_name(kJobsUser)->credentials, "CreateTrainingJob",
                 smallest_training_input("job-1"))
                .status,
            200);
  ASSERT_TRUE(users_->remove("reader"));
  EXPECT_EQ(call(reader, "ListTrainingJobs", Json::object()).json()["__type"],
            "UnrecognizedClientException");
}

TEST_F(ApiFrontTest, TheAuditLogNamesWhoChangedWhatAndNoSecret) {
  const Credentials reader = users_->add("reader", Role::kRead)->credentials;
  Json input = smallest_training_input("job-1");
  input["Environment"] = {{"TOKEN", "very-secret"}};
  call(admin_, "CreateTrainingJob", input);
  call(reader, "StopTrainingJob", {{"TrainingJobName", "job-1"}});
  call(admin_, "DescribeTrainingJob", {{"TrainingJobName", "job-1"}});
  const std::string text = audit_text();
  ASSERT_EQ(std::ranges::count(text, '\n'), 2) << text;
  const Json first = Json::parse(text.substr(0, text.find('\n')));
  EXPECT_EQ(first["user"], "admin");
  EXPECT_EQ(first["operation"], "CreateTrainingJob");
  EXPECT_EQ(first["resource"], "job-1");
  EXPECT_EQ(first["outcome"], "ok");
  const Json second = Json::parse(text.substr(text.find('\n') + 1));
  EXPECT_EQ(second["user"], "reader");
  EXPECT_EQ(second["outcome"], "AccessDeniedException");
  EXPECT_EQ(text.find("very-secret"), text.npos);
  EXPECT_EQ(text.find(admin_.secret_key), text.npos);
}

TEST_F(ApiFrontTest, ObjectsAreServedOnTheSamePortToEveryUserByItsRole) {
  const Credentials reader = users_->add("reader", Role::kRead)->credentials;
  const auto store = [&](const Credentials& who, const char* method, const std::string& body) {
    return exchange_text(*front_, signed_text(who, "s3", method, "/bucket/key", body, {}));
  };
  EXPECT_EQ(store(admin_, "PUT", "content").status, 200);
  EXPECT_EQ(store(reader, "GET", "").body, "content");
  EXPECT_EQ(store(reader, "PUT", "changed").status, 403);
  EXPECT_EQ(store(reader, "GET", "").body, "content");
  EXPECT_NE(audit_text().find("\"resource\":\"/bucket/key\""), std::string::npos);
  EXPECT_NE(audit_text().find("\"outcome\":\"AccessDenied\""), std::string::npos);
}

TEST_F(ApiFrontTest, IdentityIsToldInXml) {
  const ClientAnswer told = query("sts", "Action=GetCallerIdentity&Version=2011-06-15");
  EXPECT_EQ(told.status, 200);
  EXPECT_NE(
      told.body.find("<GetCallerIdentityResult><Account>123456789012</Account><Arn>arn:aws:iam"
                     "::123456789012:user/admin</Arn>"),
      std::string::npos)
      << told.body;
  const ClientAnswer allowed = query(
      "iam",
      "Action=SimulatePrincipalPolicy&Version=2010-05-08&PolicySourceArn=arn%3Aaws%3Aiam%3A%3A"
      "123456789012%3Arole%2FR&ActionNames.member.1=s3%3APutObject&ResourceArns.member.1=arn%3A"
      "aws%3As3%3A%3A%3Ab%2F%2A");
  EXPECT_NE(
      allowed.body.find("<EvalActionName>s3:PutObject</EvalActionName><EvalDecision>allowed<"),
      std::string::npos)
      << allowed.body;
  const ClientAnswer role =
      query("iam", "Action=GetRole&Version=2010-05-08&RoleName=SageMakerRole");
  EXPECT_NE(role.body.find("<RoleName>SageMakerRole</RoleName>"), std::string::npos) << role.body;
  EXPECT_NE(role.body.find("sagemaker.amazonaws.com"), std::string::npos);
  EXPECT_NE(role.body.find("<CreateDate>2024-01-01T00:00:00.000Z</CreateDate>"), std::string::npos);
}

TEST_F(ApiFrontTest, AFormWithoutWhatItNeedsIsRefusedInXml) {
  const ClientAnswer told = query("iam", "Action=GetRole&Version=2010-05-08");
  EXPECT_EQ(told.status, 400);
  EXPECT_NE(told.body.find("<Code>ValidationError</Code>"), std::string::npos) << told.body;
  EXPECT_NE(told.body.find("roleName"), std::string::npos);
}

}  // namespace
}  // namespace yard::api
