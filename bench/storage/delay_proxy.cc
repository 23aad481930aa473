// delay_proxy TARGET_PORT DELAY_MS: a link with latency, on loopback. Prints its port; every byte
// is passed on DELAY_MS after it came, in either direction, as fast as it comes.
//
// One thread, and no copies: splice() hands the kernel's pages on through a pipe, for a real link
// costs no CPU of the machines at its ends either. What is under way in one direction of one
// connection is bounded by that pipe. `tc netem` does the same in the kernel where it exists and
// one may use it.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <queue>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPieceBytes = 1 << 20;
// Of a pipe: 4,096 pages, each of which holds up to 32 KiB of a socket's. Without root 1 MiB.
constexpr int kPipeBytes[] = {16 << 20, 1 << 20};

struct Piece {
  size_t left = 0;
  Clock::time_point due;
};

struct Connection;

// One socket: what is to be sent to it, and its peer.
struct End {
  yard::UniqueFd fd;
  End* peer = nullptr;
  Connection* connection = nullptr;
  yard::UniqueFd pipe_in, pipe_out;  // what is to be sent lies between them
  std::deque<Piece> to_send;         // its pieces, oldest first
  bool is_full = false;
  bool peer_has_ended = false;  // nothing more will come for this socket
  bool is_shut = false;
  uint32_t watched = 0;
};

struct Connection {
  End ends[2];
  bool is_broken = false;
};

class Proxy {
 public:
  Proxy(uint16_t target_port, std::chrono::microseconds delay)
      : target_port_(target_port), delay_(delay), epoll_(::epoll_create1(0)) {}

  void run(int listener) {
    watch_fd(listener, EPOLLIN, nullptr, EPOLL_CTL_ADD);
    epoll_event events[128];
    for (;;) {
      const int count = ::epoll_wait(epoll_.get(), events, 128, wait_ms());
      for (int i = 0; i < count; ++i) {
        auto* end = static_cast<End*>(events[i].data.ptr);
        if (end == nullptr) {
          accept_all(listener);
          continue;
        }
        if (end->connection->is_broken) continue;
        // A hang-up is read to its end, too: bytes may lie before it.
        if (events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP)) receive(*end);
        if (!end->connection->is_broken && (events[i].events & EPOLLOUT)) send(*end);
      }
      send_due();
      for (Connection* gone : broken_) connections_.erase(gone);
      broken_.clear();
    }
  }

 private:
  struct Due {
    Clock::time_point time;
    Connection* connection;
    int end;
    bool operator>(const Due& other) const { return time > other.time; }
  };

  int wait_ms() const {
    if (due_.empty()) return -1;
    // Whole milliseconds; rounded up, for a wait that ends early only runs again.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(due_.top().time - Clock::now());
    return static_cast<int>(std::max<int64_t>(0, left.count()));
  }

  void watch_fd(int fd, uint32_t events, End* end, int how) {
    epoll_event event{.events = events, .data = {.ptr = end}};
    YARD_CHECK(::epoll_ctl(epoll_.get(), how, fd, &event) == 0);
  }

  void accept_all(int listener) {
    for (;;) {
      yard::UniqueFd client(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK));
      if (!client.valid()) return;
      yard::UniqueFd server(::socket(AF_INET, SOCK_STREAM, 0));
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(target_port_);
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      if (::connect(server.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
        continue;
      auto connection = std::make_unique<Connection>();
      connection->ends[0].fd = std::move(client);
      connection->ends[1].fd = std::move(server);
      for (int i = 0; i < 2; ++i) {
        End& end = connection->ends[i];
        end.peer = &connection->ends[1 - i];
        end.connection = connection.get();
        int pipe[2];
        YARD_CHECK(::pipe2(pipe, O_NONBLOCK) == 0);
        end.pipe_out = yard::UniqueFd(pipe[0]);
        end.pipe_in = yard::UniqueFd(pipe[1]);
        for (const int bytes : kPipeBytes)
          if (::fcntl(pipe[0], F_SETPIPE_SZ, bytes) > 0) break;
        ::fcntl(end.fd.get(), F_SETFL, O_NONBLOCK);
        const int one = 1;
        ::setsockopt(end.fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        end.watched = EPOLLIN;
        watch_fd(end.fd.get(), EPOLLIN, &end, EPOLL_CTL_ADD);
      }
      Connection* key = connection.get();
      connections_.emplace(key, std::move(connection));
    }
  }

  void update_watch(End& end) {
    uint32_t wanted = 0;
    if (!end.peer->is_full && !end.peer->peer_has_ended) wanted |= EPOLLIN;
    if (!end.to_send.empty() && end.to_send.front().due <= Clock::now()) wanted |= EPOLLOUT;
    if (wanted == end.watched) return;
    end.watched = wanted;
    watch_fd(end.fd.get(), wanted, &end, EPOLL_CTL_MOD);
  }

  void receive(End& end) {
    End& target = *end.peer;
    if (target.peer_has_ended) return break_connection(*end.connection);
    const ssize_t got = ::splice(end.fd.get(), nullptr, target.pipe_in.get(), nullptr, kPieceBytes,
                                 SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (got < 0 && errno != EAGAIN) return break_connection(*end.connection);
    if (got < 0) {
      // There was something to read: the pipe is full, until some of it is sent.
      target.is_full = !target.to_send.empty();
    } else {
      const auto due = Clock::now() + delay_;
      target.peer_has_ended = got == 0;
      if (got > 0) target.to_send.push_back({static_cast<size_t>(got), due});
      due_.push({due, end.connection, static_cast<int>(&target - end.connection->ends)});
    }
    update_watch(end);
  }

  void send(End& end) {
    const auto now = Clock::now();
    while (!end.to_send.empty() && end.to_send.front().due <= now) {
      Piece& piece = end.to_send.front();
      const ssize_t sent = ::splice(end.pipe_out.get(), nullptr, end.fd.get(), nullptr, piece.left,
                                    SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
      if (sent < 0 && errno == EAGAIN) break;
      if (sent < 0) return break_connection(*end.connection);
      end.is_full = false;
      piece.left -= static_cast<size_t>(sent);
      if (piece.left == 0) end.to_send.pop_front();
    }
    if (end.to_send.empty() && end.peer_has_ended && !end.is_shut) {
      end.is_shut = true;
      ::shutdown(end.fd.get(), SHUT_WR);
      if (end.peer->is_shut) return break_connection(*end.connection);
    }
    update_watch(end);
    update_watch(*end.peer);
  }

  void send_due() {
    const auto now = Clock::now();
    while (!due_.empty() && due_.top().time <= now) {
      const Due due = due_.top();
      due_.pop();
      if (!connections_.contains(due.connection) || due.connection->is_broken) continue;
      send(due.connection->ends[due.end]);
    }
  }

  void break_connection(Connection& connection) {
    if (connection.is_broken) return;
    connection.is_broken = true;
    for (End& end : connection.ends) {
      end.fd.reset();
      end.pipe_in.reset();
      end.pipe_out.reset();
    }
    broken_.push_back(&connection);
  }

  const uint16_t target_port_;
  const std::chrono::microseconds delay_;
  yard::UniqueFd epoll_;
  std::unordered_map<Connection*, std::unique_ptr<Connection>> connections_;
  std::vector<Connection*> broken_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
};

}  // namespace

int main(int argc, char** argv) {
  YARD_CHECK(argc == 3);
  std::signal(SIGPIPE, SIG_IGN);  // splice() knows no MSG_NOSIGNAL
  const yard::UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  YARD_CHECK(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  YARD_CHECK(::listen(listener.get(), 1024) == 0);
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  std::printf("%d\n", ntohs(address.sin_port));
  std::fflush(stdout);
  const auto delay_us = static_cast<int64_t>(std::atof(argv[2]) * 1000);
  Proxy(static_cast<uint16_t>(std::atoi(argv[1])), std::chrono::microseconds(delay_us))
      .run(listener.get());
}
