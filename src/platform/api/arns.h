// The names that AWS gives things: "arn:aws:sagemaker:us-east-1:123456789012:training-job/NAME".
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>

#include "jobs/platform_job.h"

namespace yard::api {

struct Arns {
  std::string region = "us-east-1";
  std::string account_id = "123456789012";

  std::string of_job(jobs::JobKind kind, std::string_view name) const {
    const bool is_training = kind == jobs::JobKind::kTraining;
    return fmt::format("arn:aws:sagemaker:{}:{}:{}-job/{}", region, account_id,
                       is_training ? "training" : "processing", name);
  }
  std::string of_log_group(std::string_view group) const {
    return fmt::format("arn:aws:logs:{}:{}:log-group:{}", region, account_id, group);
  }
  std::string of_user(std::string_view name) const {
    return fmt::format("arn:aws:iam::{}:user/{}", account_id, name);
  }
  std::string of_role(std::string_view name) const {
    return fmt::format("arn:aws:iam::{}:role/{}", account_id, name);
  }
};

}  // namespace yard::api
