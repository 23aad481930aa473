// What a loader's options ask for, checked; and the plan that follows from them.
#pragma once

#include "loader/data_set_internal.h"
#include "loader/loader.h"
#include "loader/quarantine_internal.h"

namespace yard::loader {

Status check_options(const LoaderOptions& options);  // kInvalidArgument
// With aspect buckets this reads every picture's header, with a filter every sample's metadata.
Result<shards::SamplePlanOptions> plan_options_of(DataSet& set, const LoaderOptions& options,
                                                  Quarantine& quarantine,
                                                  CounterRegistry& counters);
// The bucket whose aspect is nearest, of equals the first. Pure.
size_t nearest_bucket(images::Size picture, const std::vector<images::Size>& buckets);

}  // namespace yard::loader
