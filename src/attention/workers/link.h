// WorkerLink: one end of the stream socket between an engine and an attention worker. One thread may send while another
// one receives.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>

#include "attention/workers/frames.h"
#include "base/result.h"

namespace millrace {

class WorkerLink {
 public:
  // Takes over a connected socket. `timeout_seconds`: of one send or one receive; 0: it waits without limit.
  WorkerLink(int socket, double timeout_seconds);
  ~WorkerLink();
  WorkerLink(const WorkerLink&) = delete;
  WorkerLink& operator=(const WorkerLink&) = delete;

  // Connects to HOST:PORT. Errors: user (the text), network.
  static Result<int> connect(const std::string& host, double timeout_seconds);

  // Sends a frame. `floats` are empty where they are in memory that both ends map; header.words and header.floats are
  // set here and by the caller, respectively. Errors: network (the other end is gone, or does not read in time).
  Result<void> send(FrameHeader header, std::span<const int64_t> words, std::span<const float> floats);
  // Receives a header and checks it. Errors: network, corrupt.
  Result<FrameHeader> receive_header();
  // Receives the bytes that follow. Errors: network.
  Result<void> receive(void* to, size_t bytes);
  // Returns true if the other end has closed the connection.
  bool closed() const;
  // Ends the connection, so that both ends notice.
  void shut() const;

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point deadline() const;
  Result<void> wait(short events, Clock::time_point until) const;
  Result<void> send_bytes(const void* from, size_t bytes, Clock::time_point until);

  int socket_;
  double timeout_seconds_;
};

}  // namespace millrace
