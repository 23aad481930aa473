// The way of a bucket's notifications into message queues.
#pragma once

#include <string>

#include "base/result.h"
#include "gateway/notifications.h"

namespace yard::app {

// Rules that name a queue ("arn:aws:sqs:REGION:ACCOUNT:NAME") have their events sent to the queue
// of that name in the file at `path`, as S3 writes them. What cannot be sent is told in the log:
// the upload has happened already. Codes: those of MessageQueues::open().
Result<gateway::EventSink> events_into_queues(const std::string& path);

}  // namespace yard::app
