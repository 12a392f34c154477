// Result<T> and Error: how code that handles files and requests reports failure. No exceptions cross a module boundary;
// no file or request can abort the process.
//
//   Result<File> open(...);
//   MILLRACE_TRY(auto file, open(path));        // declares `file`, or returns the error
//   MILLRACE_TRY_VOID(check(file));             // for Result<void>
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace millrace {

// Kinds map to exit codes (exit_code) and, in the server, to HTTP status.
enum class ErrorKind { user, corrupt, unsupported, resource, cancelled, internal };

struct [[nodiscard]] Error {
  ErrorKind kind = ErrorKind::internal;
  std::string message;  // first the subject, then the problem with its values, then what to do

  static Error user(std::string m) { return {ErrorKind::user, std::move(m)}; }
  static Error corrupt(std::string m) { return {ErrorKind::corrupt, std::move(m)}; }
  static Error unsupported(std::string m) { return {ErrorKind::unsupported, std::move(m)}; }
  static Error resource(std::string m) { return {ErrorKind::resource, std::move(m)}; }
  static Error cancelled(std::string m) { return {ErrorKind::cancelled, std::move(m)}; }
  static Error internal(std::string m) { return {ErrorKind::internal, std::move(m)}; }
};

// Returns the exit code of an error: 2 usage, 3 bad input file, 4 not supported, 5 not enough resources, 1 anything
// else. The exit code of success is 0.
inline int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::user: return 2;
    case ErrorKind::corrupt: return 3;
    case ErrorKind::unsupported: return 4;
    case ErrorKind::resource: return 5;
    default: return 1;
  }
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    assert(ok());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    assert(ok());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    assert(ok());
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& {
    assert(!ok());
    return *std::get_if<1>(&state_);
  }
  Error&& error() && {
    assert(!ok());
    return std::move(*std::get_if<1>(&state_));
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const& {
    assert(!ok());
    return *error_;
  }
  Error&& error() && {
    assert(!ok());
    return std::move(*error_);
  }

 private:
  std::optional<Error> error_;
};

}  // namespace millrace

#define MILLRACE_CONCAT_(a, b) a##b
#define MILLRACE_CONCAT(a, b) MILLRACE_CONCAT_(a, b)
#define MILLRACE_TRY_(tmp, decl, expr)          \
  auto tmp = (expr);                            \
  if (!tmp.ok()) return std::move(tmp).error(); \
  decl = std::move(tmp).value()
#define MILLRACE_TRY(decl, expr) MILLRACE_TRY_(MILLRACE_CONCAT(try_, __LINE__), decl, expr)
#define MILLRACE_TRY_VOID(expr)                               \
  do {                                                        \
    auto try_void_ = (expr);                                  \
    if (!try_void_.ok()) return std::move(try_void_).error(); \
  } while (0)
