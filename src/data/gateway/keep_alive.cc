#include "gateway/keep_alive_internal.h"

namespace yard::gateway {
namespace {

constexpr std::string_view kHead = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

}  // namespace

void KeepAlive::tick() {
  const auto now = call_.services.clock.now();
  if (now - last_ < kSilenceMax) return;
  last_ = now;
  // A client that went away is found when the answer is sent; the work is done all the same.
  if (!call_.response.started()) {
    call_.response.headers().set("Content-Type", "application/xml");
    if (!call_.response.start(200, std::nullopt) || !call_.response.write(kHead)) return;
  } else if (!call_.response.write(" ")) {
    return;
  }
  (void)call_.response.flush();
}

S3Status KeepAlive::finish(S3Result<XmlWriter> done) {
  if (!call_.response.started()) {
    if (!done) return std::move(done).error();
    return send_xml(call_, *std::move(done));
  }
  std::string document;
  if (done) {
    document = done->take();
  } else {
    XmlWriter xml("Error", XmlWriter::Namespace::kNone);
    xml.text("Code", done.error().code).text("Message", done.error().message);
    document = xml.text("RequestId", call_.request_id).take();
  }
  (void)call_.response.write(std::string_view(document).substr(kHead.size()));
  return Ok{};
}

}  // namespace yard::gateway
