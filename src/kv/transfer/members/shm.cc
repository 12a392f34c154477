// Images of blocks of a node on this machine, which runs as the same user: its memory for blocks is mapped for reading,
// and images are copied from there. An image is copied before it is verified, because the other process may reuse the
// memory once the lease has ended.
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "base/system.h"
#include "kv/transfer/frame_link.h"
#include "kv/transfer/members/records.h"

namespace millrace {
namespace {

class ShmLink final : public FrameLink {
 public:
  using FrameLink::FrameLink;
  ~ShmLink() override { unmap(); }

 private:
  // Errors of the path show as no connection. A socket that another user has placed there is not used.
  int dial_node(double /*seconds*/) override {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = transfer_socket_path(options().port);
    struct stat info {};
    if (path.size() >= sizeof address.sun_path || ::lstat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode) ||
        info.st_uid != ::getuid())
      return -1;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    const int made = open_socket(AF_UNIX, SOCK_STREAM, 0);
    if (made < 0 || ::connect(made, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return made;
    ::close(made);
    return -1;
  }

  bool welcomed(std::string_view body, int file) override {
    uint64_t bytes = 0;
    struct stat info {};
    bool good = file >= 0 && body.size() == sizeof bytes && ::fstat(file, &info) == 0;
    if (good) {
      std::memcpy(&bytes, body.data(), sizeof bytes);
      good = bytes > 0 && info.st_size >= 0 && bytes <= static_cast<uint64_t>(info.st_size);
    }
    if (good) {
      void* mapped = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ, MAP_SHARED, file, 0);
      good = mapped != MAP_FAILED;
      if (good) memory_ = {static_cast<const char*>(mapped), static_cast<size_t>(bytes)};
    }
    if (file >= 0) ::close(file);
    return good;
  }

  bool copy_range(std::string_view range, std::vector<char>& out) override {
    const auto found = decode_range(range, static_cast<uint64_t>(options().image_bytes), memory_.size());
    if (found) out.assign(memory_.data() + found->offset, memory_.data() + found->offset + found->bytes);
    return found.has_value();
  }

  void closed() override { unmap(); }

  void unmap() {
    if (!memory_.empty()) ::munmap(const_cast<char*>(memory_.data()), memory_.size());
    memory_ = {};
  }

  std::string_view memory_;  // the other process's
};

}  // namespace

const TransportMember kShmTransport = {
    .link = [](TransportOptions options) -> std::unique_ptr<RemoteLink> {
      return std::make_unique<ShmLink>(std::move(options));
    },
    .same_machine = true,
};

}  // namespace millrace
