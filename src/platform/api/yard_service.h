// What the commands of `yard` ask the daemon for and AWS has no operation for: the hosts and what
// they use (yard top), the cost of a job and its forecast (yard cost), faults on purpose (yard
// chaos). JSON 1.1 as AWS's, target "Trainyard.OPERATION", signed for the service "trainyard".
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "api/fault_injection.h"
#include "api/job_desk.h"
#include "api/service.h"
#include "observe/job_observer.h"

namespace yard::api {

// `desk` and `faults` outlive it; `live_hosts` may be called on many threads at once.
std::unique_ptr<Service> make_yard_service(
    JobDesk& desk, FaultInjection& faults,
    std::function<std::vector<observe::LiveHost>()> live_hosts, const Clock& clock = Clock::real());

}  // namespace yard::api
