// `yard report`: one self-contained HTML page about a job, out of its folder (docs/formats/job.md).
#pragma once

#include <string>

#include "base/result.h"

namespace yard::report {

// Reads the job's folder while or after it runs; nothing in it is changed. Only heartbeats are
// needed; without ledger, events or pictures their sections say so.
// kNotFound: no such folder, or nothing in it was made by a job; kExhausted: a file over its limit.
Result<std::string> make_report(const std::string& job_dir);

// make_report() into `path`, replaced atomically.
Status write_report(const std::string& job_dir, const std::string& path);

// Likewise about a pipeline, out of its folder with pipeline.json (docs/formats/pipeline.md), and
// of the records of its steps what is there.
Result<std::string> make_pipeline_report(const std::string& pipeline_dir);
// Of a pipeline where `dir` is one's folder, else of a job.
Status write_any_report(const std::string& dir, const std::string& path);

}  // namespace yard::report
