// Answers whose making may take longer than clients wait for a response's first byte.
#pragma once

#include <chrono>

#include "gateway/handlers_internal.h"

namespace yard::gateway {

// As S3 does it: when the work takes long, the response begins with 200 and the head of an XML
// document, and spaces keep the connection alive until the document is there. An error is then the
// document, under the status 200; clients of CompleteMultipartUpload and of the copies know that.
class KeepAlive {
 public:
  explicit KeepAlive(Call& call) : call_(call), last_(call.services.clock.now()) {}

  void tick();  // call often while working
  // The end: whatever `done` says.
  S3Status finish(S3Result<XmlWriter> done);

 private:
  static constexpr std::chrono::seconds kSilenceMax{5};

  Call& call_;
  Clock::Monotonic last_;
};

}  // namespace yard::gateway
