// FrameLink: the reader's side of frames between nodes (block_frame.h): what all transports have in common. A transport
// connects, and says where an image is that the other side holds.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "kv/tiers/remote_link.h"
#include "kv/tiers/send_queue.h"
#include "kv/transfer/block_frame.h"
#include "kv/transfer/transport.h"

namespace millrace {

class FrameLink : public RemoteLink {
 public:
  explicit FrameLink(TransportOptions options);
  ~FrameLink() override;
  FrameLink(const FrameLink&) = delete;
  FrameLink& operator=(const FrameLink&) = delete;

  bool connect(double seconds, std::string& refusal) final;
  bool open() const final { return socket_ >= 0; }
  void close() final;
  void ask(const PrefixKey& key, uint64_t lease) final { send(BlockFrame::Kind::ask, key, lease); }
  void fetch(const PrefixKey& key, uint64_t lease) final { send(BlockFrame::Kind::fetch, key, lease); }
  void store(const PrefixKey& key, std::string_view image) final;
  int64_t unsent_bytes() const final { return out_.unsent_bytes(); }
  void move(int wake, double seconds) final;
  std::optional<RemoteReply> next() final;

 protected:
  // Returns a connected socket that does not block; -1: there is no connection.
  virtual int dial_node(double seconds) = 0;
  // The other side has answered the greeting. `file`: one that it passed; -1: none. Takes it over. False: not usable.
  virtual bool welcomed(std::string_view body, int file) = 0;
  // Copies an image that the other side holds at a range of its memory. False: the range is none.
  virtual bool copy_range(std::string_view /*range*/, std::vector<char>& /*out*/) { return false; }
  virtual void closed() {}

  const TransportOptions& options() const { return options_; }

 private:
  struct Sent {
    BlockFrame::Kind kind;
    PrefixKey key;
    uint64_t lease;
  };
  void send(BlockFrame::Kind kind, const PrefixKey& key, uint64_t lease);
  void receive_some();
  bool greet(double seconds, std::string& refusal);
  std::optional<RemoteReply> reply_to(const Sent& sent, const BlockFrame& frame);

  const TransportOptions options_;
  int socket_ = -1, file_ = -1;
  SendQueue out_;
  std::vector<char> copied_;  // image of a range
  BlockFrameReader reader_;
  std::deque<Sent> waiting_;  // for replies
};

}  // namespace millrace
