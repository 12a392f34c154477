// Chat templates: a sandboxed engine for the Jinja dialect in which models ship their prompt format.
//
// The language is Jinja2 (https://jinja.palletsprojects.com, 3.1) with the settings of Hugging Face: trim_blocks,
// lstrip_blocks, the loop controls break and continue, the generation block, an immutable sandbox (no method that
// modifies a list or a dict), and the globals raise_exception and strftime_now. Rendered text equals Python's output,
// including repr() of floats and lists. Tags that read files (include, import, extends) are rejected.
//
// Templates are untrusted, so everything is bounded: source size, nesting, evaluation steps, recursion, memory and
// output. No template can crash or hang the process.
//
//   source -> lexer -> parser -> Ast (immutable) -> Runtime, one per render -> text
//
// Thread-safety: a ChatTemplate is immutable; render() may run on many threads at once.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace millrace {

struct TemplateLimits {
  int64_t source_bytes = int64_t{4} << 20;
  int64_t steps = 20'000'000;                 // evaluated nodes, plus one step per element or 16 bytes processed
  int64_t depth = 800;                        // evaluator frames, including macro recursion
  int64_t nesting = 200;                      // nested brackets, operators and blocks in the source
  int64_t output_bytes = int64_t{64} << 20;   // rendered text, and any intermediate string
  int64_t memory_bytes = int64_t{512} << 20;  // values alive at once
};

struct RenderOptions {
  // The time that strftime_now formats, in seconds since the Unix epoch, as UTC. Empty: the system clock in the local
  // time zone.
  std::optional<int64_t> now_unix_seconds;
  // Another thread sets this flag to end the render with the error `cancelled`. Null: no flag.
  const std::atomic<bool>* cancelled = nullptr;
  // Time at which the render ends with the error `resource`. Empty: no time limit.
  std::optional<std::chrono::steady_clock::time_point> until;
};

namespace jinja {
struct Ast;
}

class ChatTemplate {
 public:
  // Errors: corrupt (syntax, with the line), unsupported (include, import, extends), resource (a limit).
  static Result<ChatTemplate> parse(std::string_view source, const TemplateLimits& limits = {});

  // Renders the template. `context`: an object; each key becomes a variable. Errors: corrupt (raise_exception, with the
  // template's message, or any evaluation error, with the line), resource (a limit), cancelled.
  Result<std::string> render(const nlohmann::ordered_json& context, const RenderOptions& options = {}) const;

 private:
  ChatTemplate(std::shared_ptr<const jinja::Ast> ast, const TemplateLimits& limits);

  std::shared_ptr<const jinja::Ast> ast_;
  TemplateLimits limits_;
};

}  // namespace millrace
