// PrepMessages: the queue that prep works from, with its dead letters: in a file of message queues
// of this machine, or behind the API of SQS.
//
// Thread-safe. Codes: those of MessageQueues and of AwsClient.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "aws/aws_client.h"
#include "base/result.h"
#include "base/stop_token.h"
#include "prep/spec.h"
#include "queue/message_queues.h"

namespace yard::prep {

class PrepMessages {
 public:
  virtual ~PrepMessages() = default;

  virtual Result<std::vector<queue::ReceivedMessage>> receive(const queue::ReceiveOptions& options,
                                                              const StopToken& stop) = 0;
  virtual Result<queue::QueueCounts> counts() = 0;
  virtual Result<queue::QueueCounts> dead_counts() = 0;
  // How many were not known to the queue; a service knows none by its dedupe key.
  virtual Result<uint64_t> send(const std::vector<queue::NewMessage>& messages) = 0;
  // Receipts that are out of date are passed over by all of these.
  virtual Status remove(const std::vector<std::string>& receipts) = 0;
  virtual Status hide(const std::vector<std::string>& receipts, int64_t seconds) = 0;
  // The message, with its body, at once to the dead letters. False: its receipt is out of date, as
  // far as the queue can tell.
  virtual Result<bool> reject(const std::string& receipt, const std::string& body,
                              const std::string& reason) = 0;
  // 1000 at most; they stay.
  virtual Result<std::vector<queue::ReceivedMessage>> dead_letters() = 0;
  // They go back to the queue. Returns how many.
  virtual Result<int64_t> redrive() = 0;

  virtual std::string name() const = 0;
  // Whether others may work from the same queue, so that each of them lists the source in vain.
  virtual bool is_shared() const = 0;
};

// Both make the queue and its dead letters where they are missing.
Result<std::unique_ptr<PrepMessages>> open_file_messages(const PrepSpec& spec,
                                                         const std::string& state_dir);
// `sqs` and `s3` outlive it. Where the spec asks for it, the bucket's notifications of new objects
// under `prefix` are sent to the queue from now on, beside those that are set up already.
struct SqsPlace {
  const aws::AwsClient& sqs;
  const aws::AwsClient& s3;
  std::string bucket;
  std::string prefix;
};
Result<std::unique_ptr<PrepMessages>> open_sqs_messages(const PrepSpec& spec, SqsPlace place);

// A bucket's notification configuration with rules for pictures, one for each ending of names; as
// it is when it names that queue already. Pure. kInvalidArgument: it is no such configuration.
Result<std::string> with_queue_notification(const std::string& configuration,
                                            const std::string& queue_arn,
                                            const std::string& prefix);

}  // namespace yard::prep
