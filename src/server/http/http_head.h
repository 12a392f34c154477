// Which heads of requests are taken. Where RFC 9112 lets two readers of the same bytes find different requests in them,
// the head is refused: a proxy in front and this server must agree where one request ends and the next begins.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace millrace {

struct HeadFault {
  int status = 400;
  std::string message;
};

// Bytes of the head that `bytes` begins with, its empty line included; npos: it is not all there. Line ends before a
// head are passed over by skipped_line_ends().
size_t head_bytes(std::string_view bytes);
size_t skipped_line_ends(std::string_view bytes);

// `head` as head_bytes() found it. Nothing: it is good, as far as Host, framing and the form of its lines go.
std::optional<HeadFault> head_fault(std::string_view head);

}  // namespace millrace
