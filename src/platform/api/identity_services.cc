#include "api/identity_services.h"

#include "net/checksums.h"
#include "net/uri.h"

namespace yard::api {
namespace {

constexpr double kRolesSince_t = 1704067200;  // 2024-01-01: roles are as old as any client expects

class StsService final : public Service {
 public:
  explicit StsService(Arns arns) : arns_(std::move(arns)) {}

  const Model& model() const override { return model_; }
  Role needed_role(std::string_view) const override { return Role::kRead; }
  AwsResult<Json> call(const Call& call) override {
    return Json{{"UserId", call.caller.access_key},
                {"Account", arns_.account_id},
                {"Arn", arns_.of_user(call.caller.user)}};
  }

 private:
  const Arns arns_;
  const Model& model_ = Model::built_in("sts");
};

// The form of AWS's ids: "AROA" and 17 letters or digits, always the same for a name.
std::string role_id(std::string_view name) {
  std::string digits = sha256_hex(name).substr(0, 17);
  for (char& c : digits)
    if (c >= 'a') c = char(c - 32);
  return "AROA" + digits;
}

class IamService final : public Service {
 public:
  explicit IamService(Arns arns) : arns_(std::move(arns)) {}

  const Model& model() const override { return model_; }
  Role needed_role(std::string_view operation) const override { return role_by_name(operation); }
  AwsResult<Json> call(const Call& call) override {
    return call.operation == "GetRole" ? get_role(call.input) : simulate(call.input);
  }

 private:
  AwsResult<Json> get_role(const Json& input) const {
    const std::string name = input["RoleName"];
    const Json trust = {{"Version", "2012-10-17"},
                        {"Statement",
                         {{{"Effect", "Allow"},
                           {"Principal", {{"Service", "sagemaker.amazonaws.com"}}},
                           {"Action", "sts:AssumeRole"}}}}};
    return Json{{"Role",
                 {{"Path", "/"},
                  {"RoleName", name},
                  {"RoleId", role_id(name)},
                  {"Arn", arns_.of_role(name)},
                  {"CreateDate", kRolesSince_t},
                  {"AssumeRolePolicyDocument", percent_encode(trust.dump())}}}};
  }

  static AwsResult<Json> simulate(const Json& input) {
    const Json resources = input.value("ResourceArns", Json::array({"*"}));
    Json results = Json::array();
    for (const Json& action : input["ActionNames"])
      for (const Json& resource : resources)
        results.push_back({{"EvalActionName", action},
                           {"EvalResourceName", resource},
                           {"EvalDecision", "allowed"},
                           {"MatchedStatements", Json::array()},
                           {"MissingContextValues", Json::array()}});
    return Json{{"IsTruncated", false}, {"EvaluationResults", results}};
  }

  const Arns arns_;
  const Model& model_ = Model::built_in("iam");
};

}  // namespace

std::unique_ptr<Service> make_sts_service(Arns arns) {
  return std::make_unique<StsService>(std::move(arns));
}

std::unique_ptr<Service> make_iam_service(Arns arns) {
  return std::make_unique<IamService>(std::move(arns));
}

}  // namespace yard::api
