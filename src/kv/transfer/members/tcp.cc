// Images of blocks over TCP. The bytes are not encrypted: for networks that are trusted.
#include <unistd.h>

#include "kv/tiers/dial.h"
#include "kv/transfer/frame_link.h"
#include "kv/transfer/members/records.h"

namespace millrace {
namespace {

class TcpLink final : public FrameLink {
 public:
  using FrameLink::FrameLink;

 private:
  int dial_node(double seconds) override { return dial(options().host, options().port, seconds); }
  bool welcomed(std::string_view, int file) override {
    if (file >= 0) ::close(file);
    return file < 0;
  }
};

}  // namespace

const TransportMember kTcpTransport = {
    .link = [](TransportOptions options) -> std::unique_ptr<RemoteLink> {
      return std::make_unique<TcpLink>(std::move(options));
    },
};

}  // namespace millrace
