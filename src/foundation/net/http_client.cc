#include "net/http_client.h"

#include <algorithm>
#include <vector>

#include "net/curl_loop_internal.h"

namespace yard {

using net_internal::CurlLoop;
using net_internal::TransferState;

Transfer::Transfer(std::shared_ptr<TransferState> state) : state_(std::move(state)) {}

Transfer& Transfer::operator=(Transfer&& other) noexcept {
  if (this != &other) {
    Transfer dropped(std::move(state_));
    state_ = std::move(other.state_);
  }
  return *this;
}

Transfer::~Transfer() {
  if (!state_ || state_->done()) return;
  state_->abandon();
  state_->loop().cancel(state_);
  // The loop's own thread cannot wait for itself; nothing of an abandoned request is used there.
  if (!state_->loop().is_own_thread()) state_->wait_done();
}

Result<HttpResponse> Transfer::wait() {
  YARD_CHECK(state_ && !state_->has_completion());
  return state_->wait();
}

bool Transfer::done() const {
  return !state_ || state_->done();
}

void Transfer::cancel() {
  if (state_ && !state_->done()) state_->loop().cancel(state_);
}

void Transfer::resume() {
  if (state_ && !state_->done()) state_->loop().resume(state_);
}

class HttpClient::Impl {
 public:
  explicit Impl(const HttpClientOptions& options) {
    const size_t thread_count = static_cast<size_t>(std::max(1, options.thread_count));
    const auto share = [&](size_t count) { return (count + thread_count - 1) / thread_count; };
    for (size_t i = 0; i < thread_count; ++i)
      loops_.push_back(std::make_unique<CurlLoop>(options, share(options.connections_per_host_max),
                                                  share(options.connections_idle_max)));
  }

  std::shared_ptr<TransferState> start(HttpRequest request, Completion completion) {
    YARD_CHECK(!(request.body && request.body_reader));
    YARD_CHECK(!(request.into && request.sink));
    CurlLoop& loop = **std::ranges::min_element(
        loops_, {}, [](const std::unique_ptr<CurlLoop>& each) { return each->active_count(); });
    auto state = std::make_shared<TransferState>(std::move(request), std::move(completion), loop);
    loop.start(state);
    return state;
  }

 private:
  std::vector<std::unique_ptr<CurlLoop>> loops_;
};

HttpClient::HttpClient(HttpClientOptions options) : impl_(std::make_unique<Impl>(options)) {}
HttpClient::~HttpClient() = default;

Result<HttpResponse> HttpClient::send(HttpRequest request) {
  return start(std::move(request)).wait();
}

Transfer HttpClient::start(HttpRequest request, Completion completion) {
  return Transfer(impl_->start(std::move(request), std::move(completion)));
}

}  // namespace yard
