// Validates the heads of requests against request smuggling. A head that two parsers could read differently under RFC
// 9112 is rejected: a proxy and this server must agree where one request ends and the next begins.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace millrace {

struct HeadFault {
  int status = 400;
  std::string message;
};

// Size of the head at the beginning of `bytes`, including its empty line; npos: incomplete. skipped_line_ends() counts
// the line ends before a head.
size_t head_bytes(std::string_view bytes);
size_t skipped_line_ends(std::string_view bytes);

// Checks Host, framing and line syntax of a `head` delimited by head_bytes(). Returns nullopt if it is valid.
std::optional<HeadFault> head_fault(std::string_view head);

}  // namespace millrace
