// One round of an exchange in which every rank also says whether it is well.
#pragma once

#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/exchange.h"

namespace yard::checkpoint {

// Every rank's `message`, an object, in rank order; the Error of the first rank that has one, which
// is then the same on all.
Result<std::vector<Json>> tell_all(Exchange& exchange, const Status& own, Json message);

}  // namespace yard::checkpoint
