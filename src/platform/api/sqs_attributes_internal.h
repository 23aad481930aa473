// The attributes of queues and messages: SQS's names and texts to ours and back.
#pragma once

#include <string>

#include "api/arns.h"
#include "api/aws_error.h"
#include "base/json.h"
#include "queue/message_queues.h"

namespace yard::api::internal {

// `attributes` (all values are texts) over those that a queue has or begins with.
// InvalidAttributeName, InvalidAttributeValue; UnsupportedOperation for what standard queues here
// do not have.
AwsResult<queue::QueueAttributes> read_queue_attributes(const Json& attributes,
                                                        queue::QueueAttributes begin);
// Those of `names` ("All" is all of them). InvalidAttributeName.
AwsResult<Json> queue_attributes_document(const queue::QueueInfo& info, const Json& names,
                                          const Arns& arns);

// Of a message; {} for none. InvalidParameterValue names the attribute.
AwsStatus check_message_attributes(const Json& attributes);
// SQS's digest over them; empty when there are none.
std::string message_attributes_md5(const Json& attributes);
// Those whose names stand in `wanted`: "All", ".*", "prefix.*" or a name.
Json wanted_message_attributes(const Json& attributes, const Json& wanted);
// SentTimestamp and its kin, those of `wanted`.
Json system_attributes(const queue::ReceivedMessage& message, const Json& wanted, const Arns& arns);

std::string queue_arn(const Arns& arns, std::string_view name);
std::string md5_hex(std::string_view bytes);

}  // namespace yard::api::internal
