// Tests of code that Highway compiles once per vector width. Their module links libhwy.
#pragma once

#include <gtest/gtest.h>

#include <hwy/targets.h>
#include <cstdint>

namespace yard {

// Runs `body` once for each of Highway's targets that this CPU can run.
template <typename Body>
void for_each_vector_target(Body body) {
  for (int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace yard
