// Agreement: all ranks learn the worst of what each has met, so that they go on or end together.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "collective/collective.h"

namespace yard::loop {

// `mine` where it is an Error; where another rank has one, an Error of the same code that says so.
// An Error of the group itself comes first. Collective.
Status agree(collective::Group& group, const Status& mine, std::string_view doing);

// Whether any rank says yes. Collective.
Result<bool> any_rank(collective::Group& group, bool mine);

// The least of all ranks' numbers. Collective.
Result<int64_t> least_of_ranks(collective::Group& group, int64_t mine);

}  // namespace yard::loop
