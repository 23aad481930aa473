// A step's record on this machine, in the form of a job's folder (docs/formats/job.md), so that
// `yard report` and the ledger read it as one: out of the ranks' heartbeats and of what the
// platform said about the step's jobs.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "jobs/supervisor_event.h"
#include "pipeline/pipeline_jobs.h"
#include "pipeline/pipeline_state.h"

namespace yard::pipeline {

// The supervisor's events of the step's jobs, in order: where hosts were held, when ranks started,
// what went wrong. `launches`: the lines that `yard launch` left. Recoveries are told by the first
// of `step_times` (when rank 0 ended a step, ascending) after a fault. Pure.
std::vector<jobs::SupervisorEvent> events_of_jobs(const std::vector<JobSight>& jobs,
                                                  const std::vector<std::string>& launches,
                                                  const std::vector<double>& step_times);

// The text of a heartbeat file with its `start` lines numbered by attempt, from 0. Pure.
std::string number_attempts(const std::string& heartbeats);

// Writes job.json, status.json, events.jsonl, ledger.json, recipe.yaml into `dir`, where
// fetch_run() has put what the ranks left.
Status write_step_record(const std::string& dir, const PipelineStep& step, const StepState& state,
                         const std::vector<JobSight>& jobs, const std::string& file_text);

}  // namespace yard::pipeline
