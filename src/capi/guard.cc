#include "capi/guard.h"

#include <iterator>

#include "base/version.h"

namespace millrace {

char* copy_for_caller(std::string_view text) {
  auto* out = static_cast<char*>(std::malloc(text.size() + 1));
  if (!out) throw std::bad_alloc();
  std::ranges::copy(text, out);
  out[text.size()] = 0;
  return out;
}

millrace_status status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::user: return MILLRACE_INVALID_ARGUMENT;
    case ErrorKind::corrupt: return MILLRACE_CORRUPT;
    case ErrorKind::unsupported: return MILLRACE_UNSUPPORTED;
    case ErrorKind::resource: return MILLRACE_OUT_OF_RESOURCES;
    case ErrorKind::cancelled: return MILLRACE_CANCELLED;
    case ErrorKind::internal: return MILLRACE_INTERNAL;
  }
  return MILLRACE_INTERNAL;
}

millrace_status fail(ErrorKind kind, std::string_view message, char** error) noexcept {
  if (message.empty()) message = kind == ErrorKind::resource ? "memory: there is not enough" : "internal error";
  if (error) {
    try {
      *error = copy_for_caller(message);
    } catch (const std::bad_alloc&) {
      *error = nullptr;
    }
  }
  return status_of(kind);
}

Error null_argument(const char* name) { return Error::user(std::string(name) + ": is NULL"); }

}  // namespace millrace

extern "C" {

uint32_t millrace_abi_version(void) { return MILLRACE_ABI_VERSION; }

const char* millrace_version(void) { return millrace::kVersionText; }

const char* millrace_status_name(millrace_status status) {
  constexpr const char* kNames[] = {"MILLRACE_OK",          "MILLRACE_INVALID_ARGUMENT", "MILLRACE_CORRUPT",
                                    "MILLRACE_UNSUPPORTED", "MILLRACE_OUT_OF_RESOURCES", "MILLRACE_CANCELLED",
                                    "MILLRACE_INTERNAL",    "MILLRACE_BUFFER_TOO_SMALL", "MILLRACE_TIMEOUT",
                                    "MILLRACE_END"};
  return status >= 0 && status < static_cast<millrace_status>(std::size(kNames)) ? kNames[status] : "?";
}

void millrace_free(void* memory) { std::free(memory); }

}  // extern "C"
