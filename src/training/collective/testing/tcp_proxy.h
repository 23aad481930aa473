// For tests: what lies between hosts. Ranks that find rank 0 through it have every TCP connection
// go through it, the first one, those of the data and those of messages: bytes can be late, get
// lost, and connections be reset.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/file.h"
#include "collective/frame_internal.h"

namespace yard::collective {

// Thread-safe.
class TcpProxy {
 public:
  // `master_port`: rank 0's. Each piece of bytes is late by 0 to `delay_max`, by `seed`; the order
  // within a connection stays.
  TcpProxy(uint16_t master_port, std::chrono::milliseconds delay_max, uint64_t seed);
  ~TcpProxy();

  // Where all ranks but 0 find rank 0.
  uint16_t port() const { return port_; }
  // Connections that carry data so far.
  size_t data_connection_count() const;
  // Both ends of the newest of them get a reset (RST).
  void reset_newest_data_connection();
  // From now on nothing comes through the data connections, and they stay open.
  void silence_data_connections();

 private:
  struct Door;
  struct Connection;
  struct Direction;

  void run();
  uint16_t open_door(uint16_t target_port, bool is_master);
  void accept_at(const Door& door);
  void read_from(Connection& connection, Direction& direction);
  void read_frame(Connection& connection, Direction& direction);
  void push(Direction& direction, std::string bytes);
  void write_to(Connection& connection, Direction& direction);
  std::string introduced(Connection& connection, const Frame& frame);
  std::string welcomed(Connection& connection, const Frame& frame);

  const std::chrono::milliseconds delay_max_;
  const uint64_t seed_;
  uint64_t piece_count_ = 0;
  UniqueFd wake_;  // eventfd
  uint16_t port_ = 0;
  mutable std::mutex mutex_;  // all below
  std::list<Door> doors_;
  std::list<Connection> connections_;
  size_t data_connection_count_ = 0;
  uint16_t rank_zero_port_ = 0;  // our door before its data
  bool is_silent_ = false;
  bool is_ended_ = false;
  std::thread thread_;
};

}  // namespace yard::collective
