// ExitGate: decides behind which layers the rows of a stream leave a forward pass (early exit). The last
// norm and the head follow for a row that leaves; the rows that stay run the next layer. Each member is one file under
// members/ and one line in builtin.cc, chosen by `--use exit=NAME[:key=value,...]` or for each request. Lossy: answers
// change.
//
// The model calls next() before a pass and behind each layer that next() has named; there it passes the rows of the
// gate's spans to stop(). Decisions depend on the stream's rows alone, so the bits of an answer do not depend on its
// batch, its chunks or threads. Stateless and const: one gate serves many streams and threads.
//
// Layers that a stream skips have no keys and values of its tokens. So every token must run at least stored() layers,
// and none of them attends in a layer behind these.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/registry.h"
#include "base/result.h"

namespace millrace {

// Rows of one span behind a layer.
struct ExitRows {
  int64_t depth = 0;            // layers that the rows have run
  int64_t layers = 0;           // layers of the model
  std::span<const float> rows;  // residual stream [tokens, width]
  int64_t width = 0;
};

class ExitGate {
 public:
  static constexpr int64_t kNever = INT64_MAX;

  virtual ~ExitGate() = default;
  // Checks that the gate fits a model with `layers` layers. Errors: user.
  virtual Result<void> check(int64_t layers) const = 0;
  // The first number of layers greater than `depth` behind which rows may leave; kNever: none.
  virtual int64_t next(int64_t depth) const = 0;
  // Sets stops[i] to 1 for each row i that leaves. `stops` is 0 for all rows before.
  virtual void stop(const ExitRows& rows, std::span<uint8_t> stops) const = 0;
  // Number of layers whose keys and values every token of a stream stores, in a model with `layers` layers. Streams
  // share prefixes only with streams that store as many.
  virtual int64_t stored(int64_t layers) const = 0;

  const std::string& text() const { return text_; }  // NAME[:key=value,...], as given

 private:
  friend Result<std::shared_ptr<const ExitGate>> make_exit_gate(std::string_view text);
  std::string text_;
};

using ExitGateFactory = Result<std::unique_ptr<ExitGate>> (*)(const OptionValues& options);
const Registry<ExitGateFactory>& exit_gates();

// `text` is NAME[:key=value,...]; null for "" and "none". Errors (user): unknown name or option.
Result<std::shared_ptr<const ExitGate>> make_exit_gate(std::string_view text);

// An engine's gate is an entry of EngineOptions::kernels, "exit=NAME[:...]". Requests may name another.
inline constexpr std::string_view kExitPrefix = "exit=";
// The text of that entry behind the prefix; "": there is none.
std::string chosen_exit(std::span<const std::string> kernels);

}  // namespace millrace
