// The beginning and the end of every function of the C interface: exceptions and errors become a status and a message.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/result.h"
#include "millrace.h"

namespace millrace {

// Returns a copy that millrace_free() frees. Throws std::bad_alloc.
char* copy_for_caller(std::string_view text);

millrace_status status_of(ErrorKind kind);

// Sets *error, if `error` is not null, to a copy of the message; to null if memory is exhausted. `message`: "": one
// that the kind implies. Returns the kind's status.
millrace_status fail(ErrorKind kind, std::string_view message, char** error) noexcept;

Error null_argument(const char* name);  // "NAME: is NULL"

// Returns the status of work(), which is a Result<millrace_status> or a Result<void>. Nothing is thrown.
template <typename Work>
millrace_status guarded(char** error, const Work& work) noexcept {
  if (error) *error = nullptr;
  try {
    auto done = work();
    if (!done.ok()) return fail(done.error().kind, done.error().message, error);
    if constexpr (std::is_same_v<decltype(done), Result<millrace_status>>)
      return *done;
    else
      return MILLRACE_OK;
  } catch (const std::bad_alloc&) {
    return fail(ErrorKind::resource, {}, error);
  } catch (const std::exception& failure) {
    return fail(ErrorKind::internal, failure.what(), error);
  } catch (...) {
    return fail(ErrorKind::internal, {}, error);
  }
}

// Copies a structure that the caller passes, whose size may be that of another version. Members that the caller's
// version does not have are zero. Errors (user): null, or smaller than the first version.
template <typename Struct>
Result<Struct> read_struct(const Struct* given, size_t first_bytes, const char* name) {
  if (!given) return null_argument(name);
  if (given->struct_size < first_bytes)
    return Error::user(std::string(name) + ": struct_size is " + std::to_string(given->struct_size) + ", must be " +
                       std::to_string(first_bytes) + " or more; set it to sizeof");
  Struct out{};
  std::memcpy(&out, given, std::min(given->struct_size, sizeof(Struct)));
  return out;
}

// Copies to the caller's structure what its version has; its struct_size stays.
template <typename Struct>
void write_struct(Struct* out, Struct value) {
  value.struct_size = out->struct_size;
  std::memcpy(out, &value, std::min(out->struct_size, sizeof(Struct)));
}

}  // namespace millrace
