// The files of a job's folder, as the report wants them.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "report/page.h"
#include "report/run_history.h"

namespace yard::report {

struct JobFolder {
  JobFacts facts;
  RunHistory history;
  std::vector<SamplePictures> samples;
};

Result<JobFolder> read_job_folder(const std::string& dir);

}  // namespace yard::report
