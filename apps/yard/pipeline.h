// yard run PIPELINE.yaml, and yard launch, which runs inside its training jobs.
#pragma once

#include "base/result.h"
#include "commands.h"
#include "job_source.h"

namespace yard::app {

// Whether `yard run` is given a pipeline. False for what cannot be read.
bool names_pipeline(const RunArguments& arguments);
Status run_pipeline_file(const RunArguments& arguments, const Context& context);

}  // namespace yard::app
