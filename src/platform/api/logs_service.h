// CloudWatch Logs: the groups /aws/sagemaker/TrainingJobs and /aws/sagemaker/ProcessingJobs, in
// them a stream JOB/HOST-EPOCH for each host of each job, read from the files that the hosts write
// (logs/log_stream.h); and the groups that clients make and write themselves.
#pragma once

#include <memory>

#include "api/arns.h"
#include "api/job_desk.h"
#include "api/own_logs.h"
#include "api/service.h"

namespace yard::api {

// `desk`, `own` and `clock` outlive it.
//
// DescribeLogStreams for a prefix with a '/' in it, which is that of one job, answers all streams
// at once whatever `limit` says: the SDK of version 2 never ends where it sees a nextToken.
std::unique_ptr<Service> make_logs_service(JobDesk& desk, OwnLogs& own, Arns arns,
                                           const Clock& clock = Clock::real());

}  // namespace yard::api
