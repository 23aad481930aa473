// STS and IAM, as far as the SageMaker SDKs ask them: who am I, and may this role do that?
#pragma once

#include <memory>

#include "api/arns.h"
#include "api/service.h"

namespace yard::api {

// GetCallerIdentity.
std::unique_ptr<Service> make_sts_service(Arns arns);

// SimulatePrincipalPolicy and GetRole. Every role exists, may do everything, and trusts SageMaker:
// rights are those of the user whose key signs, not of a role.
std::unique_ptr<Service> make_iam_service(Arns arns);

}  // namespace yard::api
