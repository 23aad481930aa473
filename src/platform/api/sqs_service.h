// SQS: standard queues over queue/message_queues.h, in the forms that clients of AWS speak.
#pragma once

#include <memory>

#include "api/arns.h"
#include "api/service.h"
#include "queue/message_queues.h"

namespace yard::api {

// `queues` outlives it. FIFO queues, encryption by key and access policies are refused by name.
// A URL names a queue by its last part, whatever stands before it.
std::unique_ptr<Service> make_sqs_service(queue::MessageQueues& queues, Arns arns);

}  // namespace yard::api
